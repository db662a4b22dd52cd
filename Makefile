# One command surface. `make` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
RELEASE := target/release
# Programs of `make test`: half optimised, with all assertions.
CHECKED := target/checked
export UNRULY_PYTHON := $(CURDIR)/$(PY)
export PATH := $(HOME)/.cargo/bin:$(PATH)
# Without byte code every Python process compiles the libraries anew, which takes longer than a verdict.
unexport PYTHONDONTWRITEBYTECODE

PYTHON_SOURCES := common flurry scripts tests unruly
E2E := unruly/tests/e2e flurry/tests/e2e

SEED ?= 1
SEEDS ?= 200
COUNT ?= 20000
OPERATIONS ?= 5000
SIM := $(CHECKED)/flurry-sim
CHECKER := target/linearizability
JVM := unruly/jvm/target/unruly-jvm.jar

.PHONY: help setup hook build gate-build demo-build fmt lint lint-text test test-long test-all tools compile compile-benches test-rust \
	transcripts test-flurry test-seeds test-model sim sim-bugs fuzz test-python test-python-slow rules smoke e2e \
	mutations mutations-today mutations-all e2e-services differential guidellm kafka opentelemetry redis-clients node-clients kubernetes chaos soak fuzz-files advisories notices notices-javascript sbom release test-release bench bench-flurry pages docs site test-site \
	demo check jvm test-jvm

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(VENV)/.installed ## Make the Python environment
	@command -v cargo >/dev/null || { echo "make: cargo is not installed; hint: install rustup, see rustup.rs" >&2; exit 2; }

$(VENV)/.installed: requirements.lock
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not installed; hint: make PYTHON=python3 setup" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile --require-hashes --no-deps -r requirements.lock
	$(PY) -c "import site, pathlib; pathlib.Path(site.getsitepackages()[0], 'unruly-checkout.pth').write_text('$(CURDIR)/unruly/python\n')"
	$(PY) -c "import hypothesis, ibis.backends.duckdb, pytest, scipy.stats, unruly.html, unruly.topics.analyse"
	touch $@
	@git config --get core.hooksPath >/dev/null || echo "make: \`make hook\` has git check the format and the lints of each commit"

hook: setup ## Check formats, lints and phrases of the staged files before each commit
	git config core.hooksPath scripts/hooks

# With the fuzzer, so that both have the same dependencies; with the whole workspace, the core would get the simulation's planted bugs.
build: ## Build the programs, optimised
	cargo build --release --locked --package unruly --package flurry-cli --package unruly-fuzz --bins
	@touch $(RELEASE)/.whole

# The clients of Cassandra and etcd, QUIC and KCP are half of a first build.
gate-build: ## Build the program for a gate in CI: without the clients that take long to compile
	@if [ -e $(RELEASE)/.whole ]; then $(MAKE) --no-print-directory build; \
	else cargo build --release --locked --package unruly --no-default-features --features flurry --bins; fi

demo-build: ## Build the demo's program: without Flurry too, and optimised only where requests pass
	@if [ -e $(RELEASE)/.whole ]; then $(MAKE) --no-print-directory build; \
	else cargo build --profile demo --locked --package unruly --no-default-features --bins; fi

fmt: setup ## Format everything
	cargo fmt --all
	$(VENV)/bin/ruff format $(PYTHON_SOURCES)
	$(VENV)/bin/ruff check --fix-only --quiet $(PYTHON_SOURCES)

lint: lint-text ## Check formatting, lints and types; warnings are errors
	cargo clippy --workspace --all-targets --locked -- -D warnings

lint-text: setup ## The same without clippy, which `compile` runs
	cargo fmt --all --check
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES)
	$(VENV)/bin/ruff check $(PYTHON_SOURCES)
	$(VENV)/bin/mypy
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check --hide-inclusion-graph licenses bans sources; fi

