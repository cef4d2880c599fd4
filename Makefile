# The signature directory. `make` alone lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PORT ?= 8000
SEED ?= 1
ROUNDS ?= 200
BIN := $(VENV)/bin
export SIGDIR_WAREHOUSE ?= data
# Without its cache of bytecode every process compiles what it imports: an import of one line takes 2.4 s of processor
# instead of 1.0, and the tests start some hundred processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install dev run test test-all test-quick lint format bench bench-quick cookbook formats torture fuzz constraints screenshots clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Python byte-compiles a module when it is imported first. Doing so for all of them takes pip as long as the rest.
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check --no-compile --editable
# Prints a line every four seconds until the shell ends: pip is silent while it unpacks packages.
STILL_WORKING = (while sleep 4 && kill -0 $$$$ 2>/dev/null; do echo "  ... installing"; done) &

# Made again when the dependencies change. The package itself is installed editable.
$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one: make PYTHON=..." >&2; exit 1; }
	@echo "making $(VENV): Python's environment and the packages that sigdir needs, half a minute if pip has them in its cache"
	@$(STILL_WORKING) $(PYTHON) -m venv $(VENV) && $(PIP_INSTALL) .; status=$$?; kill $$!; exit $$status
	$(BIN)/sigdir compile
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "adding the packages that tests and linters need"
	@$(STILL_WORKING) $(PIP_INSTALL) '.[dev,fast]'; status=$$?; kill $$!; exit $$status
	@touch $@

install: $(VENV)/.installed ## make the environment (.venv) and install what running needs

dev: $(VENV)/.dev ## install also what tests, linters and benchmarks need

run: install ## import the bundled sample and serve it (PORT=8000, Ctrl-C ends it)
	$(BIN)/sigdir import --samples --source "bundled sample"
	$(BIN)/sigdir stats
	$(BIN)/sigdir serve --port $(PORT)

# A folder in memory with room for the files of `make test`, if there is one: fsync on a disk takes a tenth of the time.
# Only what failed is kept there.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4000000 { print $$6 }')

# Four workers on two cores, because much of a test is waiting for a process it started. A file stays with one worker,
# so a module's server and warehouse are made once. The order is that of tests/conftest.py: xdist's own puts the files
# with many tests first, and those are not the long ones.
PYTEST = $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

test: export PYTEST_DEBUG_TEMPROOT := $(MEMORY)
test: dev ## run the tests: with a quarter of the examples, without the longest (3 minutes)
	$(PYTEST) -n 4 -m "not long" -o tmp_path_retention_policy=failed

test-all: dev ## all tests, as CI does: also those that kill at every moment, fill memory, read the real corpora
	$(PYTEST) -n 4

test-quick: dev ## run the quick files: no browsers, no processes, little of the HTTP API (40 seconds)
	$(PYTEST) -n 2 -m "not slow and not long"

lint: dev ## ruff and mypy, strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: dev ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: dev ## measure everything beside its yardstick (10 M rows, about half an hour)
	$(BIN)/python -m benchmarks

bench-quick: dev ## the same on a tenth of the rows
	$(BIN)/python -m benchmarks --rows 1000000

cookbook: dev ## time the queries of docs/cookbook.md on the real corpora, and write them into it
	$(BIN)/python -m benchmarks.cookbook

formats: dev ## write the table of docs/formats.md from the formats' own sentences
	$(BIN)/python -m tests.pipeline.formats_table

torture: dev ## kill its processes and see that nothing is lost (SEED=1 ROUNDS=200, 5 s a round)
	$(BIN)/python -m tests.torture --seed $(SEED) --rounds $(ROUNDS)

SECONDS ?= 60
fuzz: dev ## fuzz grammar, readers, archives, POST bodies, the log and packs by coverage, and costs (SECONDS=60 each)
	$(PIP_INSTALL) '.[fuzz]'
	for target in grammar readers usage tar parquet bodies decoding log pack cost; do $(BIN)/python -m tests.fuzz $$target $(SECONDS) || exit 1; done

constraints: dev ## write the versions of all packages into constraints.txt; run the tests with them first
	@{ head -1 constraints.txt; $(BIN)/python -m pip freeze --exclude-editable; } > constraints.new && mv constraints.new constraints.txt

screenshots: dev ## pictures of the pages into docs/screenshots (needs chromium)
	$(BIN)/python -m tests.web.screenshots docs/screenshots

clean: ## remove the environment, caches and benchmark corpora; the warehouse stays
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/.cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
