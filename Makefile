# Each target installs what it needs, and says so. If nothing changed, that takes a tenth of a second.
# Paths are relative on purpose: make cannot handle a space in one, and the directory above may have it.

PYTHON ?= python3
ARGS ?=
MINUTES ?= 10
# With bytecode, also where PYTHONDONTWRITEBYTECODE is set: the tests start hundreds of Pythons, and each would compile.
PYTEST = PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest -n 2
SHELL_FILES = .ci/run $(shell find deploy src tests tools -name '*.sh' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help run check test test-real prove bench docs lock clean set-up-run set-up-dev

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: set-up-run ## Run Holdfast; options in ARGS, e.g. make run ARGS="--port 9000"
	@.venv/bin/holdfast run $(ARGS)

check: set-up-dev ## Check style, types, import directions, shell files and generated docs
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/shellcheck $(SHELL_FILES)
	.venv/bin/python -m tools.docs --check

test: set-up-dev ## Run the tests; skip those whose server is missing
	@.venv/bin/python -m tests.servers.dynamodb_local || true
	@.venv/bin/python -m tests.servers.octokit_examples || true
	@.venv/bin/python -m tests.servers.tlc || true
	$(PYTEST) --dist worksteal -m "not slow and not prove" $(ARGS)

test-real: set-up-dev ## Run the slow tests and those on real servers; a missing server is a failure
	@.venv/bin/python -m tests.servers.prometheus
	@.venv/bin/python -m tests.servers.dynamodb_local
	@.venv/bin/python -m tests.servers.kube_apiserver
	@.venv/bin/python -m tests.servers.octokit_examples
	@.venv/bin/python -m tests.servers.tlc
	REAL_SERVERS=1 $(PYTEST) -m "(real or slow) and not prove" $(ARGS)

prove: set-up-dev ## Search new seeds in the simulator and run the longest tests; MINUTES=60 for an hour
	.venv/bin/python -m tools.prove --minutes $(MINUTES) --jobs 2
	HYPOTHESIS_PROFILE=prove $(PYTEST) -m prove $(ARGS)

bench: set-up-dev ## Run all benchmarks; writes bench/RESULTS.md
	.venv/bin/python -m bench all

docs: set-up-dev ## Generate the reference pages and the command output in other pages
	.venv/bin/python -m tools.docs

lock: ## Regenerate the lock files after a change of pyproject.toml; UPGRADE=1 takes newer versions
	@$(PYTHON) -m tools.lock $(if $(UPGRADE),--upgrade)

clean: ## Remove .venv and caches; keeps .holdfast, which is data
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

set-up-run:
	@$(PYTHON) tools/setup.py run

set-up-dev:
	@$(PYTHON) tools/setup.py dev
