# The signature directory. `make` alone lists the targets.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PORT ?= 8000
SEED ?= 1
ROUNDS ?= 200
BIN := $(VENV)/bin
export SIGDIR_WAREHOUSE ?= data

.DEFAULT_GOAL := help
.PHONY: help install run test test-quick lint format bench bench-quick cookbook torture fuzz second-machine screenshots clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made again when the dependencies change. The package itself is installed editable.
$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,fast]'
	@touch $@

install: $(VENV)/.installed ## make the environment (.venv) and install into it

run: install ## import the bundled sample and serve it (PORT=8000, Ctrl-C ends it)
	$(BIN)/sigdir import samples --source "bundled sample"
	$(BIN)/sigdir stats
	$(BIN)/sigdir serve --port $(PORT)

# Four workers on two cores, because much of a test is waiting for a process it started. A file stays with one worker,
# so a module's server and warehouse are made once.
PYTEST = $(BIN)/python -m pytest -n 4 --dist loadfile

test: install ## run all tests
	$(PYTEST)

test-quick: install ## run the tests that need no browser and kill no process (a minute)
	$(PYTEST) -m "not slow"

lint: install ## ruff and mypy, strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install ## measure everything beside its yardstick (10 M rows, about 15 minutes)
	$(BIN)/python -m benchmarks

bench-quick: install ## the same on a tenth of the rows
	$(BIN)/python -m benchmarks --rows 1000000

cookbook: install ## time the queries of docs/cookbook.md on the real corpora, and write them into it
	$(BIN)/python -m benchmarks.cookbook

torture: install ## kill its processes and see that nothing is lost (SEED=1 ROUNDS=200, 5 s a round)
	$(BIN)/python -m tests.torture --seed $(SEED) --rounds $(ROUNDS)

SECONDS ?= 60
fuzz: install ## fuzz grammar, readers and POST bodies by coverage (SECONDS=60 each)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	for target in grammar readers bodies; do $(BIN)/python -m tests.fuzz $$target $(SECONDS) || exit 1; done

second-machine: install ## mirror, export and import again the real corpora, or WAREHOUSE=..., and compare all rows
	$(BIN)/python -m tests.second_machine $(WAREHOUSE)

screenshots: install ## pictures of the pages into docs/screenshots (needs chromium)
	$(BIN)/python -m tests.web.screenshots docs/screenshots

clean: ## remove the environment, caches and benchmark corpora; the warehouse stays
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/.cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
