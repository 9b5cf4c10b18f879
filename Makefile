# Everything runs in .venv, which `setup` makes; ARGS passes extra arguments on.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types layers check lock bench clean

BIN := .venv/bin
ARGS ?=
JOBS ?= 2

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup: ## Java 17 or newer and the locked Python environment
	@sh scripts/setup.sh

demo: setup ## a guided tour on a running engine
	@$(BIN)/penstock demo $(ARGS)

test: setup ## all tests (ARGS="-m 'not slow'" for the quick ones), JOBS files at a time
	@$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: setup ## rewrite to the style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## types: strict in the pure layers
	@$(BIN)/mypy

layers: setup ## imports go one way
	@$(BIN)/lint-imports --no-logo --no-cache

check: lint types layers test ## all of the above

lock: setup ## write requirements.lock anew (ARGS=--upgrade for newer versions)
	@$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 \
		--group dev --extra bench --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --no-emit-find-links --quiet $(ARGS) --output-file requirements.lock

bench: setup ## one benchmark, NAME=...; without a name, the list
	@$(BIN)/python -m penstock.bench $(NAME) $(ARGS)

clean: ## remove the environment and all caches
	rm -rf .venv build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis\
		.import_linter_cache spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
