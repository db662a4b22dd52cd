# One command surface. `make` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
UNRULY := target/release/unruly
export UNRULY_PYTHON := $(CURDIR)/$(PY)
export PATH := $(HOME)/.cargo/bin:$(PATH)

SEED ?= 1
OPERATIONS ?= 5000
SIM := target/release/flurry-sim
CHECKER := target/linearizability
JVM := jvm/target/unruly-jvm.jar

.PHONY: help setup build fmt lint lint-text test test-rust test-flurry test-model fuzz sim sim-bugs test-python rules e2e mutations bench bench-flurry docs demo check jvm test-jvm

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/.installed ## Make the Python environment
	@command -v cargo >/dev/null || { echo "make: cargo is missing; wanted rustup's cargo; hint: see rustup.rs" >&2; exit 2; }

$(VENV)/.installed: requirements.lock
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is missing; wanted Python 3.11; hint: make PYTHON=python3 setup" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile --require-hashes --no-deps -r requirements.lock
	$(PY) -c "import site, pathlib; pathlib.Path(site.getsitepackages()[0], 'unruly-checkout.pth').write_text('$(CURDIR)/python\n')"
	touch $@

# With the fuzzer, so that both have the same dependencies; with the whole workspace, the core would get the simulation's planted bugs.
build: ## Build the programs, optimised
	cargo build --release --locked --package unruly --package unruly-fuzz --bins

fmt: setup ## Format everything
	cargo fmt --all
	$(VENV)/bin/ruff format python tests bench docs examples
	$(VENV)/bin/ruff check --fix-only --quiet python tests bench docs examples

lint: lint-text ## Formatting, lints and types; warnings are errors
	cargo clippy --workspace --all-targets --locked -- -D warnings

lint-text: setup ## The same without clippy, which compiles the tests anyway
	cargo fmt --all --check
	$(VENV)/bin/ruff format --check python tests bench docs examples
	$(VENV)/bin/ruff check python tests bench docs examples
	$(VENV)/bin/mypy
	@if command -v cargo-deny >/dev/null; then cargo deny --offline check --hide-inclusion-graph licenses bans sources; fi

# Beside each other: what waits for a package index or has one thread, and what compiles.
test: ## Everything that must pass
	$(MAKE) -j2 lint-text test-rust
	$(MAKE) test-flurry test-python
	$(MAKE) -j2 rules test-jvm
	$(MAKE) e2e fuzz mutations
	@echo "test: all passed"

# Clippy is the compiler of what it lints, so that all that tests need is compiled once. Cargo shares the
# processors among its own.
CLIPPED := MAKEFLAGS= RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__

test-rust: ## Rust tests, and clippy on everything
	scripts/debian.sh etcd etcd-server
	scripts/debian.sh libenet.so.7 libenet7
	$(CLIPPED) cargo test --workspace --locked --quiet --no-run --benches
	$(CLIPPED) cargo test --workspace --locked --quiet

$(SIM): FORCE
	cargo build --release --locked --package flurry-sim

FORCE:

test-flurry: $(SIM) test-model ## Whole Flurry clusters on virtual time: 2,000 seeds, and every planted bug by its seed
	$(SIM) seeds
	$(SIM) bugs --recorded tests/flurry/planted-bugs.tsv

# Optimised, beside the simulation: unoptimised it takes ten times as long.
test-model: $(SIM) ## Small Flurry clusters explored to their end, and the planted bugs that show there
	$(SIM) model

sim: $(SIM) ## Replay one seed: make sim SEED=7 OPERATIONS=5000
	$(SIM) replay $(SEED) --operations $(OPERATIONS)

sim-bugs: $(SIM) ## Search a seed for every planted bug, as tests/flurry/planted-bugs.tsv has them
	$(SIM) bugs

fuzz: build ## Feed every parser with input that is nearly right, 10 s for each kind
	target/release/fuzz --seconds 10 --threads 7

test-python: setup build ## Python tests, with the report in a real Chromium, and with Spark
	scripts/debian.sh chromium chromium fonts-dejavu-core
	scripts/debian.sh java default-jre-headless
	$(PY) -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder python

rules: setup ## Layers, sizes, links, licences: what holds for the whole repository
	MAKEFLAGS= $(PY) -m pytest -q tests/rules

jvm: $(JVM) ## Build what runs in the virtual machine of Java

$(JVM): jvm/pom.xml $(shell find jvm/src/main -name '*.java')
	scripts/debian.sh javac openjdk-17-jdk-headless
	scripts/debian.sh mvn maven
	mvn -q -B -f jvm/pom.xml -DskipTests package
	touch $@

test-jvm: $(JVM) ## Its tests: golden bytes, every protocol over loopback, whole processes
	mvn -q -B -f jvm/pom.xml verify

mutations: setup ## Break three promises, chosen by the commit, and see their tests go red
	$(PY) tests/mutations/run.py

# The examples are built with the tests: a build of their own would have other features, and compile
# half of everything again.
$(CHECKER): FORCE
	scripts/debian.sh go golang-go
	scripts/debian.sh nft nftables
	scripts/debian.sh redis-server redis-server redis-tools
	scripts/debian.sh memcached memcached
	scripts/debian.sh openssl openssl
	$(CLIPPED) cargo test --workspace --locked --quiet --no-run
	cd tests/linearizability && go vet ./... && test -z "$$(gofmt -l .)" && go test ./... && go build -o $(CURDIR)/$@ .

e2e: setup build $(CHECKER) $(JVM) ## Plan, run, trace, report on this machine, with planted truth; histories of Flurry under kills, pauses and partitions
	$(PY) -m pytest -q tests/e2e/test_planted.py
	$(PY) -m pytest -q -n 3 --dist loadfile tests/e2e --ignore tests/e2e/test_planted.py

bench: setup build ## Side-by-side benchmarks; results go to bench/runs/
	$(PY) -m bench

bench-flurry: setup build ## Flurry beside memcached, Redis and etcd: twenty minutes on a quiet machine
	$(PY) -m bench flurry

docs: setup ## Check the documents: links, titles, examples
	$(PY) -m pytest -q tests/rules/test_documents.py python/tests/test_docs.py

demo: setup build ## The main job: seven agents for a minute, their verdict and report
	$(UNRULY) run demo

check: test ## What CI runs
