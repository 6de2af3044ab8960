# Verbs of the project; `make help` lists them.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTEST := $(BIN)/pytest -n 2 --dist loadfile
PROTOS := $(shell find protos/tidegate -name '*.proto')
GENERATED := clients/python
TS := clients/typescript
NPM := $(shell command -v npm)
GO := $(firstword $(shell command -v go) $(wildcard /usr/local/go/bin/go))

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: install
install: $(INSTALLED) ## Make .venv with the locked packages

# The lock is complete, so nothing is resolved: --no-deps. (tritonclient[all] would ask for perf-analyzer, which has no build for Debian 12.)
$(INSTALLED): requirements.lock pyproject.toml clients/python/pyproject.toml clients/loadtest/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' \
	  || { echo "Tidegate needs Python 3.11 or 3.12; name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { echo "this Python cannot make a venv: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e clients/python -e . -e clients/loadtest
	@touch $@

.PHONY: run
run: install ## Start model, Triton and router, answer a first question, stay up; ARGS="--port 9000" are given to tidegate up
	@exec $(BIN)/tidegate up $(ARGS)

.PHONY: demo
demo: install ## The same, but exit 0 after the first answer and its trace
	@exec $(BIN)/tidegate up --demo --port 0 --http-port 0 --metrics-port 0

.PHONY: protos
protos: install ## Generate the Python stubs from protos/
	$(BIN)/python -m grpc_tools.protoc -Iprotos --python_out=$(GENERATED) --pyi_out=$(GENERATED) $(PROTOS)
	$(BIN)/python -m grpc_tools.protoc -Iprotos --grpc_python_out=$(GENERATED) $(filter %_service.proto,$(PROTOS))

.PHONY: sdks
sdks: protos sdk-ts sdk-go ## Generate the stubs of all SDKs from protos/

.PHONY: test-sdks
test-sdks: test-sdk-py test-sdk-ts test-sdk-go ## Every SDK against the table of tests/conformance; one whose toolchain is missing is skipped loudly, and fails where CI is set

.PHONY: test-sdk-py
test-sdk-py: install
	$(BIN)/pytest -m "not slow" tests/conformance

.PHONY: sdk-ts
sdk-ts: install $(if $(NPM),$(TS)/node_modules/.package-lock.json)
	$(if $(NPM),$(BIN)/buf generate --template $(TS)/buf.gen.yaml && cd $(TS) && npm run --silent build,$(call skip,TypeScript SDK,Node.js))

.PHONY: test-sdk-ts
test-sdk-ts: sdk-ts
	$(if $(NPM),cd $(TS) && $(call current,src/gen,sdk-ts) && npm test --silent,$(call skip,TypeScript SDK,Node.js))

$(TS)/node_modules/.package-lock.json: $(TS)/package-lock.json
	cd $(TS) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.PHONY: sdk-go
sdk-go: install
	$(if $(GO),cd clients/go && PATH=$(dir $(GO)):$$PATH ../../$(BIN)/buf generate,$(call skip,Go SDK,Go))

.PHONY: test-sdk-go # with RACE=-race the race detector looks on
test-sdk-go: sdk-go
	$(if $(GO),clients/go/check $(GO) $(RACE),$(call skip,Go SDK,Go))

# $(call skip,WHAT,TOOL): said loudly, and failed where CI is set, since nobody reads it there.
skip = @echo "NOT TESTED: $(1): there is no $(2) on this machine" >&2$(if $(CI),; exit 1)
# $(call current,FOLDER,VERB): generated code is what is committed.
current = { git diff --exit-code --stat -- $(1) || { echo "generated code is not current: commit what 'make $(2)' made" >&2; exit 1; }; }

.PHONY: check-protos
check-protos: protos ## Lint the protos, check for breaking changes, and that generated code is current
	$(BIN)/buf lint
	@if git rev-parse --quiet --verify 'HEAD^:protos' >/dev/null; then $(BIN)/buf breaking --against '.git#ref=HEAD^'; fi
	@git diff --exit-code --stat -- $(GENERATED)/tidegate/v1 \
	  || { echo "generated code is not current: commit what 'make protos' made" >&2; exit 1; }

.PHONY: lint
lint: install ## ruff, and mypy over code and tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

.PHONY: test
test: lint check-protos ## All that a change needs, real Triton and model included; and test-sdks for the SDKs
	$(PYTEST) -m "not slow" --ignore tests/conformance

.PHONY: test-all
test-all: lint check-protos ## The same and the slow remainder
	$(PYTEST)

.PHONY: test-hostile
test-hostile: install ## Requests meant to stop the router: its longest pause and its memory, for every door
	$(BIN)/pytest tests/faults/test_hostile.py tests/faults/test_limits.py tests/faults/test_http_limits.py tests/faults/test_worker_port.py

.PHONY: test-busy
test-busy: install ## The whole suite while something else keeps every core busy
	$(BIN)/python -m tests.busy $(PYTEST)

.PHONY: bench-engine
bench-engine: install ## What the serving path leaves of the bare engine's throughput
	$(BIN)/python -m loadtest.engine

.PHONY: bench-lane
bench-lane: install ## Router CPU per token, with the scripted engine
	$(BIN)/python -m loadtest.lane

.PHONY: lock
lock: ## Renew requirements.lock (needs uv)
	mkdir -p .venv/lock/loadtest
	sed -E 's/^  "tidegate",$$//' pyproject.toml > .venv/lock/pyproject.toml  # our own packages are not for the lock
	sed -E 's/"tidegate[^"]*", ?//g' clients/loadtest/pyproject.toml > .venv/lock/loadtest/pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra cpu --extra dev --extra report \
	  .venv/lock/pyproject.toml .venv/lock/loadtest/pyproject.toml -o requirements.lock

.PHONY: bench-router
bench-router: install ## What a router costs, ours and the peers that bench-peers installed
	$(BIN)/python -m loadtest.router_tax

.PHONY: bench-peers
bench-peers: install ## Install vllm-router and LiteLLM, each in a venv of its own
	$(BIN)/python -m loadtest.peers

.PHONY: bench-nvidia
bench-nvidia: install ## The load harness against NVIDIA's perf_analyzer
	$(BIN)/python -m loadtest.nvidia

.PHONY: bench-routing
bench-routing: install ## KV-aware routing against round robin and one worker, with real CPU workers; 4 minutes
	GRPC_VERBOSITY=ERROR $(BIN)/python -m loadtest.routing

.PHONY: bench-quota
bench-quota: install ## What quotas cost a turn, in memory and in Redis
	$(BIN)/python -m loadtest.quota
