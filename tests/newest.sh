#!/bin/sh
# Runs tests with the newest packages that pyproject.toml allows, in an environment of its own.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-newest
sh deploy/setup.sh $venv
$venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[dev]'
(cd $venv && pwd -P >.ready)
$venv/bin/python -m pytest tests/unit/wire tests/unit/mapping tests/unit/config tests/unit/mqtt tests/unit/cli tests/unit/mq/embedded
