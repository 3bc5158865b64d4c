# Each target makes what it needs and nothing twice: the stamps in .venv and frontend say what is up to date.

PYTHON ?= python3
# As many tests at once as there are cores; one after the other where somebody chooses.
PYTEST ?= -n auto --maxprocesses 8 --dist loadscope
# How much make fuzz tries of everything.
EXAMPLES ?= 1000
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
TORCH := $(shell grep '^torch==' constraints.txt)
# Node from the machine or, where that is missing or too old, from the virtual environment.
NPM := PATH="$(CURDIR)/$(VENV)/node:$$PATH" npm --prefix frontend

PACKAGES := $(VENV)/.packages
NODE := $(VENV)/.node
MODULES := frontend/node_modules/.modules
DIST := frontend/dist/index.html
DIST_SOURCES := $(shell find frontend -type f -not -path '*/node_modules/*' -not -path '*/dist/*' -not -path '*/.*')
# What failed is tried once more by itself: browsers, servers and clocks of many tests at once starve one another on a
# small machine. Both runs are on screen, and what fails alone too has failed.
AGAIN := echo "What failed, once more and alone" && $(BIN)/python -m pytest --last-failed --last-failed-no-failures=none
BENCHES := layer train index browse generate

.DEFAULT_GOAL := help
.PHONY: help demo test check fuzz bench install docs wheel generate pins clean

help:
	@echo "make demo      open the dashboard on the shipped run"
	@echo "make test      Python tests, browser tests, front-end tests (PYTEST='-k steering' to choose)"
	@echo "make check     lint, formatting, types, import directions, generated files"
	@echo "make fuzz      hostile input and properties, 1000 examples of each kind (EXAMPLES=100 for fewer)"
	@echo "make bench     speed and memory, as ratios taken in one run"
	@echo "make install   the environment and the built front end, nothing else"
	@echo "make docs      the site of docs, in site"
	@echo "make wheel     a wheel with the built front end and the sample inside, in dist"
	@echo "make generate  openapi.json and the front end's types, from the server"
	@echo "make pins      constraints.txt, from what is installed"
	@echo "make clean     remove all that the others made"

# ---------------------------------------------------------------- environment

install: $(PACKAGES) $(DIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with PYTHON=, for example make demo PYTHON=python3.12"; exit 1; }
	@echo "Making a Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# torch comes first and alone, so that pip takes a CPU build where the machine offers one.
$(PACKAGES): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing $(TORCH)"
	@$(PIP) '$(TORCH)'
	@echo "Installing the other Python packages, about a minute"
	@$(PIP) -c constraints.txt -e '.[dev,docs]'
	@touch $@

$(NODE): scripts/node.sh | $(BIN)/python
	@bash scripts/node.sh $(VENV)
	@touch $@

$(MODULES): frontend/package.json frontend/package-lock.json | $(NODE)
	@echo "Installing the front end's packages"
	@$(NPM) ci --loglevel=error --no-audit --no-fund --no-progress >/dev/null
	@touch $@

$(DIST): $(MODULES) $(DIST_SOURCES)
	@echo "Building the front end"
	@$(NPM) run --silent build -- --logLevel warn
	@touch $@

# ---------------------------------------------------------------- use

demo: install
	@$(BIN)/mxd demo

test: install
	@bash scripts/browser.sh
	@bash scripts/postgresql.sh
	@echo "Python and browser tests"
	@$(BIN)/python -m pytest $(PYTEST) || { test $$? = 1 && $(AGAIN); }
	@echo "Front-end tests"
	@$(NPM) run --silent test

check: install
	@echo "Lint and formatting"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@echo "Python types"
	@$(BIN)/mypy
	@echo "Import directions"
	@$(BIN)/lint-imports
	@echo "Front-end types and lint"
	@$(NPM) run --silent typecheck
	@$(NPM) run --silent lint
	@echo "Generated files"
	@$(BIN)/python -m backend.openapi | diff frontend/openapi.json - >/dev/null \
		|| { echo "frontend/openapi.json is not what the server says; run make generate"; exit 1; }
	@$(NPM) run --silent generate -- --check \
		|| { echo "frontend/src/api/schema.d.ts is not what openapi.json says; run make generate"; exit 1; }

# Whatever strangers may send or hand over, much more of it than in make test, and other things each time.
fuzz: $(PACKAGES)
	@FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q tests/backend/fuzz tests/trainer/fuzz
	@FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q -m hypothesis --ignore-glob '*/fuzz/*'

bench: install
	@for name in $(BENCHES); do $(BIN)/mxd bench $$name || exit 1; done

# Its theme says at length that it has a successor.
docs: $(PACKAGES)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "In site: index.html"

# build would hand on modules that are no longer there.
wheel: $(PACKAGES) $(DIST)
	@rm -rf build
	@$(BIN)/python -m pip wheel . -qq --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist
	@echo "In dist: $$(ls -t dist | head -1)"

generate: $(PACKAGES) $(MODULES)
	@$(BIN)/python -m backend.openapi > frontend/openapi.json
	@$(NPM) run --silent generate

pins: $(PACKAGES)
	@bash scripts/pins.sh $(BIN) > constraints.new && mv constraints.new constraints.txt

clean:
	@rm -rf $(VENV) frontend/node_modules frontend/dist build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis *.egg-info
