# Everything runs from a virtual environment that `make` builds from constraints.txt.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# what to type after a demo; the commands are in the virtual environment only
NEXT = 'To look at it (the first line once a terminal):' '  source $(BIN)/activate' '  ragen runs' \
  '  ragen report RUN' '  ragen show RUN --worst' '  ragen eval RUN --samples 4' "  $(BIN)/pip install -c constraints.txt -e '.[plots]' && ragen plot RUN"

.PHONY: help setup setup-dev demo demo-frozen-lake check test test-full docs clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 20

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ragen needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what RAGEN needs into $(VENV): PyTorch and transformers are large, so this takes minutes."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing RAGEN and its developers' tools into $(VENV): this takes minutes."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.user

setup: $(VENV)/.user  ## install what users need

setup-dev: $(VENV)/.dev  ## install what developers need

demo: $(VENV)/.user  ## train SmolLM2-135M on the bandit: about 4 minutes on 2 CPU cores
	$(BIN)/ragen train bandit-starpo-s-grpo-small
	@printf '%s\n' '' $(NEXT)

demo-frozen-lake: $(VENV)/.user  ## the multi-turn demo, on held-out maps
	$(BIN)/ragen train frozen_lake-starpo-s-grpo-small
	@printf '%s\n' '' $(NEXT)

check: $(VENV)/.dev  ## lint, format, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: check  ## check, then the tests (all but those that only test-full runs)
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not full and not gpu"

test-full: check  ## also what needs root, large packages or a browser (Debian: apt-get install chromium)
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not gpu" --hypothesis-profile=new

docs: $(VENV)/.dev  ## regenerate the generated tables of docs/
	$(BIN)/python scripts/tables.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache build
