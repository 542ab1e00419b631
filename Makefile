# make demo    install into .venv and run the demonstration
# make test    install with the development tools and run the tests of the library and the command line
# make check   formatting, lint, types, the order of imports, and tests of the project: examples in docstrings and pages,
#              packaging, public names, recipes for contributors, tools of the benchmarks
# make docs    run the tutorials and the examples with programs of others, and build the documentation site in docs/_build/html
# make bench   speed, as ratios measured in one run

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

ifneq ($(shell command -v uv 2>/dev/null),)
NEW_VENV = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL = $(if $(PIP_FIND_LINKS),UV_FIND_LINKS=$(PIP_FIND_LINKS)) uv pip install --quiet --python $(BIN)/python -c constraints.txt
else
NEW_VENV = $(PYTHON) -m venv $(VENV)
INSTALL = $(BIN)/python -m pip install --quiet -c constraints.txt
endif

.PHONY: demo test check docs bench clean

demo: $(VENV)/.core
	$(BIN)/curvae demo

test: $(VENV)/.dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --ignore tests/project

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n 0 --doctest-modules src/curvae
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest tests/project

docs: $(VENV)/.docs
	$(BIN)/python -m pytest -m docs tests/project
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d docs/_build/doctrees docs docs/_build/html

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(NEW_VENV)
	$(INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.core

$(VENV)/.docs: $(VENV)/.dev
	$(INSTALL) -e ".[docs]"
	@touch $@

# Peers that do not install are left out of the table.
$(VENV)/.bench: $(VENV)/.dev
	-$(INSTALL) pythae
	@touch $@