# Stages joined by a plus run beside each other.
QUICK := setup+tools+compile lint-text+test-rust+test-flurry+test-python smoke+rules
LONG := e2e test-python-slow test-seeds test-jvm test-site test-model fuzz mutations

test: ## The tests that find bugs fastest: 15 minutes on two cores from nothing
	@scripts/stages.sh $(QUICK)

test-long: ## The long stages that CI runs after `test`, without what it has run: 45 minutes
	@MORE_SEEDS=150 SEEDS_SECONDS=300 SMOKED=yes scripts/stages.sh $(LONG)

test-all: ## Everything: `test`, the long stages, advisories, slow services, a soak, the release files, and the day's seventh of the mutations
	@scripts/stages.sh $(QUICK) advisories build compile-benches $(filter-out mutations,$(LONG)) e2e-services soak differential fuzz-files mutations-today release test-release

# Each is installed when it is missing and we may.
tools: ## Install the Debian packages that tests need
	scripts/debian.sh etcd etcd-server
	scripts/debian.sh libenet.so.7 libenet7
	scripts/debian.sh faketime faketime
	scripts/debian.sh nft nftables
	scripts/debian.sh redis-server redis-server redis-tools
	scripts/debian.sh memcached memcached
	scripts/debian.sh nginx nginx-light
	scripts/debian.sh ssh openssh-client
	scripts/debian.sh sshd openssh-server
	scripts/debian.sh tcpdump tcpdump
	scripts/debian.sh dnsmasq dnsmasq-base
	scripts/debian.sh openssl openssl
	scripts/debian.sh pg_lsclusters postgresql
	scripts/debian.sh mariadbd mariadb-server-core mariadb-client-core
	scripts/debian.sh systemd-analyze systemd
	scripts/debian.sh chromium chromium fonts-dejavu-core

# Clippy is the compiler of what it lints, so that tests, lints, the simulation and the programs that
# end-to-end tests start are one build. Cargo shares the processors among its own.
CLIPPED := MAKEFLAGS= RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
CARGO_TEST := $(CLIPPED) cargo test --profile checked --workspace --locked --quiet

compile: ## Compile everything for the tests, with clippy
	$(CARGO_TEST) --no-run

compile-benches: ## Compile the Rust benchmarks, with clippy
	$(CARGO_TEST) --no-run --benches

test-rust: ## Rust tests
	$(CARGO_TEST)

transcripts: ## Write the transcripts of Flurry's protocol anew, after a change on purpose; read their diff
	UPDATE_TRANSCRIPTS=1 $(CARGO_TEST) --test promises transcripts
	git diff --stat -- flurry/crates/core/tests/transcripts

$(SIM): FORCE
	$(CARGO_TEST) --no-run

FORCE:

test-flurry: $(SIM) ## Whole Flurry clusters on virtual time: SEEDS seeds
	$(SIM) seeds --count $(SEEDS)

# A seed cannot be interrupted: CI has time for 150 of them.
MORE_SEEDS ?= 1800
test-seeds: $(SIM) ## Every planted bug by its seed, then MORE_SEEDS more seeds
	$(SIM) bugs --recorded flurry/tests/planted-bugs.tsv
	$(SIM) seeds --from 201 --count $(MORE_SEEDS) $(if $(SEEDS_SECONDS),--within $(SEEDS_SECONDS))

test-model: $(SIM) ## Small Flurry clusters explored to their end, and the planted bugs that show there
	$(SIM) model

sim: $(SIM) ## Replay one seed: make sim SEED=7 OPERATIONS=5000
	$(SIM) replay $(SEED) --operations $(OPERATIONS)

sim-bugs: $(SIM) ## Search a seed for every planted bug, as flurry/tests/planted-bugs.tsv has them
	$(SIM) bugs

fuzz: compile ## Feed every parser with input that is nearly right, 10 s for each kind
	$(CHECKED)/fuzz --seconds 10 --threads 7

