#!/bin/sh
# Installs schemathesis for the tests of the console's API, in an environment of its own: it wants other releases of packages that
# the bridge uses. Quick if it is there.
# usage: schemathesis.sh PYTHON
set -eu
cd "$(dirname "$0")/.."
venv=build/schemathesis
lock=deploy/requirements-api.txt
cmp -s "$lock" "$venv/lock" && exit
rm -rf "$venv"
"$1" -m venv "$venv"
sh deploy/pip.sh "$venv/bin/python" schemathesis --require-hashes -r "$lock"
cp "$lock" "$venv/lock"
