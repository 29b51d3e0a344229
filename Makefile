# make run      set up and run the quickstart job       make run JOB=jobs/sgd.yaml ARGS="--help"
# make test     set up, lint and test                   make test ARGS="-k tracker"
# make setup    only the set-up (EXTRA=gpu on a machine with a GPU; PYTHON=... to choose the Python)
SHELL := /bin/bash
EXTRA ?= cpu
JOB ?= jobs/quickstart.yaml
ARGS ?=
BIN := .venv/bin
export EXTRA PYTHON

.PHONY: help setup model run test lint format bench clean

help:
	@sed -n 's/^# //p' Makefile

setup:
	@infra/setup.sh

model: setup
	@$(BIN)/python -m dialoom.models >/dev/null

run: model
	@$(BIN)/dialoom run $(JOB) $(ARGS)

lint: setup
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/mypy || status=1; \
	exit $$status

test: model
	@status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	$(BIN)/pytest $(ARGS) || status=1; \
	exit $$status

format: setup
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

bench: model
	@$(BIN)/dialoom bench $(ARGS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build
