# Two commands for a fresh machine with Python and g++:  make run  and  make test. The third is of the nightly job:  make nightly
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
SOURCES := pyproject.toml constraints.txt
TESTS ?= tests
# Unit tests that start no worker, without the files that need torch or take long. Single tests that take long have the marker slow.
QUICK := $(addprefix tests/,cases builder session verdict record ledger diagnose reduce report cli) \
         $(filter-out tests/test_hostile_files.py,$(wildcard tests/test_*.py))
LEFT_OUT := $(addprefix tests/,builder/test_runs.py diagnose/test_repro.py reduce/test_minifier.py session/test_plan.py)

.PHONY: run test gate nightly quick lint site clean

run: $(VENV)/installed  ## set up, then run the suites: a table, and JUnit XML in .runner/latest/
	$(BIN)/runner run suites/

test: gate  ## set up, then pass the tests: those of the gate first, so that a failure shows early
	$(PYTEST) -m "not gate and not nightly" tests

gate: $(VENV)/installed-test  ## the first minutes of `make test`: unit tests, the judge, and a part of the commands
	$(PYTEST) -m gate tests

nightly: $(VENV)/installed-test  ## the long tests of which `make test` has a part; TESTS names a part of them
	$(BIN)/python -m pytest -q -n auto --dist load -m nightly $(TESTS)

quick: $(VENV)/installed-test  ## the unit tests that compile nothing, in under a minute on two idle cores
	$(BIN)/python -m pytest -q -n auto --dist loadfile -m "not slow and not nightly" $(QUICK) $(addprefix --ignore=,$(LEFT_OUT))

lint: $(VENV)/installed-test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

site: $(VENV)/installed-docs  ## the pages of docs/ as a site: open build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build  # with --quiet it counts no warnings

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python $(SOURCES)
	$(PIP) --editable '.[torch]'
	touch $@

$(VENV)/installed-test: $(BIN)/python $(SOURCES)
	$(PIP) --editable '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-docs: $(BIN)/python $(SOURCES)
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) .runner .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
