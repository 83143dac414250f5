# The front door. `make demo` and `make test` work on a fresh machine; both use the same .venv, install
# only what is missing, and install again when pyproject.toml or constraints-dev.txt changes.
#
#   .made ──> .light              infeed and the four packages it needs      (make demo)
#     └─────> .torch ──> .full    torch first and alone, then everything     (all the rest)

VENV   := .venv
PYTHON ?=
ARGS   ?=

BIN    := $(VENV)/bin
PINS   := constraints-dev.txt
TORCH  := $(shell grep '^torch==' $(PINS))
PIP    := $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check -c $(PINS)

export PYTHON

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format bench soak clean distclean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile
	@echo 'PYTHON=... names the Python to build .venv with; ARGS=... is handed on by demo, test, bench and soak.'

setup: $(VENV)/.full  ## build all of .venv: torch, benchmarks, tests

demo: $(VENV)/.light  ## light install, then show what infeed gains
	@$(BIN)/infeed demo $(ARGS)

test: lint  ## ruff, mypy, every test and doctest but the soak tests
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.full  ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.full  ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.full  ## compare with other loaders: a table and a PNG
	$(BIN)/python -m benchmarks.run $(ARGS)

soak: $(VENV)/.full  ## the tests that run for minutes
	$(BIN)/python -m pytest -m soak --timeout=3600 -o faulthandler_timeout=1800 $(ARGS)

clean:  ## remove caches and build outputs, keep .venv
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean  ## remove .venv too
	rm -rf $(VENV)

$(VENV)/.made:
	@tools/make-venv $(VENV)
	@touch $@

$(VENV)/.light: pyproject.toml $(PINS) $(VENV)/.made
	@echo 'infeed: light install into $(VENV)'
	@$(PIP) -e .
	@touch $@

$(VENV)/.torch: $(PINS) $(VENV)/.made
	@echo 'infeed: installing $(TORCH) into $(VENV)'
	@$(PIP) $(TORCH)
	@touch $@

$(VENV)/.full: pyproject.toml $(PINS) $(VENV)/.torch
	@echo 'infeed: installing everything else into $(VENV)'
	@$(PIP) -e '.[torch,images,bench,dev]'
	@touch $(VENV)/.light $@
