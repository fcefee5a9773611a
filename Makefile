# The two commands: `make train` and `make test`. Each sets up what it needs in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c requirements/constraints.txt
# one more than cores: many tests wait for processes that they have started
JOBS ?= $(shell echo $$(($$(nproc) + 1)))
BROWSER := chromium chromium-driver
GODOT := godot3-server godot3 xvfb

# Programs of the system, by their names and those of Debian's packages. Where they cannot be installed the tests that
# need them are skipped (in CI they fail).
system = which $(1) > /dev/null || { \
		test "$$(id -u)" = 0 && which apt-get > /dev/null && echo "Installing $(2)" && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(2) > /dev/null; \
	} || echo "Tests that need it are skipped: sudo apt install $(2)"

.PHONY: help train test test-learning test-kernels lint format setup setup-suites setup-browser setup-godot wheel-check bench clean

help:
	@echo "make train          set up and train the default agent"
	@echo "make test           set up every suite and run the tests"
	@echo "make test-learning  the tests that train for minutes"
	@echo "make test-kernels   the kernels for GPUs, played on a CPU by Triton's interpreter"
	@echo "make lint           ruff and mypy"
	@echo "make setup-suites   install every environment suite"
	@echo "make wheel-check    build the wheel, install it by itself and train from it"
	@echo "make bench          compare speed with other implementations"

train: $(VENV)/.ready
	@$(BIN)/reverie train $(ARGS)

# threads that stay awake while they wait would take the cores from the tests beside them
test: $(VENV)/.suites setup-browser setup-godot
	@OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

test-learning: $(VENV)/.suites setup-godot
	@$(BIN)/python -m pytest -m learning -n 1

# Triton lies in a folder of its own, since torch behaves otherwise where it finds it.
KERNELS := tests/agents/test_dreaming.py tests/nn/test_gru_kernels.py tests/nn/test_patches.py

test-kernels: $(VENV)/.suites $(VENV)/triton/.ready
	@PYTHONPATH=$(VENV)/triton TRITON_INTERPRET=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n $(JOBS) $(KERNELS)

$(VENV)/triton/.ready: requirements/kernels.txt $(VENV)/.ready
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target $(@D) -r $<
	@touch $@

lint: $(VENV)/.suites
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.suites
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

setup: $(VENV)/.ready
setup-suites: $(VENV)/.suites setup-godot

$(VENV)/.ready: pyproject.toml requirements/constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "Reverie needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	@echo "Setting up $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/.suites: $(VENV)/.ready requirements/mario.txt
	@echo "Installing every environment suite (once; a few minutes)"
	@$(PIP) -e ".[suites,dev]"
	@$(PIP) --no-deps -r requirements/mario.txt
	@touch $@

# The page of dreams is tested in a real browser.
setup-browser:
	@$(call system,chromium chromedriver,$(BROWSER))

# The server plays, the other draws its camera on a display that nobody sees.
setup-godot:
	@$(call system,godot3-server godot3 Xvfb,$(GODOT))

# What users without a checkout get: a wheel, in an environment of its own, from which training works.
wheel-check:
	@PYTHON="$(PYTHON)" .ci/wheel

bench: $(VENV)/.suites
	@$(PIP) -r requirements/bench.txt
	@$(BIN)/python benchmarks/cartpole.py
	@$(BIN)/python benchmarks/pong.py
	@$(BIN)/python benchmarks/mario_update.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info
