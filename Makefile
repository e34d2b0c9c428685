# README's two commands are `make demo` and `make test`; both need only Python.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
EXTRAS ?= dev
# Written last: a half-made environment has no stamp and is made again.
STAMP = $(VENV)/.installed-$(EXTRAS)

# One process a core; a file of tests stays together. A test that kills its process
# is tried again in a new one, but not for ever.
PARALLEL ?= -n 2 --dist loadfile --max-worker-restart=2

export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: demo docs test test-full test-gpu test-floor test-colab test-newest reproduce notebooks stubs lint types coverage format install clean

install: $(STAMP)

$(STAMP): setup.cfg setup.py pyproject.toml
	@$(BIN)/python -c "import pip" 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRAS)]"
	@if $(BIN)/python -c "import sys; sys.exit(sys.version_info >= (3, 12))"; then \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check tf-keras && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps tensorflow-privacy==0.9.0; \
	fi
	@touch $@

demo: $(STAMP)
	$(BIN)/keras-dp train --dataset digits --output-dir runs/demo --overwrite

# $(call run_tests,folder of python,which of them). Replicas of one process wait for each
# other: they get a process where nothing else has run.
define run_tests
	$(1)/python -m pytest -m "$(2)not replicas" $(PARALLEL)
	$(1)/python -m pytest -m "$(2)replicas"
endef

test: $(STAMP)
	$(call run_tests,$(BIN),not slow and )

test-full: export HYPOTHESIS_PROFILE = search
test-full: $(STAMP)
	$(call run_tests,$(BIN),)

# Skipped, with the reason, where there is no GPU.
test-gpu: $(STAMP)
	$(BIN)/python -m pytest tests/gpu -rs

# The tests with other versions, each in an environment of its own. None has TensorFlow
# Privacy to compare with. docs/new_versions.md says when to move the ends.
PYTHON_floor = 3.10
# Later metadata of TensorFlow Datasets want a protobuf that TensorFlow 2.18 does not.
PACKAGES_floor = "tensorflow==2.18.0" "keras==3.10.0" "tensorflow-metadata<1.18"
# What Colab has.
PYTHON_colab = 3.13
PACKAGES_colab = "tensorflow==2.20.*" "keras==3.13.2" "numpy==2.1.*"
# The newest of all, also those that setup.cfg does not allow yet.
PYTHON_newest = 3.13
UPGRADES_newest = tensorflow keras
test-newest: export KERAS_DP_EXT_UNTESTED_VERSIONS = 1

# $(call find_python,3.13): from the path, or from pyenv.
find_python = $(shell python$(1) -c "import sys; print(sys.executable)" 2>/dev/null \
  || ls -d "$$(pyenv root 2>/dev/null)"/versions/$(1).*/bin/python$(1) 2>/dev/null | tail -1)

test-floor test-colab test-newest: test-%: .venv-%/.installed
	$(call run_tests,.venv-$*/bin,not slow and )

.venv-%/.installed: setup.cfg setup.py pyproject.toml
	@.venv-$*/bin/python -c "import pip" 2>/dev/null \
	  || $(call find_python,$(PYTHON_$*)) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(PACKAGES_$*) -e ".[dev]"
	$(if $(UPGRADES_$*),.venv-$*/bin/python -m pip install --quiet \
	  --disable-pip-version-check --upgrade --pre $(UPGRADES_$*))
	@touch $@

# Figures of the papers in fast mode; data sets from $KERAS_DP_DATA if it is set.
reproduce: $(STAMP)
	$(BIN)/python -m benchmarks.papers.run_all --output-dir runs/papers

# The outputs that are kept in the notebooks; data sets from $KERAS_DP_DATA if it is set.
notebooks: $(STAMP)
	$(BIN)/python notebooks/execute.py

# The site, in build/site; warnings are errors.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Written to build/site/index.html"

stubs: $(STAMP)
	$(BIN)/python -m tools.stubs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/python -m mypy

# Which lines the tests run; the figures go into CONTRIBUTING.md.
# `make coverage TESTS=tests/accounting` for a part of them.
TESTS ?= tests
coverage: $(STAMP)
	$(BIN)/python -m pytest $(TESTS) -m "not slow and not replicas" $(PARALLEL) \
	  --cov=keras_dp_ext --cov-branch --cov-report=term:skip-covered \
	  --cov-report=html:runs/coverage --cov-report=json:runs/coverage.json
	$(if $(filter tests,$(TESTS)),$(BIN)/python -m tools.coverage_figure)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-floor .venv-colab .venv-newest build dist *.egg-info
