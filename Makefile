# The two commands that matter: `make demo` and `make test`. `make help` lists the others.
SHELL := /bin/sh
VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
export PYTHONPATH := $(CURDIR)/include:$(CURDIR)/plugins:$(CURDIR)
# Tasks of Airflow start in half the time when bytecode may be written.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dist matrix docs-images demo demo-target demo-up demo-down test test-setup test-all test-times tidb forms check fast lint type format bench docs clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install what is missing: Debian packages (root or sudo), virtual environment
	@sh .ci/setup $(VENV)

$(READY): requirements.txt pyproject.toml plugins/pyproject.toml .ci/setup
	@sh .ci/setup $(VENV)

TARGET := mariadb
MODE := pessimistic

demo: setup demo-target ## merge eight live shards through Airflow and Spark, check the result, clean up; TARGET=tidb, MODE=optimistic
	@$(PYTHON) -m unshard_demo run --target $(TARGET) --mode $(MODE)

demo-up: setup demo-target ## the same, but leave everything running and print where to look
	@$(PYTHON) -m unshard_demo up --target $(TARGET) --mode $(MODE)

demo-target:
	@if [ $(TARGET) = tidb ]; then sh .ci/tidb/build; fi

demo-down: ## stop what demo-up left running
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m unshard_demo down; else echo "nothing is set up, so nothing runs"; fi

# Tests wait for servers a part of their time, so there are two processes more than cores.
PYTEST := $(PYTHON) -m pytest --numprocesses $(shell expr $$(nproc) + 2)

test-setup: setup
	@sh .ci/setup $(VENV) browser
	@sh .ci/servers

test: test-setup ## the tests that show that a change is right, 15 minutes on 2 cores; with TiDB if `make tidb` has built it
	@$(PYTEST) tests

test-all: test-setup tidb ## all tests on all targets, part by part: hours
	@$(PYTHON) -m tests.suite.everything

test-times: test-setup ## `make test`, then where its time went; writes tests/suite/durations.json
	@rm -rf build/times
	@$(PYTEST) tests -p tests.suite.times; $(PYTHON) -m tests.suite.times

tidb: ## build TiDB for the tests and the demo: 6 to 11 minutes, once
	@sh .ci/tidb/build

forms: setup ## run all forms of DDL on real servers and write docs/ddl-on-tidb.md
	@sh .ci/servers
	@sh .ci/tidb/build
	@$(PYTHON) -m tests.ddlforms

check: $(READY) ## lint, types and fast tests, side by side: under a minute
	@$(MAKE) --no-print-directory --output-sync -j3 lint type fast

dist: $(READY) ## build the two wheels into build/dist and check them
	@rm -rf build/dist
	@for part in . plugins; do $(VENV)/bin/uv build --quiet --wheel --out-dir build/dist $$part || exit 1; done
	@$(VENV)/bin/uv tool run --quiet twine check --strict build/dist/*.whl
	@$(VENV)/bin/uv tool run --quiet check-wheel-contents build/dist/unshard-*.whl
	@$(VENV)/bin/uv tool run --quiet check-wheel-contents --toplevel airflow,unshard_airflow build/dist/apache_*.whl

matrix: dist ## try the wheels with each combination of Airflow, Spark and Python, and write docs/compatibility.md
	@$(PYTHON) -m tests.suite.matrix --page docs/compatibility.md

lint: $(READY) ## ruff
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

type: $(READY) ## mypy --strict
	@$(VENV)/bin/mypy include/unshard include/unshard_demo plugins dags spark_jobs

fast: $(READY) ## the unmarked tests, with fewer random games and deaths than `make test`
	@UNSHARD_TESTS=fast $(PYTHON) -m pytest tests/unit tests/scenario -q --numprocesses 2 -m "not integration and not spark and not e2e and not slow"

format: $(READY) ## rewrite the layout of the code
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

BENCH := $(PYTHON) -m tests.bench --page docs/figures.md --part-seconds 160
LARGE := --rows 500000 --backlog-seconds 10

bench: setup ## measure against peers and write docs/figures.md: about an hour
	@sh .ci/setup $(VENV) bench
	@$(BENCH) p q
	@$(BENCH) f g h i j k n o s
	@$(BENCH) a b c d e l r $(LARGE)
	@$(BENCH) m $(LARGE) --backlog-seconds 20
	@$(BENCH) a b c d e $(LARGE) --durable

MATERIAL := 9.8.2
docs: $(READY) ## rewrite the generated pages of docs/, and build the site in build/site
	@$(PYTHON) -m unshard.config.configpage docs/config.md
	@$(PYTHON) -m unshard.adapters.meta.reference > docs/meta-tables.md
	@$(PYTHON) -m tests.suite.rare
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/uv tool run --quiet --with mkdocs-material==$(MATERIAL) mkdocs build --quiet

docs-images: test-setup ## make the pictures of the docs from a demo and a browser: 15 minutes
	@$(PYTHON) -m tests.pictures

clean: demo-down ## remove the virtual environment, the demo's folder and caches
	@rm -rf $(VENV) .demo .servers build .pytest_cache .mypy_cache .ruff_cache .hypothesis
