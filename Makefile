# Trivium. `make` lists the targets.

GO      ?= go
BIN     := bin/trivium
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.Version=$(VERSION)

.PHONY: help build demo test check race clients crash simulate replay replayer test-cluster chaos fuzz bench bench-peers bench-cluster scale clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/trivium
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/trivium

demo: build ## publish over MQTT, consume over AMQP, replay over Kafka
	$(GO) run ./integration/demo -bin $(BIN)

test: build clients ## all tests (under 15 minutes), with real clients against the real binary
	TRIVIUM_BIN=$(abspath $(BIN)) $(GO) test -timeout 14m ./...

check: ## format, vet, staticcheck, import walls
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test ./integration/arch

race: build ## unit tests under the race detector
	$(GO) test -race -timeout 20m ./kernel/... ./metasvc/... ./sharegroup/... ./storage/... ./protocols/...

clients: ## install the foreign clients that the tests use (Debian packages, npm)
	sh integration/clients/install.sh

crash: build ## long crash run: many rounds of kill -9, many more simulated histories
	TRIVIUM_BIN=$(abspath $(BIN)) TRIVIUM_CRASH_ROUNDS=200 $(GO) test -count=1 -timeout 2h -run 'Kill' -v ./integration/crash
	TRIVIUM_HISTORIES=200000 $(GO) test -count=1 -timeout 2h -run 'Histor' -v ./kernel/placement

simulate: ## many simulated histories: SEEDS of clusters (default 200000), EDGES of edges (5000), from FIRST (1)
	TRIVIUM_HISTORIES=$(or $(SEEDS),200000) TRIVIUM_SEED=$(or $(FIRST),1) $(GO) test -count=1 -timeout 24h -run '^Test(Cluster|Catalog)Histories$$' -v ./kernel/placement ./metasvc
	TRIVIUM_HISTORIES=$(or $(EDGES),5000) TRIVIUM_SEED=$(or $(FIRST),1) $(GO) test -count=1 -timeout 24h -run '^TestEdgeHistories$$' -v ./kernel/forward
	$(MAKE) replay SEED=$(or $(FIRST),1) FOR=$(or $(EDGES),5000)

replayer:
	$(GO) run ./integration/replay -o bin/edges.test -tags trivium_planted ./kernel/forward

replay: replayer ## a history of edges again, nearly always exactly: that of SEED, or FOR of them from there; PLANT names a planted bug, TRIVIUM_TRACE=1 says all
	@cd kernel/forward && TRIVIUM_SEED=$(or $(SEED),1) TRIVIUM_HISTORIES=$(or $(FOR),1) TRIVIUM_PLANT=$(PLANT) $(abspath bin/edges.test) -test.v -test.timeout 24h -test.run '^TestEdgeHistories$$'

test-cluster: build ## three nodes: every nemesis once, failover and drain times, two versions side by side (15 minutes; links need root)
	TRIVIUM_BIN=$(abspath $(BIN)) TRIVIUM_NEMESES=1 $(GO) test -count=1 -timeout 40m -v ./integration/cluster/... ./integration/harness

chaos: build ## random nemeses on three nodes for MINUTES (default 60); TRIVIUM_SEED replays a round
	TRIVIUM_BIN=$(abspath $(BIN)) TRIVIUM_CHAOS=$(or $(MINUTES),60) $(GO) test -count=1 -timeout 24h -run '^TestChaos$$' -v ./integration/cluster

fuzz: ## every fuzz target for FUZZTIME (default 1m) each
	sh integration/fuzz.sh $(or $(FUZZTIME),1m)

bench: build ## load a broker of our own with every scenario
	sh integration/bench/own.sh $(BIN)

bench-peers: build ## ours beside rabbitmq-server and mosquitto in one run
	sh integration/bench/peers.sh $(BIN)

bench-cluster: build ## three of our nodes beside three of rabbitmq-server with quorum queues
	python3 integration/bench/cluster.py $(BIN)

scale: build ## memory, files and restarts with large backlogs, many queues, connections, retained messages
	$(GO) run ./integration/bench/scale -bin $(BIN) $(SCALE)

clean: ## remove what make made
	rm -rf bin integration/clients/node_modules
