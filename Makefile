# The only commands anyone needs. Every target sets up what it uses; CI calls the same ones.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

# Tests start hundreds of programs: what one has compiled, the next need not compile again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo fmt check quick test coverage interpreted fuzz fuzz-native audit model simulate mutants chaos upgrade kills interop lakehouse object-stores azurite registry rest-catalog debezium browser prometheus frameworks pictures ha-example helm-check image bench docs changelog site dist wheels clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 12

setup: $(VENV)/.installed ## build .venv from nothing with venv and pip

NATIVE := native/setup.py $(foreach kind,py pyx pxd,$(wildcard native/src/pyromq_native/*.$(kind) native/src/pyromq_native/*/*.$(kind)))
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# PyroMQ with Spark, which is all that the demo needs. The compiled core is built while the packages are installed.
$(VENV)/.pyromq: pyproject.toml constraints.txt $(NATIVE)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "PyroMQ needs Python 3.11 or newer; set PYTHON=python3.x")'
	@echo "Installing packages and building the compiled core in $(VENV): one to three minutes, the first time only."
	@$(PYTHON) -m venv $(VENV)
	@{ $(PIP) -e ./native 2> $(VENV)/native.log \
	  || echo "pyromq-native was not built (a C compiler is needed; see $(VENV)/native.log): PyroMQ runs without it, but slower"; } & \
	  $(PIP) -c constraints.txt -e '.[spark]' && wait
	@touch $@

$(VENV)/.installed: $(VENV)/.pyromq
	@echo "Installing the tools for development in $(VENV)."
	@$(PIP) -c constraints.txt -e '.[dev,connect]'
	@touch $@

demo: $(VENV)/.pyromq ## the main job end to end: a cluster, a stream of orders, Spark, and totals that agree to the cent
	$(BIN)/python examples/demo.py

# DIRECTORY keeps its data, PORT is the first of 50 ports.
ha-example: $(VENV)/.pyromq ## high availability, TLS and access control on this machine: two name servers, a controller, three brokers (needs openssl)
	$(BIN)/python deploy/ha/cluster.py $(or $(DIRECTORY),build/ha) --port $(or $(PORT),19700)

fmt: setup ## format the source
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: setup ## lint, formatting, types and the floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The order of sets of strings is part of what a test does; it is the same in every run.
export PYTHONHASHSEED ?= 0

# WORKERS=0 runs the tests one after the other in one process, as a debugger wants it.
WORKERS ?= 2
SHARED  := $(PYTEST) -n $(WORKERS) --dist loadfile
# A few tests that failed beside the others are tried once more, alone, and named.
TWICE   := $(BIN)/python -m tools.second_try -n $(WORKERS)

