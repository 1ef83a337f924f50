# make demo and make test do all the set-up they need; see CONTRIBUTING.md for the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint peers clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(INSTALLED) ## train with cross-entropy and with PC-LC on scikit-learn's digits and compare
	$(BIN)/pclc demo

test: $(INSTALLED) ## run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(INSTALLED) ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

peers: $(INSTALLED) ## install the libraries that the benchmarks compare with
	$(BIN)/python -m pip install --no-deps -r peers.txt

clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# The file is written last, so an interrupted install is done again.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
