# stockgate: `make help` lists what can be made.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
GO ?= go
# Packages whose goroutines share state: the race detector runs over these.
RACE := . ./bench/load ./fallback/... ./filters/... ./gateway/... ./internal/crashpoint ./internal/faults ./internal/httpserve \
	./internal/loop ./internal/orderservice ./ledger ./luascripts/... ./stock/...
# Tests in them that are long because they send much: unit runs them without the detector.
RACE_SKIP := TestC019_PoolIs|TestC021_AMillion|TestManyOpenEntries|TestFactsOfAnImport|TestSellingAheadOnRealStores|TestC012_NamesMove|TestC013_|TestC070_AMillionKeys|TestC070_Sweep
# Subtests of the suite over both databases that run many goroutines.
RACE_STORE := Test(Postgres|SQLite)/(C034|C041|C042|C047|C050|C052|AnyOps)
# Whole-system tests that are repeated with a binary under the race detector.
RACE_E2E := TestC001_Flash|TestC027_RedisKilled|TestC089
# Requests of the test of reservations' whole life: here a part of them, `make life` sends all 200,000.
LIFE ?= 8000
# Packages whose tests take long: begun first, so that nothing waits for them in the end.
LONG := ./internal/e2e ./ledger/storetest ./gateway/admission ./luascripts
# Seeds of the chaos runs, and the first of them: `make chaos SEEDS=60`, or one again with `make chaos SEEDS=1 SEED=17`.
SEEDS ?= 5
SEED ?= 1
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F ':.*?## ' '{printf "  %-10s %s\n", $$1, $$2}'

.PHONY: test
test: services fmt vet lint unit race ## everything that must be green: installs what it needs, checks, tests

.PHONY: services
services: ## install Redis, PostgreSQL, pgbouncer, a JDK and Node (Debian packages) if they are missing; nothing is started
	@./internal/testservices/install.sh

.PHONY: fmt
fmt: ## fail if a file is not formatted
	@bad=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$bad" ]; then echo "not formatted:"; echo "$$bad"; exit 1; fi

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: lint
lint: ## golangci-lint, built from tools/go.mod
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

.PHONY: unit
unit: ## all tests, with real Redis, PostgreSQL and pgbouncer
	$(GO) test -tags crashpoints ./internal/clockstep
	STOCKGATE_LIFE_REQUESTS=$(LIFE) STOCKGATE_IMPORT_SKUS=30000 STOCKGATE_CHAOS_SEEDS=$(SEEDS) STOCKGATE_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 18m $(LONG) ./... # a cached pass would not know of the binary that some tests build

.PHONY: life
life: ## the whole life of reservations under faults: 200,000 requests, some minutes
	$(GO) test -count=1 -timeout 40m -v -run TestLifeOfReservations ./internal/e2e

.PHONY: chaos
chaos: ## four gateways under seeded faults: SEEDS of them from SEED on, about half a minute each
	STOCKGATE_CHAOS_SEEDS=$(SEEDS) STOCKGATE_CHAOS_SEED=$(SEED) $(GO) test -count=1 -timeout 4h -v -run '^TestChaos$$' ./internal/e2e

.PHONY: race
race: ## tests of the concurrent packages, and some of the whole, under the race detector
	$(GO) test -race -timeout 15m -skip '$(RACE_SKIP)' $(RACE)
	$(GO) test -race -timeout 15m -run '$(RACE_STORE)' ./ledger/storetest
	$(GO) test -count=1 -race -timeout 15m -run '$(RACE_E2E)' ./internal/e2e

.PHONY: mutants
mutants: services ## take each rule of the design out of the code in turn; its tests must fail: many minutes
	$(GO) run ./internal/conformance/mutants

.PHONY: build
build: ## build the binary into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/stockgate .

.PHONY: demo
demo: ## run the demo: nothing else needed
	$(GO) run . serve --demo

.PHONY: bench
bench: ## a short run of the load generator against servers that it starts itself
	$(GO) run ./bench

.PHONY: docs
docs: ## write generated documentation anew
	$(GO) generate ./...