# Tests sync files all the time. Where memory can hold these files, they need not wait for a disk.
SCRATCH = $(or $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 {print "/dev/shm"}'),/tmp)

IN_SCRATCH = scratch=$$(mktemp -d $(SCRATCH)/pyromq-tests-XXXXXX) && trap "rm -rf $$scratch" EXIT && TMPDIR=$$scratch

quick: setup ## architecture, unit tests and a few examples of the property tests: well under a minute
	$(IN_SCRATCH) $(SHARED) --hypothesis-profile=quick tests/architecture tests/unit tests/property \
	  'tests/simulation/test_seeds.py::test_a_seed_breaks_no_promise[1]' 'tests/simulation/test_seeds.py::test_a_seed_breaks_no_promise[6]'

test: setup ## all checks, then every test that needs nothing but PyPI
	$(MAKE) check
	$(IN_SCRATCH) $(TWICE) --dist loadfile -m 'not interop and not browser and not prometheus and not frameworks' $(TESTS)

# TESTS=tests/integration measures other tests, with the servers that they start, and leaves the figure in CONTRIBUTING.md alone.
coverage: setup ## the share of the source that unit and property tests run; pages in build/coverage, figure in CONTRIBUTING.md
	rm -rf build/coverage && mkdir -p build/coverage
	$(IN_SCRATCH) $(SHARED) -p pytest_cov.plugin --cov --cov-report= --cov-report=html --cov-report=json:build/coverage/figures.json \
	  --hypothesis-profile=quick $(or $(TESTS),tests/unit tests/property)
	$(if $(TESTS),$(BIN)/coverage report --skip-covered --sort=cover,$(BIN)/python -m tools.coverage_figure build/coverage/figures.json)

interpreted: setup ## the tests of what has compiled twins, without them
	$(IN_SCRATCH) PYROMQ_NATIVE=0 $(TWICE) --dist loadfile tests/unit tests/property tests/integration/broker/test_live_sending.py \
	  tests/integration/broker/test_live_pulling.py tests/chaos/test_broker_kills.py

interop: setup ## the same code beside Apache's own servers and clients (needs Java 17, Maven and Maven Central; Go for the tests of its client)
	$(BIN)/python -m tests.support.apache_releases
	$(BIN)/python -m tools.interop_runs $(TESTS)

lakehouse: setup ## our Delta and Iceberg tables in the hands of DuckDB, Polars and Spark's own connectors (needs PyPI and Maven Central)
	$(BIN)/python -m tools.engines
	$(BIN)/python -m tools.lakehouse

object-stores: setup ## pipelines with everything in S3, by Spark's own way there (needs Java 17 and Maven Central; 700 MB)
	$(BIN)/python -m tools.object_stores

azurite: setup ## journals and Delta tables in the emulator of Azure's object store (needs Node.js and npm's registry)
	$(BIN)/python -m tools.azurite

registry: setup ## our registry client and Apicurio's server (needs Java 17, Maven and Maven Central)
	$(BIN)/python -m tools.apicurio

rest-catalog: setup ## Iceberg tables in Apache's own REST catalog (needs Java 17, Maven and Maven Central; 90 MB)
	$(BIN)/python -m tools.rest_catalog

debezium: setup ## change data of a real PostgreSQL through a real Debezium, both sides killed (needs Java 17, Maven, Maven Central and PostgreSQL)
	$(BIN)/python -m tools.debezium

# `make test` without a browser has the rest of the console's tests.
browser: setup ## the web console in a real browser (Debian's Chromium; apt installs it where it may)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	$(BIN)/python -m tools.chromium
	$(IN_SCRATCH) $(TWICE) --dist load -m browser tests/browser $(TESTS)

prometheus: setup ## the alert rules and the dashboard with a real Prometheus (Debian's package; apt downloads it where it may)
	$(BIN)/python -m tools.prometheus
	$(IN_SCRATCH) $(PYTEST) -m prometheus tests/prometheus $(TESTS)

# What kombu, Celery and Dramatiq test their own transports and brokers with comes from their sources on PyPI.
frameworks: setup ## workers of task frameworks on our brokers, and the frameworks' own suites (needs PyPI)
	$(IN_SCRATCH) $(PYTEST) -m frameworks tests/frameworks $(TESTS)
	$(BIN)/python -m tools.framework_suites

helm-check: setup ## the Helm chart: rendered, held against the schemas of Kubernetes and a policy (needs Go, or helm and kubeconform; status 3 without)
	$(BIN)/python -m tools.helm

image: setup ## the container image, built by buildah, and a cluster in it (apt installs what is missing where it may; status 3 without)
	$(BIN)/python -m tools.image

pictures: setup ## the pictures of the web console in docs/pictures, taken with a browser
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[browser]'
	$(BIN)/python -m tools.chromium
	$(BIN)/python -m tools.pictures

# MINUTES is how long to look; EXAMPLES how many a test gets in each round that has 100 in make test; SEED repeats a round.
fuzz: MINUTES ?= 10
fuzz: EXAMPLES ?= 500
fuzz: setup ## examples that nobody has tried yet, for the property tests
	$(BIN)/python -m tools.fuzzing --minutes $(MINUTES) --examples $(EXAMPLES) --workers $(WORKERS) \
	  $(if $(SEED),--seed $(SEED)) $(TESTS)

# MINUTES is how long to look, ONLY=headers,requests where.
fuzz-native: MINUTES ?= 10
fuzz-native: setup ## the compiled readers of strangers' bytes under sanitizers (needs clang, which apt installs where it may)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[fuzz]'
	$(BIN)/python -m tests.native_fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

audit: setup ## known weaknesses of the pinned dependencies (needs a package index that lists them); status 3 if they cannot be looked up
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/python -m tools.dependency_audit build/audit/bin/pip-audit

# FAULTS='--crashes 2 --losses 1 --sends 1' are the bounds of one exploration, STATES the most states of one.
model: STATES ?= 1000000
model: setup ## all states of a broker group that a few faults can lead to: more of them than make test has time for
	$(BIN)/python -m tests.model --states $(STATES) $(FAULTS)

# MINUTES is how long to look; SEED and PLAN=file.json repeat one run; ONLY=kill,stall limits the faults, ONLY=- has none.
# FAILOVERS=1000 loses masters in a row until there were that many fail-overs; SEED is the first seed then.
simulate: MINUTES ?= $(if $(FAILOVERS),10000,10)
simulate: JOBS ?= $(shell nproc 2>/dev/null || echo 2)
simulate: setup ## whole clusters in one thread each, with virtual time: new seeds, and what fails is made small
	$(BIN)/python -m tests.simulation --minutes $(MINUTES) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(PLAN),--plan $(PLAN)) $(if $(ONLY),--only='$(ONLY)') $(if $(FAILOVERS),--failovers $(FAILOVERS))

