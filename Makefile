# Variables: PKG=./web/... RUN=TestName and BENCH=Encode narrow tests and benchmarks; FLAGS=… goes to the program of make run.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-builtin-rules

PKG   ?= ./...
RUN   ?=
BENCH ?= .
FLAGS ?=

# Building with the version stamp fails where git refuses to read the clone (another owner): build without it there.
STAMP := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
BUILD := go build -trimpath -buildvcs=$(STAMP)

PROGRAMS  := $(notdir $(patsubst %/main.go,%,$(wildcard cmd/*/main.go)))
TEMPLATES := $(shell find . -name '*.templ' -not -path '*/node_modules/*')
GENERATED := $(TEMPLATES:.templ=_templ.go)
LIBRARIES := static/dist/htmx.min.js static/dist/hx-sse.min.js

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: export AGENT_AUTO_BACKGROUND_TASKS ?= 1
run: ## Install what is missing, build and start everything in one process: http://127.0.0.1:8080
	@scripts/need.sh git redis-server rg npm
	@$(MAKE) --no-print-directory bin/web
	@exec bin/web $(FLAGS)

.PHONY: test
test: ## Test everything with the race detector (PKG=./web/... RUN=TestName)
	@scripts/need.sh git redis-server rg npm gcc chromium nginx python3 ps
	@$(MAKE) --no-print-directory assets generate
	@go tool -modfile=tools/go.mod gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg -- \
		-race -shuffle=on -timeout=10m $(if $(RUN),-run='$(RUN)') $(PKG)

.PHONY: chaos
chaos: ## Kill, pause and cut everything for a while (CHAOS_MINUTES=10 CHAOS_TRIALS=100 CHAOS_SEED=1; RUN=TestLong)
	@scripts/need.sh git redis-server rg npm gcc
	@$(MAKE) --no-print-directory assets generate
	CHAOS=1 CHAOS_TRIALS=$${CHAOS_TRIALS:-100} CHAOS_RESTARTS=$${CHAOS_RESTARTS:-20} \
		go test -v -count=1 -timeout=90m $(if $(RUN),-run='$(RUN)') ./chaos

.PHONY: live-check
live-check: ## Ask the real API what only it can tell, for at most 1 US dollar (FLAGS='-max-usd 0.30 -slow'; docs/live-check.md)
	$(BUILD) -o bin/livecheck ./cmd/livecheck
	@bin/livecheck $(FLAGS)

.PHONY: screenshots
screenshots: ## Draw the pictures in docs/screenshots anew
	@scripts/need.sh git redis-server rg npm chromium
	@$(MAKE) --no-print-directory assets generate
	FORKYARD_SCREENSHOTS=$(CURDIR)/docs/screenshots go test -count=1 -run='^TestPages$$' ./cmd/web

.PHONY: lint
lint: bin/golangci-lint ## Check format, generated files, modules, vet, golangci-lint with staticcheck (first build: minutes)
	@scripts/lint.sh

.PHONY: bench
bench: assets generate ## Run the benchmarks (BENCH=Encode PKG=./forkcore)
	go test -run=NONE -bench='$(BENCH)' -benchmem $(PKG)

.PHONY: assets
assets: $(LIBRARIES) static/dist/chroma.css ## Fetch the browser libraries and write the colours of code when their versions changed
	@:

.PHONY: generate
generate: $(GENERATED) ## Generate Go from the templates that changed
	@:

.PHONY: format
format: ## Format Go and templates
	go tool -modfile=tools/go.mod gofumpt -w .
	$(if $(TEMPLATES),go tool templ fmt $(TEMPLATES))

.PHONY: build
build: $(PROGRAMS:%=bin/%) ## Build all programs into bin/

.PHONY: clean
clean: ## Remove what was built; data stays
	rm -rf bin static/node_modules static/dist/*

# Go knows better than make what a program depends on, and an unchanged one costs it a second.
.PHONY: $(PROGRAMS:%=bin/%)
$(PROGRAMS:%=bin/%): bin/%: assets generate
	$(BUILD) -o $@ ./cmd/$*

bin/golangci-lint: lint/go.mod lint/go.sum
	go -C lint build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# npm writes this file last, so it stands for the whole of node_modules.
static/node_modules/.package-lock.json: static/package.json static/package-lock.json static/.npmrc
	cd static && npm ci --no-progress --loglevel=error
	@touch $@

# Copies keep their own time, hence the touch; the libraries of one build change together.
$(LIBRARIES) &: static/node_modules/.package-lock.json
	cd static && npm run --silent build
	@touch $(LIBRARIES)

static/dist/chroma.css: $(wildcard static/chroma/*.go) go.mod
	go run ./static/chroma $@

# templ leaves a file alone that would not change, hence the touch.
%_templ.go: %.templ
	go tool templ generate -log-level warn -f $<
	@touch $@