# Two processes with one thread of the engine each.
PYTEST := $(PY) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

test-python: setup ## Python tests of at most a few seconds, without a browser and Spark
	UNRULY_THREADS=1 UNRULY_BINARY=$(CURDIR)/$(CHECKED)/unruly $(PYTEST) -m "not slow" unruly/python

test-python-slow: setup compile ## Longer Python tests: the report in a real Chromium, Spark, methods by simulation
	scripts/debian.sh chromium chromium fonts-dejavu-core
	scripts/debian.sh java default-jre-headless
	UNRULY_BINARY=$(CURDIR)/$(CHECKED)/unruly $(PYTEST) -m slow unruly/python

rules: setup ## Layers, sizes, links, licences: what holds for the whole repository
	MAKEFLAGS= $(PY) -m pytest -q tests/rules

jvm: $(JVM) ## Build what runs in the virtual machine of Java

$(JVM): unruly/jvm/pom.xml $(shell find unruly/jvm/src/main -name '*.java')
	scripts/debian.sh javac openjdk-17-jdk-headless
	scripts/debian.sh mvn maven
	mvn -q -B -f unruly/jvm/pom.xml -DskipTests package
	touch $@

test-jvm: $(JVM) ## Java tests: golden bytes, every protocol over loopback, whole processes
	mvn -q -B -f unruly/jvm/pom.xml verify

mutations: setup ## Break three promises, chosen by the commit, and see their tests go red
	$(PY) tests/mutations/run.py

mutations-today: setup ## Break a seventh of the promises, chosen by the date: over a week each has its turn
	$(PY) tests/mutations/run.py --today

mutations-all: setup ## Break every promise in turn: hours
	$(PY) tests/mutations/run.py --all

$(CHECKER): FORCE
	scripts/debian.sh go golang-go
	cd flurry/tests/linearizability && go vet ./... && test -z "$$(gofmt -l .)" && go test ./... && go build -o $(CURDIR)/$@ .

# Programs and examples of the build that the other tests use.
smoke: setup ## A few end-to-end tests of each part: plan, run, trace, report on this machine
	UNRULY_PROGRAMS=$(CURDIR)/$(CHECKED) $(PY) -m pytest -q -n 3 --dist loadfile -m smoke -k "not jvm" $(E2E)

# No test begins after $TESTS_UNTIL.
E2E_PYTEST := PYTHONPATH=$(CURDIR)/common/testing $(PY) -m pytest -q -p deadline

e2e: export UNRULY_PROGRAMS := $(CURDIR)/$(CHECKED)
e2e: setup compile $(CHECKER) $(JVM) tools guidellm kafka opentelemetry redis-clients node-clients kubernetes ## All end-to-end tests, with planted truth, and histories of Flurry under kills, pauses and partitions
	@code=0; $(E2E_PYTEST) unruly/tests/e2e/test_planted.py || code=1; \
	$(E2E_PYTEST) -n 3 --dist loadfile $(if $(SMOKED),-k "jvm or not smoke") $(E2E) --ignore unruly/tests/e2e/test_planted.py || code=1; \
	exit $$code

guidellm: ## Install a server of language models that somebody else wrote, for a test
	@scripts/tool_environment.sh $(PYTHON) guidellm

kafka: ## Fetch the jars of Apache Kafka, for a test
	@scripts/kafka/install.sh

opentelemetry: ## Install OpenTelemetry for Python, for a test
	@scripts/tool_environment.sh $(PYTHON) opentelemetry

redis-clients: ## Install Python libraries that use Redis, for a test
	@scripts/tool_environment.sh $(PYTHON) redis_clients

kubernetes: ## Install a validator of Kubernetes manifests, for a test
	@scripts/tool_environment.sh $(PYTHON) kubernetes

node-clients: ## Install clients of Redis for Node.js, for a test
	@scripts/node_clients/install.sh

