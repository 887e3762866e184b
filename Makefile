# The targets fetch what is missing themselves; see README.md.
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup compile lock run test stand-in mqtt-js check test-newest test-slow test-fresh fuzz abuse audit docs reference bench bench-bridge bench-transports bench-archive bench-metrics bench-memory bench-traces bench-console bench-passwords bench-remote bench-pipeline deb clean
.DEFAULT_GOAL := run

# pip unpacks more than 2 GB for the tests. /tmp is too small for that if it is in memory, as on Debian 13.
PIP := mkdir -p $(VENV)/tmp && TMPDIR="$(CURDIR)/$(VENV)/tmp" $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Compiled as well where a C compiler is there (docs/explanation/speed.md): none is fetched, and without one nothing fails.
setup: $(VENV)/.ready
	@sh deploy/compiled.sh $(BIN)/python $(MAKE) --no-print-directory compile

# A moved environment, or one whose Python was removed, is created again.
UNUSABLE := $(shell sh deploy/setup.sh --check $(VENV) || echo unusable)
.PHONY: unusable

$(VENV)/.ready: pyproject.toml deploy/setup.sh deploy/requirements.txt $(UNUSABLE)
	@sh deploy/setup.sh $(VENV)
	@echo "setup: installing the bridge and its Python packages"
	@$(PIP) --require-hashes -r deploy/requirements.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@rm -rf $(VENV)/tmp
	@cd $(VENV) && pwd -P >.ready

# Machine code of the modules that messages pass, anew, with a compiler that is fetched where none is there.
compile: $(VENV)/.ready-compile
	@sh deploy/compiler.sh $(BIN)/python
	@$(BIN)/python deploy/compile.py

$(VENV)/.ready-compile: $(VENV)/.ready deploy/requirements-compile.txt
	@sh deploy/setup.sh $(VENV)
	@echo "setup: installing the compiler mypyc"
	@$(PIP) --require-hashes -r deploy/requirements-compile.txt
	@rm -rf $(VENV)/tmp
	@touch $@

# What the tests and benchmarks need beside the bridge itself. Modules are compiled when they are imported first: most never are.
$(VENV)/.ready-test: $(VENV)/.ready deploy/requirements-test.txt
	@sh deploy/setup.sh $(VENV)
	@echo "setup: installing the Python packages of the tests (several hundred megabytes: Spark, Java, Node.js)"
	@rm -rf $(VENV)/tmp
	@export DIST_EXTRA_CONFIG="$(CURDIR)/deploy/wheels.cfg"; $(PIP) --no-compile --require-hashes -r deploy/requirements-test.txt
	@rm -rf $(VENV)/tmp
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready-test
	@touch $@

# The lock files anew, of the newest releases that pyproject.toml allows, for every Python from 3.11 on.
lock:
	@sh deploy/lock.sh

run: $(VENV)/.ready
	@$(BIN)/mqbridge run $(ARGS)

# The tests in five processes (tests/conftest.py has their groups). ARGS are options and paths of pytest.
test: $(VENV)/.ready
	@sh deploy/setup.sh $(VENV)
	@$(MAKE) --no-print-directory --jobs=2 stand-in mqtt-js check $(VENV)/.compiled
	@$(PYTEST) -n 5 $(ARGS)

# The tests' processes are as a user's: what one has compiled, the next one loads.
PYTEST = env --unset=PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

# What the tests need of the system, and for IBM's packages.
stand-in: $(VENV)/.ready
	@sh tests/system-packages.sh
	@MAKEFLAGS= sh testing/ibm_standin/environments.sh $(BIN)/python

mqtt-js: $(VENV)/.ready-test
	@sh tests/node-packages.sh $(BIN)/python mqtt_js

check: $(VENV)/.ready-test
	@$(BIN)/ruff check bridge tests testing benchmarks fuzz deploy docs
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Five processes that begin together would each compile what the tests import.
$(VENV)/.compiled: $(VENV)/.ready-test
	@$(PYTEST) --collect-only -qq -n 0 >$@ || { cat $@; rm $@; exit 1; }

# What needs no lock: the newest releases that pyproject.toml allows, in an environment of its own.
test-newest:
	@sh deploy/setup.sh $(VENV)-newest
	@$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[dev]'
	@cd $(VENV)-newest && pwd -P >.ready
	@$(VENV)-newest/bin/python -m pytest tests/unit/wire tests/unit/mapping tests/unit/config tests/unit/mqtt tests/unit/cli tests/unit/mq/embedded

# Of compiled code: what drives it, from its bytes to whole processes with kills and failing disks.
COMPILED_TESTS := tests/unit/wire tests/unit/mapping tests/unit/mqtt tests/unit/mq tests/unit/service tests/acceptance tests/unit/cli/test_process.py