# MUTANTS=a,b tries some of them; SEEDS is how many seeds each gets at most.
mutants: SEEDS ?= 200
mutants: JOBS ?= $(shell nproc 2>/dev/null || echo 2)
mutants: setup ## bugs that are planted on purpose: the simulation must find each of them
	$(BIN)/python -m tests.simulation.mutants --seeds $(SEEDS) --jobs $(JOBS) $(if $(MUTANTS),--only $(MUTANTS))

# Each round has its own cluster and SECONDS of faults; SEED repeats a round; CLUSTER is one of single, pair, group, etcd, and mixed, which needs Apache's broker; FAULTS=kill,hang limits what happens.
# FAILOVERS=1000 kills the master of a group that often instead, for at most three hours.
# Without these, ACCESS is how many minutes access control is attacked before, and KILLS how often Spark's drivers are killed, and brokers to which Spark commits, for at most an hour each.
chaos: MINUTES ?= $(if $(FAILOVERS),180,10)
chaos: SECONDS ?= 45
chaos: ACCESS ?= $(if $(SEED)$(CLUSTER)$(FAULTS)$(FAILOVERS),,2)
chaos: KILLS ?= $(if $(SEED)$(CLUSTER)$(FAULTS)$(FAILOVERS),,300)
# CLUSTER=dayone is the day of an operator on the cluster of deploy/ha, repeated for MINUTES; DAYONE is the same before the rest, once with 0.
chaos: DAYONE ?= $(if $(filter dayone,$(CLUSTER)),$(MINUTES),$(if $(SEED)$(CLUSTER)$(FAULTS)$(FAILOVERS),,0))
chaos: setup ## whole clusters, broken in every way we know, round after round: what was acknowledged must be there
	$(if $(ACCESS),$(BIN)/python -m tests.campaign.access --minutes $(ACCESS))
	$(if $(KILLS),$(BIN)/python -m tests.spark_kills --kills $(KILLS) --minutes 60)
	$(if $(KILLS),$(BIN)/python -m tests.spark_kills.commits --kills $(KILLS) --minutes 60)
	$(if $(DAYONE),$(BIN)/python -m tests.campaign.dayone --minutes $(DAYONE))
	$(if $(filter dayone,$(CLUSTER)),,$(BIN)/python -m tests.campaign --minutes $(MINUTES) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(FAILOVERS),--failovers $(FAILOVERS)))

# FROM is a revision, a directory of wheels or a release in the package index.
upgrade: setup ## two versions in one cluster, and the way from one to the other and back, under load
	$(BIN)/python -m tests.campaign.upgrade --from '$(or $(FROM),$(error FROM=version is missing))'