e2e-services: setup build ## Start Cassandra and Garage once each; the first time they are fetched and built
	scripts/debian.sh java openjdk-17-jdk-headless
	scripts/debian.sh mvn maven
	$(PY) -m pytest -q unruly/tests/services

fuzz-files: setup ## Files, limits, manifests and segments that are nearly right, COUNT of them by SEED
	$(PY) tests/fuzz/files.py $(COUNT) $(SEED)

CHAOS_SECONDS ?= 1800
chaos: setup build $(CHECKER) tools ## Kill, stop, freeze and switch off parts of a Flurry cluster with gateways for CHAOS_SECONDS at each level
	CHAOS_SECONDS=$(CHAOS_SECONDS) CHAOS_SEED=$(SEED) $(PY) -m pytest -q -s flurry/tests/e2e/test_chaos.py

# More than a million. A failure names its seed.
DIFFERENTIAL_SEED ?= $(shell date +%Y%m%d)
differential: setup compile tools ## A million random commands of the day's seed, answered by a gateway and by redis-server alike
	UNRULY_PROGRAMS=$(CURDIR)/$(CHECKED) DIFFERENTIAL_TIMES=8 DIFFERENTIAL_SEED=$(DIFFERENTIAL_SEED) $(PY) -m pytest -q -n 2 --dist loadfile -k byte_for_byte flurry/tests/e2e/test_redis.py flurry/tests/e2e/test_transactions.py

soak: setup build tools ## The memory of every process under load, 200 broken connections to hosts, and a month of a standing agent in 24 minutes
	$(PY) -m pytest -q -s unruly/tests/soak

# One of them is that of this host, which writes the completions and man pages.
ARCHITECTURES ?= x86_64 aarch64
release: setup sbom ## Build the release files for ARCHITECTURES into target/dist
	@scripts/tool_environment.sh $(PYTHON) zig
	PYTHONPATH=scripts $(PY) -m releasing $(ARCHITECTURES)

test-release: setup kubernetes ## Install and run the release files of `make release`, and nothing else of this checkout
	$(PY) -m pytest -q unruly/tests/release

bench: setup build ## Side-by-side benchmarks; results go to unruly/bench/runs/
	PYTHONPATH=unruly:. $(PY) -m bench $(NAMES)

bench-flurry: setup build ## Flurry beside memcached, Redis and etcd: twenty minutes on a quiet machine
	PYTHONPATH=unruly:. $(PY) -m flurry.bench $(NAMES)

pages: setup ## Write the generated pages (findings, benchmarks, methods, studies, papers) and the JSON schemas
	PYTHONPATH=unruly:unruly/docs:. $(PY) scripts/pages.py

advisories: setup ## Ask RustSec and PyPI about advisories against our pins; says what it could not ask
	scripts/advisories/run.sh $(PY)
	$(PY) -m pytest -q tests/advisories

THIRD_PARTY := PYTHONPATH=scripts $(PY) -m third_party

notices: setup $(JVM) ## Write THIRD-PARTY.txt from the lock files: run it when they change
	$(THIRD_PARTY) notices

notices-javascript: setup ## Fetch the licences of the report's JavaScript from npm: run it when vl-convert changes
	$(THIRD_PARTY) javascript

sbom: setup $(JVM) ## Write the bill of materials, CycloneDX JSON, to target/unruly.cdx.json
	$(THIRD_PARTY) sbom

docs: setup ## Check the documents: links, titles, examples
	$(PY) -m pytest -q tests/rules/test_documents.py unruly/python/tests/test_docs.py

site: ## Build the documentation site into target/site/html: every page, with search
	@scripts/docsite/build.sh $(PYTHON)

test-site: setup ## Build the documentation site and check its links, titles and search index
	$(PY) -m pytest -q tests/site

# A spoiled run is the host's doing: the demo has worked when its report was written.
demo: ## The main job: seven agents for a minute, their verdict and report
	@scripts/demo.sh

check: ## What CI runs
	.ci/run
