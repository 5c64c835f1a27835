# The commands people type while working on harp. `make help` lists them.

GO       ?= go
GOBIN    := $(CURDIR)/bin
LINT     := $(GOBIN)/golangci-lint
LINT_VERSION := v2.15.0
FUZZTIME ?= 100000x
SEEDS    ?= 1000
SEED     ?= 1
CHECKS   ?= 10000
RUN      ?=
ROUNDS   ?= 3

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the harp binary into ./bin
	$(GO) build -o $(GOBIN)/harp ./cmd/harp

# The packages whose tests take longest begin first, so that none of them is left running alone.
SLOW := $(addprefix ./,store/badger internal/faults internal/faults/hostile store/internal/rows dispatcher agent)

# Many tests wait for disks, processes and networks: with more of them at once than there are CPUs none of these
# is idle. What go vet says lint says, too.
CPUS    := $(or $(shell getconf _NPROCESSORS_ONLN),2)
AT_ONCE := -p $(shell expr $(CPUS) + 1) -parallel $(shell expr 2 '*' $(CPUS))

.PHONY: test
test: ## run all tests
	$(GO) test -vet=off $(AT_ONCE) -timeout 20m $(SLOW) ./...

# Each package on one CPU: see docs/decisions/0035.
.PHONY: race
race: ## run the tests with the race detector, but for those that would only tell it what others do; needs a C compiler
	$(GO) test -race -cpu 1 -timeout 20m $(SLOW) ./...

.PHONY: memory
memory: ## measure the memory of supervisors once more, as position independent programs
	$(GO) test -buildmode=pie ./agent/internal/supervisor -run '^TestMemory$$' -count 1

.PHONY: check
check: format lint tidy test race ## what CI checks: format, lint, go.mod, tests, build
	$(MAKE) memory
	$(GO) build ./...

.PHONY: quick
quick: format lint tidy ## what check does, without running tests
	$(GO) build ./...

.PHONY: format
format: $(LINT) ## say what is not formatted
	$(LINT) fmt --diff

.PHONY: fmt
fmt: $(LINT) ## format
	$(LINT) fmt

.PHONY: lint
lint: $(LINT) ## lint
	$(LINT) run ./...

.PHONY: tidy
tidy: ## say what go.mod lacks
	$(GO) mod tidy -diff

.PHONY: fuzz
fuzz: ## run each fuzz target FUZZTIME=100000x times
	@for dir in $$($(GO) list -f '{{.Dir}}' ./...); do \
		for target in $$(grep -hso '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c6- | sort -u); do \
			echo "$$target in $$dir"; \
			(cd $$dir && $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s .) || exit 1; \
		done; \
	done

.PHONY: chaos
chaos: ## run random faults in virtual time (SEEDS=1000 from SEED=1 on)
	$(GO) test ./harptest -run '^Test(Batch)?Chaos$$' -count 1 -timeout 0 -seeds $(SEEDS) -seed $(SEED)

.PHONY: models
models: ## play what tests draw at random CHECKS=10000 times, drawn anew
	RAPID_CHECKS=$(CHECKS) $(GO) test -count 1 -timeout 0 $$(grep -rl --include='*_test.go' --include=modeltest.go 'rapid\.Check(' . | xargs -n 1 dirname | sort -u | sed 's,storetest,internal/rows,')

.PHONY: life
life: ## play SEEDS random lives of a job
	HARP_SEEDS=$(SEEDS) $(GO) test ./store -run '^TestLife' -count 1 -timeout 0

.PHONY: faults
faults: ## kill, cut off and starve real processes, the long form (an hour or more); writes bin/faults.json
	@mkdir -p $(GOBIN)
	HARP_FAULTS=long HARP_FAULTS_REPORT=$(GOBIN)/faults.json $(GO) test ./internal/faults ./internal/faults/hostile -p 1 -count 1 -timeout 0 -v

.PHONY: bench
bench: ## measure harp beside its peers, ROUNDS=3 times; writes docs/performance.md; with RUN=REGEXP only what matches, without the page
	@mkdir -p $(GOBIN)
	cd bench && $(GO) build -o $(GOBIN)/bench . && $(GOBIN)/bench -rounds $(ROUNDS) $(if $(RUN),-run '$(value RUN)',-json $(GOBIN)/bench.json -page ../docs/performance.md)

.PHONY: bench-quick
bench-quick: ## the same in short, to see that it works; writes nothing
	@mkdir -p $(GOBIN)
	cd bench && $(GO) build -o $(GOBIN)/bench . && $(GOBIN)/bench -quick $(if $(RUN),-run '$(value RUN)')

.PHONY: bench-check
bench-check: $(LINT) ## format, lint and test the bench, which is a module of its own
	cd bench && $(LINT) fmt --diff && $(LINT) run ./... && $(GO) mod tidy -diff && $(GO) test ./...

.PHONY: otel-check
otel-check: $(LINT) ## format, lint and test otel, which is a module of its own
	cd otel && $(LINT) fmt --diff && $(LINT) run ./... && $(GO) mod tidy -diff && $(GO) test -race -cpu 1 -count 1 ./...

.PHONY: dist
dist: ## make what a release consists of, in ./bin/dist: archives, packages, an image, checksums
	cd dist && $(GO) run . -out $(GOBIN)/dist

.PHONY: dist-check
dist-check: $(LINT) ## format, lint and test dist, which is a module of its own: builds twice, installs, upgrades, removes
	cd dist && $(LINT) fmt --diff && $(LINT) run ./... && $(GO) mod tidy -diff && $(GO) test -timeout 30m -count 1 ./...

.PHONY: ports
ports: ## build and vet for all systems and architectures that harp is for
	@for os in linux darwin windows freebsd; do for arch in amd64 arm64; do \
		echo "$$os/$$arch" && GOOS=$$os GOARCH=$$arch CGO_ENABLED=0 $(GO) vet ./... || exit 1; \
	done; done

.PHONY: gobench
gobench: ## run the benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

$(LINT): Makefile
	GOBIN=$(GOBIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@touch $@
