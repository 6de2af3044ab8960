# Verbs of the project; `make help` lists them.
.SHELLFLAGS := -eu -o pipefail -c
SHELL := bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help
help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'
