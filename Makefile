# `make demo` and `make test` set everything up by themselves; Python 3.11 or later is all they need.

PYTHON ?= python3
WORKERS ?= auto
VENV := .venv
BIN := $(VENV)/bin
KERNEL := $(wildcard src/trimtab/matching/kernel/*.c src/trimtab/matching/kernel/*.h)
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak fuzz docs format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.project-installed ## make .venv and install the locked dependencies and the project

demo: setup ## show a network that levels itself, with channels on Spark, for about two minutes
	@$(BIN)/python -m trimtab demo --out build/demo
	@echo "The command is $(BIN)/trimtab here; after '. $(BIN)/activate' it is just trimtab. A short tour of its parts: $(BIN)/trimtab tour"

test: setup ## run every check: ruff, mypy, import rules, documentation, tests and doctests
	@echo "== ruff check"
	@$(BIN)/ruff check .
	@echo "== ruff format"
	@$(BIN)/ruff format --check .
	@echo "== mypy"
	@$(BIN)/mypy
	@echo "== import rules"
	@$(BIN)/lint-imports --no-logo
	@echo "== documentation"
	@$(MAKE) --no-print-directory docs
	@echo "== tests and doctests"
	@$(BIN)/pytest -q -n $(WORKERS)

soak: setup ## run what takes long: every command of the documentation, and random runs without end afterwards
	@$(BIN)/pytest -q -m long
	@$(MAKE) --no-print-directory fuzz

fuzz: setup ## run random networks on all cores until Ctrl-C; what breaks a promise is kept in build/fuzz
	@$(BIN)/python -m trimtab sim fuzz --endless --with replication --jobs 0 --out build/fuzz

docs: setup ## build the documentation as a site, build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: setup ## put the code into its standard form
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lock: ## refresh requirements.lock (UPGRADE=1 takes the newest versions)
	@test -x .venv-lock/bin/uv || { \
	    echo "Installing uv, which resolves the dependencies, into .venv-lock ..."; \
	    $(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install -qq --disable-pip-version-check uv; }
	@echo "Resolving the dependencies of trimtab[active,dev,docs,lab,secure] ..."
	@.venv-lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 \
	    --extra active --extra dev --extra docs --extra lab --extra secure --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	    $(if $(UPGRADE),--upgrade) --output-file requirements.lock
	@if grep -nE '://|^ *(-i|-f|--(extra-)?index-url|--find-links)|(^|[ @])/' requirements.lock; then \
	    echo "requirements.lock names an address or a path (above); it must not."; exit 1; fi
	@echo "requirements.lock is up to date."

clean: ## remove the environment, caches and everything that was built
	rm -rf $(VENV) .venv-lock build dist src/*.egg-info .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache src/trimtab/matching/_kernel*.so
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.environment-made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Trimtab needs Python 3.11 or later, and '$(PYTHON)' is not that:"; $(PYTHON) --version; \
	    echo "Name another one, for example: make setup PYTHON=python3.12"; exit 1; }
	@echo "Making the environment $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv --clear $(VENV) || { \
	    echo "'$(PYTHON)' could not make an environment. On Debian and Ubuntu, install the package python3-venv."; exit 1; }
	@touch $@

$(VENV)/.dependencies-installed: $(VENV)/.environment-made requirements.lock
	@echo "Installing the locked dependencies, Spark and a Java for it among them (a minute or so; longer if all must be fetched) ..."
	@$(PIP_INSTALL) --require-hashes --requirement requirements.lock
	@touch $@

$(VENV)/.project-installed: $(VENV)/.dependencies-installed pyproject.toml setup.py $(KERNEL)
	@echo "Building and installing trimtab ..."
	@rm -f src/trimtab/matching/_kernel*.so
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@if test -n "$(KERNEL)" && ! ls src/trimtab/matching/_kernel*.so >/dev/null 2>&1; then \
	    echo "Note: the compiled matching kernel could not be built (is there a C compiler, and the Python headers?)."; \
	    echo "      Trimtab works without it, but matches more slowly."; fi
	@touch $@
	@echo "Ready: $(BIN)/trimtab"
