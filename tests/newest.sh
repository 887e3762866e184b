#!/bin/sh
# Runs tests with the newest packages that pyproject.toml allows, in an environment of its own.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-newest
sh deploy/setup.sh $venv
sh deploy/pip.sh $venv/bin/python 'the newest Python packages' --upgrade --editable '.[dev]'
(cd $venv && pwd -P >.ready)
$venv/bin/python -m pytest tests/unit/wire tests/unit/mapping tests/unit/config tests/unit/mqtt tests/unit/cli tests/unit/mq/embedded
