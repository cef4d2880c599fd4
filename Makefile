# The signature directory. `make` alone lists the targets.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
export SIGDIR_WAREHOUSE ?= data

.DEFAULT_GOAL := help
.PHONY: help install run test lint format bench bench-quick clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Made again when the dependencies change. The package itself is installed editable.
$(VENV)/.installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is needed; or name one: make PYTHON=python3 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

install: $(VENV)/.installed ## make the environment (.venv) and install into it

run: install ## import the bundled sample and show what the warehouse holds
	$(BIN)/sigdir import samples --source "bundled sample"
	$(BIN)/sigdir stats
	$(BIN)/sigdir sql "SELECT hex_signature, text_signature FROM signatures ORDER BY id LIMIT 10"

test: install ## run the tests
	$(BIN)/python -m pytest

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

clean: ## remove the environment, caches and benchmark corpora; the warehouse stays
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/.cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