# What takes too long for every change: pipelines whose processes are killed, and on a cluster; the bridge compiled; more
# examples of each property; the newest releases.
test-slow: $(VENV)/.ready-test test-newest stand-in mqtt-js
	@sh tests/system-packages.sh slow
	@sh tests/node-packages.sh $(BIN)/python browser
	@$(BIN)/python -m pytest -m slow $(ARGS)
	@$(MAKE) --no-print-directory compile
	@MQBRIDGE_PURE=0 $(BIN)/python -m pytest -n 3 -m 'slow or not slow' $(COMPILED_TESTS)
	@MQBRIDGE_TEST_EXAMPLES=400 $(BIN)/python -m pytest tests/unit/wire tests/unit/mapping tests/unit/mqtt tests/unit/mq/embedded tests/unit/archive

# The two commands of the README on fresh machines: chroots of Debian 12 and 13, as root and as an ordinary user. Run it as root.
test-fresh:
	@sh tests/fresh.sh $(ARGS)

# Bytes of strangers at every listener of a bridge, with a pair of clients beside it that must not notice.
fuzz: $(VENV)/.ready-test
	@$(BIN)/python -m fuzz $(ARGS)

# Abusive clients against a bridge: how long another client waits, and how much memory and processor time they cost.
abuse: $(VENV)/.ready-test
	@$(BIN)/python -m fuzz.abuse $(ARGS)

# Writes the pages of docs/reference that are generated from the program.
reference: $(VENV)/.ready
	@$(BIN)/python docs/reference.py

# Builds the pages of docs/ in build/docs, and fails on broken links.
docs: $(VENV)/.ready deploy/requirements-docs.txt
	@$(PIP) --require-hashes -r deploy/requirements-docs.txt
	@# Not --quiet: it silences the warnings that --strict counts.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/docs/index.html is the first page"

# Known vulnerabilities of what is locked, and what that is (CycloneDX), in build/sbom.json.
audit:
	@sh deploy/setup.sh $(VENV)-audit
	@$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/requirements-audit.txt
	@cd $(VENV)-audit && pwd -P >.ready
	@mkdir -p build
	@$(VENV)-audit/bin/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml -o build/sbom.json deploy/requirements.txt
	@echo "build/sbom.json says what the bridge consists of (CycloneDX)"
	@for lock in requirements requirements-test requirements-compile; do \
	    $(VENV)-audit/bin/pip-audit --strict --progress-spinner off --require-hashes --disable-pip -r deploy/$$lock.txt || exit 1; \
	done

# The Debian package of this version, in build/.
deb:
	@sh deploy/deb.sh

# What is measured: the bridge beside other brokers, with and without an archive, then the pipeline. With AGAINST=COMMIT:
# the working tree beside that commit and mosquitto; with AGAINST=compiled compiled beside pure.
ifdef AGAINST
bench: $(VENV)/.ready-bench
	@sh tests/system-packages.sh
	@$(BIN)/python -m benchmarks.against $(AGAINST) $(ARGS)
else
bench: bench-bridge bench-transports bench-archive bench-pipeline
endif

# The bridge beside mosquitto and amqtt.
bench-bridge: $(VENV)/.ready-bench
	@sh tests/system-packages.sh
	@$(BIN)/python -m benchmarks $(ARGS)

# TLS and WebSockets beside mosquitto's.
bench-transports: $(VENV)/.ready-bench
	@sh tests/system-packages.sh
	@$(BIN)/python -m benchmarks.transports $(ARGS)

# What an archive costs, and its audit.
bench-archive: $(VENV)/.ready-bench $(VENV)/.ready-test
	@$(BIN)/python -m benchmarks.archive
	@$(BIN)/python -m benchmarks.audit

# What metrics cost, switched on and off under one load.
bench-metrics: $(VENV)/.ready-bench $(VENV)/.ready-test
	@$(BIN)/python -m benchmarks.metrics $(ARGS)

# Memory per idle client and per durable session, the rate of new sessions, and the restart with 10,000 of them.
bench-memory: $(VENV)/.ready-bench
	@$(BIN)/python -m benchmarks.memory $(ARGS)

# What traces cost, switched on and off under one load.
bench-traces: $(VENV)/.ready-bench $(VENV)/.ready-test
	@$(BIN)/python -m benchmarks.traces $(ARGS)

# How long pages of the console take with 10,000 sessions and 1,000 queues.
bench-console: $(VENV)/.ready-bench
	@$(BIN)/python -m benchmarks.console

# How long 1,000 clients with argon2id passwords take to reconnect after kill -9; ARGS=--cold: to connect for the first time.
bench-passwords: $(VENV)/.ready-bench
	@$(BIN)/python -m benchmarks.passwords $(ARGS)

# Publications on a queue manager behind a network (real ibmmq on the stand-in for IBM's client library).
bench-remote: $(VENV)/.ready-bench
	@sh testing/ibm_standin/environments.sh $(BIN)/python
	@$(BIN)/python -m benchmarks.remote $(ARGS)

# The pipeline on Spark: mapping, queue and Parquet, streaming latency.
bench-pipeline: $(VENV)/.ready-bench $(VENV)/.ready-test
	@$(BIN)/python -m benchmarks.pipeline $(PIPELINE_ARGS)

clean:
	rm -rf $(VENV) $(VENV)-newest build bridge/compiled .mypy_cache .ruff_cache .pytest_cache .hypothesis
