# Every target does its own set-up on a fresh clone; a second run installs nothing unless pyproject.toml or
# constraints.txt changed. PYTHON names the interpreter the environment is made from.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp
ROOMS := data engine policy training

# One compute thread: the suite's tiny models are slower with more, and results do not depend on the machine's cores.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint typecheck rooms bench format core wheel clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# torch goes first and alone, so that one slow download is not repeated when a later step fails. The package index
# gives Linux a CUDA build; without a GPU a user may set
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu to get the much smaller CPU build of the same version.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "treewise needs Python 3.11 or newer")'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

install: $(STAMP) ## make .venv and install the checkout into it

demo: $(STAMP) ## the main job, end to end, on a real pair
	$(BIN)/treewise demo

test: $(STAMP) ## the test suite, without the benchmarks, a process for each core
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --dist loadfile --ignore=tests/bench -m "not bench" $(ARGS)

check: lint typecheck rooms ## linters, types and the rooms' imports

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Type checkers do not follow the editable install's import hook, so the rooms are laid out as the package they form.
typecheck: $(STAMP) ## mypy --strict over source and tests
	mkdir -p .typing/treewise
	find .typing -xtype l -delete
	for path in treewise/[!_]* treewise/__[im]*.py; do ln -sfn ../../$$path .typing/$$path; done
	for room in $(ROOMS); do ln -sfn ../../$$room .typing/treewise/$$room; done
	ln -sfn ../tests .typing/tests
	cd .typing && ../$(BIN)/mypy --config-file ../pyproject.toml -p treewise -p tests

rooms: $(STAMP)
	$(TEST_ENV) $(BIN)/python -m pytest -q tests/house/test_floors.py tests/house/test_packages.py

# ARGS go to the first command, and of them only --quick to the second, which has COMPARE_ARGS of its own.
bench: $(STAMP) ## text equality, shares of time, and transformers beside us, on the real pair
	$(TEST_ENV) $(BIN)/treewise bench $(ARGS)
	$(BIN)/treewise compare $(filter --quick,$(ARGS)) $(COMPARE_ARGS)
	if [ -d tests/bench ]; then $(TEST_ENV) $(BIN)/python -m pytest -m bench tests/bench; fi

format: $(STAMP) ## rewrite the sources in the house's form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Nothing but what import needs, in an environment that was empty: someone else's loop without torch.
core: ## install the core alone into build/core and run the examples there
	rm -rf build/core
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	build/core/bin/python -c 'from importlib.util import find_spec; \
		assert not any(map(find_spec, ("torch", "transformers", "onnxruntime", "lightgbm")))'
	for example in examples/*_loop.py; do $(TEST_ENV) build/core/bin/python -W error $$example || exit 1; done

wheel: $(STAMP) ## build the wheel into dist/
	rm -rf build
	$(BIN)/python -m build --wheel

clean: ## remove caches and build results, keep .venv
	rm -rf build dist .typing .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
