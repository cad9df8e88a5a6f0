# Every target sets up what it needs. PYTHON may name another interpreter, 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SETUP := pyproject.toml constraints.txt
# Kernels are compiled when first called, and kept: once, on the core that mypy leaves free, by tests
# that call each of them, so that no two workers compile the same.
# Before them one process collects all tests: the byte code it writes serves the workers. What fails
# there fails again, and says so, when the tests are run.
COMPILE := ( $(BIN)/python -m pytest -q --collect-only >/dev/null; $(BIN)/python -m pytest -q \
  -k 'all_paths or objective or literal_twin or one_loss or compiled or kalman or logs_agree or interval_on or equals_its_twin or even_noise \
  or golden_values or class_that_refuses or into_the_next_week' \
  $(addprefix tests/,learning/test_learn_em.py accounting/test_leakage_kernel.py lab/test_simulate.py \
  model/test_grid.py belief/test_load_filter.py mechanism/test_loss.py accounting/test_blocks_of_steps.py \
  planning/test_blocks_of_steps.py lab/test_method_promises.py belief/test_block_noise.py \
  accounting/test_account.py curator/test_account.py) )
# A run starts dozens of processes: what one of them has compiled serves the others.
export PYTHONDONTWRITEBYTECODE :=
# Workers fill the cores: threads of OpenBLAS that wait for one spin, up to 30 times the work itself.
test check soak: export OPENBLAS_NUM_THREADS := 1
# Threads of a kernel wait for one another: with other workers on their core they mostly wait.
test check soak: export NUMBA_NUM_THREADS := 1
# Tests by example take the same ones every time, and a quarter of them, but here; so do others with
# counts (tests/examples.py).
soak: export HUSHGRID_RANDOM := 1
# What the tests need and what pip brings come at the same time.
MAKEFLAGS += -j2
INSTALL := DEBIAN_FRONTEND=noninteractive sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$$@"' -

.PHONY: run demo docs test check soak bench sbom services consumers load clean

run: $(VENV)/.run  ## one simulated day, judged; then the paper's table, shortened
	$(BIN)/hushgrid demo --once --out out/demo
	$(BIN)/hushgrid paper --days 20 --sweep-days 2 --out out/paper

demo: $(VENV)/.run  ## a living zone in the browser, a day in two minutes
	$(BIN)/hushgrid demo

docs: $(VENV)/.docs  ## the documentation site with its gallery: out/docs/index.html
	$(BIN)/python -m sphinx -q -W --keep-going -d out/doctrees docs out/docs

test: check  ## the same; what CI runs