# TIMES is how many kills a test gets for each one in make test; SEED repeats a round.
kills: MINUTES ?= 10
kills: TIMES ?= 3
kills: setup ## the tests that kill servers and clients, round after round with other chances
	$(BIN)/python -m tools.campaign --minutes $(MINUTES) --times $(TIMES) $(if $(SEED),--seed $(SEED)) $(TESTS)

# OPTIONS=--quick only shows that all of them work; MINUTES is the time of the comparison with Apache's servers.
bench: MINUTES ?= 25
BENCHED := client transactions timers pop access replication proxy spark compare_with_kafka
bench: setup ## every benchmark, beside Apache's servers, Spark and Kafka where they can be had
	$(BIN)/python -m benchmarks.store $(OPTIONS)
	mkdir -p build/benchmarks
	rm -f $(BENCHED:%=build/benchmarks/%.json)
	for each in $(BENCHED); do $(BIN)/python -m benchmarks.$$each --json build/benchmarks/$$each.json $(OPTIONS) || exit; done
	$(BIN)/python -m benchmarks.stalls $(OPTIONS)
	$(BIN)/python -m benchmarks.neighbours $(OPTIONS)
	$(BIN)/python -m benchmarks.filters $(OPTIONS)
	$(BIN)/python -m benchmarks.lite $(OPTIONS)
	$(BIN)/python -m benchmarks.tier $(OPTIONS)
	$(BIN)/python -m benchmarks.scale $(OPTIONS)
	$(BIN)/python -m benchmarks.several_brokers $(OPTIONS)
	$(BIN)/python -m benchmarks.console $(OPTIONS)
	$(BIN)/python -m benchmarks.compare_with_apache --minutes $(MINUTES) $(OPTIONS)
	@printf '\nWhere a peer is ahead:\n\n'
	@$(BIN)/python -m benchmarks.behind $(BENCHED:%=build/benchmarks/%.json) \
	  $(foreach part,namesrv broker,$(if $(findstring --quick,$(OPTIONS)),build,docs)/benchmarks/$(part).json)

docs: setup ## write the generated pages of docs/ and conf/ anew
	$(BIN)/python -m tests.support.example_requests
	$(BIN)/python -m tools.option_types
	$(BIN)/python -m tools.native_declarations
	$(BIN)/python -m tools.api_reference
	$(BIN)/python -m tools.spark_options
	$(BIN)/python -m tools.compatibility_page
	for part in namesrv broker store controller proxy console filtersrv; do \
	  $(BIN)/pyromq config $$part --markdown > docs/reference/$$part-settings.md; done
	$(BIN)/mqadmin help --markdown > docs/reference/mqadmin.md
	$(BIN)/pyromq config namesrv --example > conf/namesrv.conf
	$(BIN)/pyromq config controller --example > conf/controller.conf
	$(BIN)/pyromq config console --example > conf/console.conf
	$(BIN)/pyromq config filtersrv --example > conf/filtersrv.conf
	($(BIN)/pyromq config broker --example; echo; $(BIN)/pyromq config store --example) > conf/broker.conf

changelog: setup ## the entry of CHANGELOG.md that the fragments in changes/ make
	@$(PIP) -c constraints.txt -e '.[changelog]'
	@$(BIN)/towncrier build --draft --version unreleased

site: setup ## the documentation as a site in build/site; a broken link stops it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[site]'
	$(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

# PYTHONS are names or paths of the interpreters to try, all of 3.11 to 3.14 that are found without it.
dist: setup ## sdists, wheels, SBOM and checksums of both distributions, tried out in empty environments with each Python that is here
	@$(PIP) -c constraints.txt -e '.[dist]'
	$(BIN)/python -m tools.distributions

wheels: setup ## wheels of both distributions for each Python that is here, tried out in empty environments
	@$(PIP) -c constraints.txt -e '.[dist]'
	$(BIN)/python -m tools.distributions --wheels

clean: ## remove what the other targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist spark-warehouse src/*.egg-info
	rm -rf native/build native/src/*.egg-info $(foreach kind,c so,$(wildcard native/src/pyromq_native/*.$(kind) native/src/pyromq_native/*/*.$(kind)))
	find . -name __pycache__ -prune -exec rm -rf {} +
