# Everything that a user or a developer of kafka-journal runs, from a bare machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.DEFAULT_GOAL := help

help:  ## lists these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.needs:
	@command -v $(PYTHON) >/dev/null || { echo "make: Python 3.11 or newer is missing: install it or name one with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $$($(PYTHON) --version) is too old: Python 3.11 or newer is needed, name one with PYTHON=" >&2; exit 1; }
	@command -v "$(JAVA)" >/dev/null || { echo "make: Java 17 or newer is missing, there is no $(JAVA): install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; }
	@version=$$("$(JAVA)" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p'); \
		[ "$${version:-0}" -ge 17 ] || { echo "make: $(JAVA) is Java $${version:-of no known version}: Java 17 or newer is needed: install it (Debian: openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; }

$(VENV)/.done: pyproject.toml requirements.txt | .needs
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint requirements.txt --editable '.[dev,demo,spark,connect]'
	@touch $@

venv: $(VENV)/.done  ## creates the virtual environment with pinned versions

.PHONY: help venv .needs

up: venv  ## runs a broker until Ctrl-C: embedded Kafka, a journal, its worker, AMQP on 127.0.0.1:5672
	$(BIN)/kafka-journal up

check: venv  ## checks style and types (ruff, mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Hundreds of processes import this project, so compiled modules are kept, whatever the environment says.
test: export PYTHONDONTWRITEBYTECODE =
test: venv  ## runs all tests, against real Kafka
	$(BIN)/pytest -n 4 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder --durations=40

extras: venv  ## installs each extra by the ranges of pyproject.toml in an empty environment, and checks it
	$(BIN)/python -m tests.extras

dist: venv  ## builds the wheel and the source archive, under dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:  ## deletes what make has built, but not the cache of Kafka
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: up check test extras dist clean

PROTOS := journal/v1/journal.proto journal/v1/store.proto

proto: venv  ## generates the protobuf modules and the descriptor set from journal/v1/*.proto
	$(BIN)/python -m grpc_tools.protoc -I. --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy --python_out=. \
		--mypy_out=quiet:. --include_imports --descriptor_set_out=journal/v1/journal.desc $(PROTOS)

.PHONY: proto

model: venv  ## explores the model of fencing, with each safeguard removed in turn, too (about 6 minutes)
	$(BIN)/python -m tests.model

.PHONY: model

demo: venv  ## sends a year of flights through a journal, with a failover in the middle (about 4 minutes)
	$(BIN)/kafka-journal demo

.PHONY: demo

bench: venv  ## runs every bench; results go to bench/results/
	$(BIN)/python -m bench.report

.PHONY: bench

SEEDS ?= 20000
SEED ?= 0

simulate: venv  ## runs the simulation with SEEDS seeds from SEED on (20000 take about 50 minutes of two cores)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --seed $(SEED)

.PHONY: simulate

SECONDS ?= 3600

LONG_TESTS := tests/chaos tests/integration/test_routes_kills.py tests/integration/test_sources_kills.py \
	tests/integration/test_xa_postgres.py tests/integration/spark/test_analytics.py

chaos: venv  ## runs the long fault tests (1 to 3 hours), then a mix of faults for SECONDS (default: an hour)
	KAFKA_JOURNAL_TEST_LONG=1 $(BIN)/pytest $(LONG_TESTS)
	$(BIN)/python -m tests.chaos --matrix
	$(BIN)/python -m tests.chaos --seconds $(SECONDS)

.PHONY: chaos
