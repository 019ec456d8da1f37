# Two commands for a fresh machine with Python and g++:  make run  and  make test
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SOURCES := pyproject.toml constraints.txt

.PHONY: run test lint clean

run: $(VENV)/installed  ## set up, then run the suites: a table, and JUnit XML in .runner/latest/
	$(BIN)/runner run suites/

test: $(VENV)/installed-test  ## set up, then pass the tests
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder tests

lint: $(VENV)/installed-test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python $(SOURCES)
	$(PIP) --editable .
	touch $@

$(VENV)/installed-test: $(BIN)/python $(SOURCES)
	$(PIP) --editable '.[test]'
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .runner .pytest_cache .mypy_cache .ruff_cache build dist
