# make demo and make test do all the set-up they need; see CONTRIBUTING.md for the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs zoo peers clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(INSTALLED) ## train, attack and audit on scikit-learn's digits, and write runs/demo/report.html
	$(BIN)/pclc demo

test: $(INSTALLED) ## run the tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(INSTALLED) ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(INSTALLED) ## build the site into docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d docs/_build/doctrees docs docs/_build/html
	@echo docs/_build/html/index.html

zoo: $(INSTALLED) ## audit models whose robustness is known, and write down how often the verdict is wrong
	OMP_NUM_THREADS=1 $(BIN)/pclc bench zoo --save results/zoo.json --page docs/audit.md

peers: $(INSTALLED) ## install the libraries that the benchmarks compare with
	$(BIN)/python -m pip install --no-deps -r peers.txt

clean: ## remove the environment and everything generated
	rm -rf $(VENV) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# The file is written last, so an interrupted install is done again.
$(INSTALLED): pyproject.toml constraints.txt
	@echo "Installing into $(VENV), which is done once and takes a few minutes without a word."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
