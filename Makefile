# make run    install into .venv, train the default model on the embedded Cora
# make test   install into .venv, run the tests
# make lint   install into .venv, check style, types and the direction of imports
# make docs   install into .venv, build the site into build/site, run every code block of the documents
# make clean  remove .venv and what tools leave behind

PYTHON ?= python3
VENV   := .venv
# two processes, each with one thread of torch; tests/conftest.py says which tests go together
PYTEST ?= -n 2
# threads that wait sleep: spinning ones slow everything down where cores are shared
export OMP_WAIT_POLICY ?= PASSIVE
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test lint docs clean

run: $(VENV)/.run
	$(BIN)/grand train

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs
	$(BIN)/python docs/make_tables.py --check
	$(BIN)/sphinx-build -b html -E -a -q -W --keep-going -n -d build/doctrees docs build/site
	$(BIN)/python docs/tools/check_site.py build/site
	$(BIN)/python docs/tools/run_blocks.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# a stamp for each set of packages: installed again only when the files that name them change
$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.run

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.test $(VENV)/.run

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.test $(VENV)/.run

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found: install Python 3.11 or later, or name one: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version) is too old: Python 3.11 or later is needed. Name another: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv: install it (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
