# `make help` lists the targets. A machine needs make and Python 3.11 or newer; everything else is set up in .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Variables you may set: PYTHON=python3.12, TORCH_INDEX=https://download.pytorch.org/whl/cpu (no CUDA libraries),
# PYTEST="-k store -x" (arguments for pytest), TORCH=2.9.1 (for test-torch-other), REPEAT=5 (for the benchmarks),
# SEEDS=200, FIRST=1, MINUTES=480 (for sim and sim-nightly).
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,\
    $(shell $(name) -c 'import sys; print("$(name)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)))
VENV ?= .venv
TORCH_INDEX ?=
PYTEST ?=
TORCH ?= 2.9.1
REPEAT ?=
SEEDS ?= 200
FIRST ?= $(shell date +%Y%m%d)0000
MINUTES ?= 480

BIN := $(VENV)/bin
READY := $(VENV)/.ready
OTHER := build/venv-torch-$(TORCH)
SOURCES := proto controlplane agent trainer chaos tests bench tools examples

.PHONY: help setup etcd demo test check proto format constraints bench-recovery bench-trainer bench-agent bench-core bench-sim \
    bench-checkpoint bench-checkpoint-storage bench-reproducible bench-swarm bench-classify sim sim-nightly \
    test-frameworks test-thorough test-torch-other clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-24s %s\n", $$1, $$2}'

setup: $(READY) ## Make .venv with everything in it (done once; minutes the first time)

$(READY): pyproject.toml constraints.txt tools/setup_venv.py
	@if [ -z "$(PYTHON)" ]; then \
	    echo "error: no Python 3.11 or newer found; install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; \
	    exit 1; \
	fi
	@$(PYTHON) tools/setup_venv.py --venv $(VENV) --extras dev --torch-index "$(TORCH_INDEX)"
	@touch $@

etcd: ## Install Debian's etcd-server for the tests that need it (as root, where apt has it)
	@tools/install_etcd.sh

demo: setup ## Train on this machine, kill a worker and a node meanwhile, watch it come back
	@$(BIN)/python -m evertrain.chaos.demo

test: setup etcd ## Run the test suite, all but what test-frameworks and test-thorough run
	@$(BIN)/python -m pytest -m "not frameworks and not thorough" $(PYTEST)

test-thorough: setup ## Kill launcher, agent and coordinator at every point of a save, not only at some: some minutes
	@$(BIN)/python -m pytest -m thorough $(PYTEST)

test-frameworks: setup ## Run the tests with Hugging Face Trainer, Lightning and Accelerate: their imports take minutes
	@$(BIN)/python -m pytest -m frameworks $(PYTEST)

check: setup ## Formatting, lint, types, import contracts, generated stubs, tidy limits; tells all that is wrong
	@wrong=(); step() { echo "-- $$*"; "$$@" || wrong+=("$$*"); }; \
	step $(BIN)/ruff format --check . ; \
	step $(BIN)/ruff check --quiet --output-format concise . ; \
	step $(BIN)/mypy ; \
	step $(BIN)/lint-imports --no-logo ; \
	step $(BIN)/python tools/gen_proto.py --check ; \
	step $(BIN)/python -m pytest -q tests/unit/test_tidy.py tests/unit/test_architecture.py ; \
	if [ $${#wrong[@]} -gt 0 ]; then printf 'error: failed: %s\n' "$${wrong[@]}" >&2; exit 1; fi

proto: setup ## Generate the protobuf stubs
	@$(BIN)/python tools/gen_proto.py

format: setup ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

constraints: setup ## Pin what .venv holds now in constraints.txt
	@$(BIN)/python tools/setup_venv.py --venv $(VENV) --freeze

sim: setup ## Play SEEDS=200 seeds of the swarm, then crash at every transition of every scenario
	@$(BIN)/evertrain-sim seeds --count $(SEEDS) --keep build/seeds
	@$(BIN)/evertrain-sim crashes

sim-nightly: setup ## Play seeds from FIRST (the date, if it is not set) for MINUTES=480, keep those that break a promise
	@$(BIN)/evertrain-sim seeds --first $(FIRST) --minutes $(MINUTES) --keep-going --keep build/seeds

bench-recovery: setup ## Time from SIGKILL to the first new step, ours and torchrun's, one JSON line per figure
	@$(BIN)/python -m bench.recovery $(if $(REPEAT),--repeat $(REPEAT))

bench-trainer: setup ## Cost of the trainer library for each step on the healthy path
	@$(BIN)/python -m bench.trainer_overhead

bench-agent: setup ## Memory and processor time of an idle agent
	@$(BIN)/python -m bench.agent_idle

bench-core: setup ## Cost of the core's decisions at 16 to 16,384 nodes
	@$(BIN)/python -m bench.core_step $(if $(REPEAT),--repeat $(REPEAT))

bench-checkpoint-storage: setup ## What digests cost beside the write; how fast a verification reads beside dd
	@$(BIN)/python -m bench.checkpoint_storage $(if $(REPEAT),--repeat $(REPEAT))

bench-reproducible: setup ## Cost of reproducible mode for each step, beside floating-point reduction
	@$(BIN)/python -m bench.reproducible

bench-checkpoint: setup ## What a checkpoint costs a training loop, beside torch's own ways, on tmpfs and on disk
	@$(BIN)/python -m bench.checkpoint $(if $(REPEAT),--repeat $(REPEAT))

bench-classify: setup ## Processor time to classify one incident of 8 to 1,024 ranks
	@$(BIN)/python -m bench.classify $(if $(REPEAT),--repeat $(REPEAT))

bench-swarm: setup ## Wall time of 200 seeds of the swarm in two processes
	@$(BIN)/python -m bench.sim_swarm

bench-sim: setup ## Seconds and memory of a what-if: 54 days of 2,048 and of 16,384 nodes
	@$(BIN)/python -m bench.sim_fleet

test-torch-other: ## Run the launcher's and the trainer's tests with another torch, e.g. TORCH=2.9.1
	@$(PYTHON) tools/setup_venv.py --venv $(OTHER) --extras dev --torch $(TORCH) --torch-index "$(TORCH_INDEX)"
	@$(OTHER)/bin/python -m pytest -m torch $(PYTEST)

clean: ## Remove caches, build results and .venv
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-out bench-out
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