check: $(VENV)/.dev services  ## format, lint, types, import contracts, tests with doctests
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/python scripts/names.py --files 0 >/dev/null
	$(COMPILE) & made=$$!; $(BIN)/mypy && $(BIN)/lint-imports --no-logo && wait $$made
	$(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder

soak: $(VENV)/.dev services consumers  ## the full counts, as JSON
	$(BIN)/hushgrid paper --days 2000 --sweep-days 50 --out out/soak --json soak.json
	$(BIN)/hushgrid compare --days 200 --out out/soak/compare --json out/soak/compare.json
	$(BIN)/hushgrid compare --days 200 --shock 0.3 --no-batteries --chart-days 0 --attack-days 0 \
	  --out out/soak/shock --json out/soak/compare-shock.json
	$(BIN)/hushgrid compare --days 200 --sigma 0.02 --no-batteries --chart-days 0 --attack-days 0 \
	  --out out/soak/sigma --json out/soak/compare-sigma.json
	HUSHGRID_COMPARED=out/soak $(BIN)/python -m pytest -v tests/lab/test_compare_soak.py
	HUSHGRID_PAPER_DAYS=200 $(BIN)/python -m pytest -q tests/lab/test_paper.py
	HUSHGRID_DAYS=200 $(BIN)/python -m pytest -q tests/belief/test_estimate_days.py tests/belief/test_uncertainty.py
	HUSHGRID_ZONES=20 $(BIN)/python -m pytest -q tests/adversary/test_factored.py
	HUSHGRID_WORLDS=1000 $(BIN)/python -m pytest -q tests/adversary/test_odds.py tests/mechanism/test_support.py
	HUSHGRID_EXAMPLES=25 $(BIN)/python -m pytest -q tests/web/http/test_openapi.py tests/operate/batch/test_batch.py \
	  tests/web/openadr/test_description.py
	HUSHGRID_EXAMPLES=600 $(BIN)/python -m pytest -q tests/intake/test_lines.py
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m hypothesis
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'soak or sampled' --ignore tests/operate/attack  # those have lines of their own
	$(BIN)/python -m pytest -q tests/operate/batch/test_batch_spark.py
	$(BIN)/python -m pytest -q tests/operate/test_two_worlds.py tests/browser/test_pages.py tests/planning/test_plan.py \
	  tests/planning/test_clamp.py tests/accounting/test_account.py tests/accounting/test_account_worlds.py \
	  tests/curator/test_account.py tests/curator/test_windows.py \
	  tests/stores/ledger/test_ledger_crash.py tests/web/openadr/test_webhooks.py
	HUSHGRID_LIVES=300 $(BIN)/python -m pytest -q tests/stores/meters/test_meter_model.py
	HUSHGRID_KILLS=300 $(BIN)/python -m pytest -q tests/curator/test_kill.py
	rm -rf out/soak/faults out/soak/crowd.json
	HUSHGRID_FAULTS_COUNT=300 HUSHGRID_FAULTS_REPORT=out/soak/faults $(BIN)/python -m pytest -q -n 4 \
	  tests/operate/attack/test_faults.py
	HUSHGRID_CROWD_REPORT=out/soak/crowd.json $(BIN)/python -m pytest -q -s tests/operate/attack/test_latency.py
	$(BIN)/python -m pytest -q tests/operate/attack/test_restarts.py
	HUSHGRID_FAILOVERS=60 $(BIN)/python -m pytest -q -s tests/operate/standby/test_failover.py
	HUSHGRID_FITS=500 $(BIN)/python -m pytest -q tests/learning/test_learn_private.py
	HUSHGRID_DEMO_SEEDS=10 $(BIN)/python -m pytest -q tests/demo/test_demo_once.py

# Broker, database, proxy, browser, Java and promtool for the tests, by package name where that is
# possible; else they skip.
services:
	@missing=; \
	command -v mosquitto >/dev/null || test -x /usr/sbin/mosquitto || missing="$$missing mosquitto"; \
	ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	test -x /usr/sbin/nginx || missing="$$missing nginx-light"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	command -v java >/dev/null || missing="$$missing default-jre-headless"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	test -z "$$missing" || $(INSTALL) $$missing || for one in $$missing; do $(INSTALL) $$one || \
	  echo "$$one is not installed and cannot be: its tests are skipped"; done

# What runs the blocks of docs/feeds.md, each in a folder of its own: Node-RED (120 MB), Home Assistant
# (620 MB, Python 3.13) and EMHASS (1 GB, Python 3.12), so for make soak alone.
python_of = $(firstword $(foreach one,python$(1) $(wildcard $(HOME)/.pyenv/versions/$(1)*/bin/python),$(shell \
  $(one) -c 'import sys; print(sys.executable * ("%d.%d" % sys.version_info[:2] == "$(1)"))' 2>/dev/null)))
# name, Python, packages
apart = test -e .venv-$(1)/.made || ( test -n "$(call python_of,$(2))" && $(call python_of,$(2)) -m venv .venv-$(1) && .venv-$(1)/bin/python -m pip \
  install --quiet --disable-pip-version-check -c constraints-$(1).txt $(3) && touch .venv-$(1)/.made ) || \
  ( rm -rf .venv-$(1) && echo "$(firstword $(3)) is not installed and cannot be: its test is skipped" )
consumers:
	@test -e .node-red/node_modules/.bin/node-red || \
	  npm install --silent --no-audit --no-fund --prefix .node-red node-red@4.1.15 || \
	  echo "Node-RED is not installed and cannot be: its test is skipped"
	@$(call apart,ha,3.13,pytest-homeassistant-custom-component jsonpath xmltodict)
	@$(call apart,emhass,3.12,emhass)

# What makes load for a benchmark; without it there is one in Python.
load:
	@command -v wrk >/dev/null || $(INSTALL) wrk || echo "wrk is not installed and cannot be"

sbom: $(VENV)/.dev  ## a bill of materials (CycloneDX) of what serves prices: out/sbom.json
	mkdir -p out && $(BIN)/python scripts/sbom.py --extra serve --extra postgres > out/sbom.json

bench: $(VENV)/.bench load  ## ratios against peers, as JSON
	$(BIN)/python -m benchmarks --json bench.json

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || ( rm -rf $(VENV) && \
	  $(PYTHON) -m pip install --quiet --user --break-system-packages virtualenv && \
	  $(PYTHON) -m virtualenv --quiet $(VENV) )

$(VENV)/.run: $(SETUP) | $(BIN)/python
	$(PIP) -e '.[plot,serve]'
	touch $@

$(VENV)/.docs: $(SETUP) | $(BIN)/python
	$(PIP) -e '.[docs]'
	touch $@

$(VENV)/.dev: $(SETUP) | $(BIN)/python
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.bench: $(SETUP) | $(BIN)/python
	$(PIP) -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) .venv-ha .venv-emhass .node-red out build docs/api docs/gallery .mypy_cache .ruff_cache .pytest_cache .hypothesis bench.json soak.json compare*.json
