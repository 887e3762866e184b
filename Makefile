# The targets fetch what is missing themselves; see README.md.
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup run test test-slow bench bench-bridge bench-archive bench-remote bench-pipeline clean
.DEFAULT_GOAL := run

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml deploy/setup.sh
	@sh deploy/setup.sh $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# What the tests need beside the bridge itself.
$(VENV)/.ready-test: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

run: $(VENV)/.ready
	@$(BIN)/mqbridge run $(ARGS)

test: $(VENV)/.ready-test
	@sh tests/system-packages.sh
	@sh tests/mqi/environments.sh $(BIN)/python
	@$(BIN)/ruff check bridge tests
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@sh tests/run.sh $(BIN)/python $(ARGS)

# What takes too long for every change: pipelines whose processes are killed, and on a cluster.
test-slow: $(VENV)/.ready-test
	@sh tests/system-packages.sh
	@sh tests/mqi/environments.sh $(BIN)/python
	@$(BIN)/python -m pytest -m slow $(ARGS)

# What is measured: the bridge beside other brokers, with and without an archive, then the pipeline. With AGAINST=COMMIT:
# the working tree beside that commit and mosquitto.
ifdef AGAINST
bench: $(VENV)/.ready-bench
	@sh tests/system-packages.sh
	@$(BIN)/python -m tests.bench.against $(AGAINST) $(ARGS)
else
bench: bench-bridge bench-archive bench-pipeline
endif

# The bridge beside mosquitto and amqtt.
bench-bridge: $(VENV)/.ready-bench
	@sh tests/system-packages.sh
	@$(BIN)/python -m tests.bench $(ARGS)

# What an archive costs.
bench-archive: $(VENV)/.ready-bench $(VENV)/.ready-test
	@$(BIN)/python -m tests.bench.archive

# Publications on a queue manager behind a network (real ibmmq on the stand-in for IBM's client library).
bench-remote: $(VENV)/.ready-bench
	@sh tests/mqi/environments.sh $(BIN)/python
	@$(BIN)/python -m tests.bench.remote $(ARGS)

# The pipeline on Spark: mapping, queue and Parquet, streaming latency, audit.
bench-pipeline: $(VENV)/.ready-bench $(VENV)/.ready-test
	@$(BIN)/python -m tests.bench.pipeline $(PIPELINE_ARGS)

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
