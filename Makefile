# Each target installs what it needs. CONTRIBUTING.md describes the scripts for everything else.
# `make test PYTHON=python3.13` runs everything with that Python, in a separate environment.
ifneq ($(and $(PYTHON),$(filter lint check test test-slow,$(MAKECMDGOALS))),)
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv-$(or $(VERSION),$(error $(PYTHON) does not run))
else
VENV := .venv
endif
BIN := $(VENV)/bin

.PHONY: setup run check test test-slow lint bench docs deb clean
.DEFAULT_GOAL := run

PIP := sh deploy/pip.sh $(BIN)/python

# The tests store the bytecode that they compile.
PYTEST := env --unset=PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

# Install the bridge. Compile it if there is a C compiler (docs/explanation/speed.md).
setup: $(VENV)/.ready
	@sh deploy/compiled.sh $(BIN)/python sh deploy/compile.sh $(VENV)

# The embedded queue manager and a bridge, or `make run ARGS=bridge.yaml`.
run: $(VENV)/.ready
	@$(BIN)/python -c 'from bridge.compilation import PURE; \
	    print(f"pure Python ({PURE}); to compile it, which takes a minute: sh deploy/compile.sh" if PURE else "compiled modules")'
	@$(BIN)/mqbridge run $(ARGS)

# The static checks, then the tests in five processes. ARGS are options and paths of pytest.
test: $(VENV)/.ready-test
	@sh deploy/setup.sh $(VENV)
	@$(MAKE) --no-print-directory --jobs=2 lint $(VENV)/.programs $(VENV)/.collected
	@$(PYTEST) -n 5 --times $(ARGS)

# Before each commit: the static checks, and the unit tests, with few examples.
check: $(VENV)/.ready-test
	@$(MAKE) --no-print-directory --jobs=2 lint $(VENV)/.unit

.PHONY: $(VENV)/.unit
$(VENV)/.unit: $(VENV)/.ready-test
	@# Without the tests that inject a fault at each MQI call, the long runs of models, and the files that take or wait for seconds.
	@# Temporary files in memory, because each queue manager creates and syncs a database. pytest-timeout starts a thread for
	@# each test. Instead, the stacks of a hanging test are printed, and the run continues.
	@[ ! -w /dev/shm ] || export TMPDIR="$${TMPDIR:-/dev/shm}"; \
	    MQBRIDGE_TEST_EXAMPLES=$${MQBRIDGE_TEST_EXAMPLES:-5} $(PYTEST) -n $$(($$(nproc) < 7 ? $$(nproc) + 1 : 8)) -m 'not slow' tests/unit $(ARGS) \
	    -o timeout=0 -o faulthandler_timeout=120 $(patsubst %,--ignore=tests/unit/%.py,$(CAMPAIGNS))

CAMPAIGNS := $(addprefix service/mappings/test_,guarantees blocked_queues session_changes) \
    $(addprefix mq/ibm/test_,backend acceptance share_receiver two_bridges) mqtt/test_delivery_model \
    mqtt/link/test_link_connection service/test_will_grace console/test_health wire/mqtt/test_quota

# Campaigns that take too long for every change. The bridge compiled. More examples of each property. The newest packages.
test-slow: $(VENV)/.ready-test
	@sh tests/newest.sh
	@MAKEFLAGS= sh tests/programs.sh $(BIN)/python slow
	@# Helm's engine, 75 MB.
	@$(PIP) "Helm's engine" helm-python-sdk==0.2.2
	@$(PYTEST) -m slow $(ARGS)
	@sh deploy/compile.sh $(VENV)
	@# Without installation and the two longest campaigns, which ran above.
	@MQBRIDGE_PURE=0 $(PYTEST) -n 3 -m 'slow or not slow' tests/unit/wire tests/unit/mapping tests/unit/mqtt tests/unit/mq \
	    tests/unit/service tests/process/mq tests/process/service tests/process/cli/test_process.py tests/acceptance \
	    --ignore=tests/acceptance/deploy --ignore=tests/acceptance/test_attack.py --ignore=tests/acceptance/test_incident_table.py
	@MQBRIDGE_TEST_EXAMPLES=400 $(PYTEST) -n 3 tests/unit/wire tests/unit/mapping tests/unit/mqtt tests/unit/mq/embedded tests/unit/archive \
	    tests/process/archive tests/process/record

# ruff (rules and format), mypy --strict and import-linter.
lint: $(VENV)/.ready-test
	@$(BIN)/ruff check bridge tests deploy docs
	@$(BIN)/ruff format --quiet --diff bridge tests deploy docs
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# The rates of the bridge, other brokers, the archive and a pipeline. AGAINST=COMMIT compares the working tree with a commit, and
# AGAINST=compiled the compiled bridge with the pure one.
bench: $(VENV)/.ready-test
	@MAKEFLAGS= sh tests/programs.sh $(BIN)/python
ifdef AGAINST
	@$(BIN)/python -m tests.benchmarks.against $(AGAINST) $(ARGS)
else
	@for benchmark in "" .transports .archive .audit .pipeline; do \
	    $(BIN)/python -m tests.benchmarks$$benchmark || exit 1; \
	done
endif

# The pages of docs/ in build/docs. A broken link is an error.
docs: $(VENV)/.ready deploy/requirements-docs.txt
	@$(PIP) "the Python packages of the documentation" --require-hashes -r deploy/requirements-docs.txt
	@# Not --quiet: it silences the warnings that --strict counts.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/docs/index.html is the first page"

# The Debian package of this version, in build/.
deb:
	@sh deploy/deb.sh

clean:
	rm -rf .venv .venv-* build bridge/compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A moved environment, or one whose Python was removed, is created again.
UNUSABLE := $(shell sh deploy/setup.sh --check $(VENV) || echo unusable)
.PHONY: unusable

$(VENV)/.ready: pyproject.toml bridge/spark/mqbridge.py deploy/setup.sh deploy/requirements.txt $(UNUSABLE)
	@sh deploy/setup.sh $(VENV)
	@echo "setup: installing the bridge and its Python packages"
	@$(PIP) "the bridge's Python packages" --require-hashes -r deploy/requirements.txt
	@$(PIP) "the bridge" --no-deps --no-build-isolation --editable .
	@cd $(VENV) && pwd -P >.ready

# --no-compile: most modules of these packages are never imported.
$(VENV)/.ready-test: $(VENV)/.ready deploy/requirements-test.txt
	@sh deploy/setup.sh $(VENV)
	@echo "setup: installing the Python packages of the tests (several hundred megabytes: Spark, Java, Node.js)"
	@export DIST_EXTRA_CONFIG="$(CURDIR)/deploy/wheels.cfg"; \
	    $(PIP) "the tests' Python packages" --no-compile --require-hashes -r deploy/requirements-test.txt
	@touch $@

.PHONY: $(VENV)/.programs
$(VENV)/.programs: $(VENV)/.ready-test
	@MAKEFLAGS= sh tests/programs.sh $(BIN)/python

# Compiles the bytecode once, before five processes start.
$(VENV)/.collected: $(VENV)/.ready-test
	@$(PYTEST) --collect-only -qq -n 0 >$@ || { cat $@; rm $@; exit 1; }
