# kafka-journal: everything a user or a developer runs, from a bare machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.DEFAULT_GOAL := help

help:  ## what there is to make
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.needs:
	@command -v $(PYTHON) >/dev/null || { echo "make: Python 3.11 or newer is missing: install it or name one with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: Python 3.11 or newer is needed, name one with PYTHON=" >&2; exit 1; }
	@command -v "$(JAVA)" >/dev/null || { echo "make: Java 17 or newer is missing, there is no $(JAVA): install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; }
	@version=$$("$(JAVA)" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p'); \
		[ "$${version:-0}" -ge 17 ] || { echo "make: $(JAVA) is Java $${version:-of no known version}: Java 17 or newer is needed: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; }

$(VENV)/.done: pyproject.toml requirements.txt | .needs
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable '.[dev,demo,spark]'
	@touch $@

venv: $(VENV)/.done  ## the virtual environment with pinned versions

.PHONY: help venv .needs

up: venv  ## an embedded broker, a journal and a worker, until Ctrl-C
	$(BIN)/kafka-journal up

check: venv  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# hundreds of processes import this project: none is to compile it again, whatever the environment says
test: export PYTHONDONTWRITEBYTECODE =
test: venv  ## all tests against real Kafka, from a bare machine
	$(BIN)/pytest -n 4 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder --durations=40

dist: venv  ## the wheel and source archive, under dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:  ## what the build made, not the Kafka cache
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: up check test dist clean

PROTOS := journal/v1/journal.proto journal/v1/store.proto

proto: venv  ## generate the protobuf modules and the descriptor set from journal/v1/*.proto
	$(BIN)/python -m grpc_tools.protoc -I. --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --python_out=. \
		--mypy_out=quiet:. --include_imports --descriptor_set_out=journal/v1/journal.desc $(PROTOS)

.PHONY: proto

model: venv  ## the fencing model, every bound and every removal (about 6 minutes)
	$(BIN)/python -m tests.model

.PHONY: model

demo: venv  ## a year of real flights through the journal, with a failover half way (about 4 minutes)
	$(BIN)/kafka-journal demo

.PHONY: demo

bench: venv  ## every bench; results under bench/results/
	$(BIN)/python -m bench.report

.PHONY: bench

SEEDS ?= 20000
SEED ?= 0

simulate: venv  ## the simulation, SEEDS seeds from SEED on (20000 take about 10 minutes)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --seed $(SEED)

.PHONY: simulate

SECONDS ?= 3600

LONG_TESTS := tests/chaos tests/integration/test_routes_kills.py tests/integration/test_sources_kills.py \
	tests/integration/spark/test_analytics.py

chaos: venv  ## the long fault tests, the matrix of endings (1 to 3 hours), a mix of faults for SECONDS (default an hour)
	KAFKA_JOURNAL_TEST_LONG=1 $(BIN)/pytest $(LONG_TESTS)
	$(BIN)/python -m tests.chaos --matrix
	$(BIN)/python -m tests.chaos --seconds $(SECONDS)

.PHONY: chaos
