# Everything that is done to this repository by hand, by name. `make` alone lists it.

# python3.11 where it runs (a version manager may leave a stub that does not), else python3.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN := .venv/bin
READY := .venv/ready
# Nine that take a minute together; the whole zoo takes several.
DEMO_MODELS ?= alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512
# A seed and a number make one damaged model, always the same.
CASES ?= 10000
SEED ?= 0
WORKERS ?= auto

# Tests start hundreds of processes: what Python compiles is kept, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo paper test test-all docs conformance wild exports values fuzz mutations notebooks commands check lint format lock models programs learned zoo-check clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 13

setup: $(READY) ## the environment in .venv, with .venv/bin/bricks

# The stamp is written last: an installation that was interrupted is done again.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q bricks  # so that the first answer is as fast as the next
	@touch $@

demo: setup ## estimates against whole-model runs on the shipped models
	$(BIN)/bricks compare $(DEMO_MODELS)

# An interrupted run goes on; remove the cache to measure anew. PAPER adds options, such as --quick.
paper: setup ## the DLBricks paper's evaluation over again, an hour or two on a quiet host: research/paper.md
	$(BIN)/python -m benchmarks paper --cache cache/paper $(PAPER)

# Side by side, as many as there are cores; WORKERS=1: one by one.
test: setup ## the quick tests: every law and command, within five minutes on two cores
	$(BIN)/python -m pytest -m "not slow" --numprocesses $(WORKERS) --dist loadscope

test-all: setup ## all tests: every runtime, operator, model and page, kills, browser; 25 minutes
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadscope
	$(BIN)/python tests/support/pages.py  # pages whose commands have passed are quick until changed

docs: setup ## the documentation as a site, to be read without a network: docs/_build/html/index.html
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet docs docs/_build/html

conformance: setup ## the test cases of the onnx package decomposed, chained, measured: research/conformance.md
	$(BIN)/python tools/conformance.py

wild: setup ## trained models from packages on PyPI, against full runs: research/conformance.md, ten minutes
	$(BIN)/python tools/wild.py

exports: setup ## models exported from PyTorch, against full runs: research/conformance.md, five minutes
	$(BIN)/python tools/exports.py

values: setup ## random models whose time depends on values, against full runs: research/conformance.md
	$(BIN)/python tools/values.py

fuzz: setup ## damaged models through all that commands do (CASES=10000, SEED=0): research/fuzz.json
	$(BIN)/python tools/fuzzing.py --cases $(CASES) --seed $(SEED) --json research/fuzz.json

# MUTATIONS narrows them down, by words of files and laws.
mutations: setup ## laws of the package broken on purpose, one at a time: which tier of tests notices
	$(BIN)/python tools/mutations.py $(MUTATIONS)

notebooks: setup ## run the notebooks from top to bottom on a quiet machine, and keep what they show
	$(BIN)/python notebooks/execute.py

commands: setup ## the pages of --help: docs/commands.md
	$(BIN)/python docs/write_commands.py

# What Hypothesis draws is the same on every host then: a change fails by itself, not by chance.
check: export CI := true
check: lint test ## lint, types and the quick tests: what CI runs

lint: setup ## style, formatting and types, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Not a prerequisite of setup: versions move only when somebody asks for it. pip-compile has an
# environment of its own, so that what it needs is not in the lock. It finds packages the way pip
# is set up to, and writes nothing of that into the lock.
lock: ## resolve pyproject.toml into requirements.lock again (UPGRADE=1: newest versions)
	$(PYTHON) -m venv .venv/lock
	.venv/lock/bin/python -m pip install --quiet --disable-pip-version-check 'pip-tools>=7.4'
	.venv/lock/bin/pip-compile --quiet $(if $(UPGRADE),--upgrade) --generate-hashes --allow-unsafe \
		--all-extras --all-build-deps --strip-extras --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
		--output-file requirements.lock pyproject.toml > /dev/null
	.venv/lock/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo "The recipes' environments are for Python 3.11: make lock PYTHON=python3.11"; exit 1; }
	$(call lock,models/recipes/requirements-mxnet,--no-allow-unsafe --unsafe-package opencv-python)
	$(call lock,models/recipes/requirements-torch,--allow-unsafe)
	$(call lock,bricks/backends/mxnet/requirements,--allow-unsafe)
	$(call lock,bricks/backends/torch/requirements,--allow-unsafe)
	$(call lock,bricks/backends/openvino/requirements,--allow-unsafe)
	rm -rf .venv/lock

# $(call lock,FILES,OPTIONS): a local version (+cpu) is what was found here, not asked for
define lock
.venv/lock/bin/pip-compile --quiet $(if $(UPGRADE),--upgrade) --generate-hashes $(2) \
		--strip-extras --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
		--output-file $(1).lock $(1).in > /dev/null
	sed -i -E 's/^([a-z0-9-]+==[0-9.]+)\+[a-z0-9]+/\1/' $(1).lock
endef

# Exporters cannot share an environment with bricks, nor with each other: bricks makes them.
MODELS ?= --recipe onnx_light
models: setup ## rebuild the zoo from its recipes (MODELS=--all: those of PyTorch and MXNet too)
	$(BIN)/bricks zoo build $(MODELS)
	$(BIN)/python models/recipes/readme.py

programs: setup ## record the zoo's PyTorch programs again (PROGRAMS: functions, --replace)
	$(BIN)/python tools/record_programs.py $(PROGRAMS)

learned: setup ## learn from the published measurements again, after a change of the predictor
	$(BIN)/python tools/learn_published.py

zoo-check: setup ## decompose, chain and measure every model of the zoo: research/zoo.json
	$(BIN)/python tools/zoo_check.py

clean: ## remove the environment and what tools left behind; the cache stays
	rm -rf .venv dist build docs/_build docs/project .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
