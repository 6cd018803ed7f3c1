# Every target prepares what it needs by itself: a fresh machine with Python 3.11+, make, bash
# and a way to the package registries is enough.
#
#   PYTHON=python3.12        the Python to use
#   ARGS="-k kill -x"        more arguments for pytest or the benchmarks
#   OUTLAST_TEST_ONCE=1      as root, do not run some of them as a plain user too

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint guard guard-sanitize wheels bench episodes clients client-figures test-ray fuzz bypasses soak clean

ARGS ?=
CODE := $(wildcard src tests bench)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

demo: ## the main job in half a minute
	@scripts/setup runtime
	@.venv/bin/outlast demo

test: ## the tests; as root some of them also as a plain user
	@scripts/test $(ARGS)

lint: ## ruff, mypy and the direction of imports
	@scripts/setup dev
	.venv/bin/ruff check $(CODE)
	.venv/bin/ruff format --check $(CODE)
	.venv/bin/python -m mypy $(CODE)
	.venv/bin/lint-imports --no-logo

guard: ## builds outlast-guard in place, if a C file changed
	@scripts/setup runtime
	@.venv/bin/python -c "from outlast.guard.client import find_guard; print(find_guard())"

guard-sanitize: ## the guard's tests with ASan and UBSan, and its parser fuzzed
	@scripts/guard-sanitize $(ARGS)

wheels: ## a wheel for x86_64 and one for aarch64 in dist/, each tried; ARGS=x86_64 makes one
	@scripts/setup dev
	@scripts/wheels $(ARGS)

bench: ## the benchmarks, beside other systems where they can be had
	@scripts/setup dev
	@scripts/setup peers
	.venv/bin/python -m bench $(ARGS)

episodes: ## ten pieces of work with the tools of Outlast and others, in tokens and calls; ARGS="--fast --only Outlast"
	@scripts/setup dev
	@scripts/setup clients
	@scripts/setup episodes
	@.venv/bin/python -m bench.episodes $(ARGS)

clients: ## the tests with Claude Code, Codex, the MCP inspector and the conformance suite, offline
	@scripts/setup dev
	@scripts/setup tools
	@scripts/setup clients
	.venv/bin/python -m pytest -m clients $(ARGS) tests/clients tests/cli/test_setup.py

test-ray: ## the contract of executors over Ray (0.4 GB, into .venv-ray, once), which starts a job in seconds
	@scripts/setup dev
	@scripts/setup tools
	@scripts/setup ray
	.venv/bin/python -m pytest -m ray -q --timeout=300 $(ARGS) tests/executors

client-figures: ## the same scenes with calls, tokens and times; ARGS="claude codex"
	@scripts/setup dev
	@scripts/setup tools
	@scripts/setup clients
	@.venv/bin/python -m tests.clients $(ARGS)

fuzz: ## lines that try to get past the judge, in a sandbox; ARGS="LINES SEED"
	@scripts/setup dev
	@scripts/setup tools
	.venv/bin/python -m tests.policy.fuzz $(ARGS)

bypasses: ## the known attempts to get past a policy, judged and run in a sandbox; ARGS="FILE..."
	@scripts/setup dev
	@scripts/setup tools
	.venv/bin/python -m tests.policy.bypass $(ARGS)

soak: ## the faults and loads in their full size, for hours
	@scripts/setup dev
	@scripts/setup tools
	OUTLAST_SOAK=1 .venv/bin/python -m pytest -m soak -q --timeout=14400 $(ARGS)

clean: ## removes everything that make has made, .venv too
	rm -f src/outlast/guard/outlast-guard*
	rm -rf .venv .venv-peers .venv-clients .venv-ray build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +
