#!/bin/sh
# Compiles the modules of the bridge that pyproject.toml lists (deploy/compile.py). Installs a C compiler and mypyc if they are missing.
# usage: compile.sh [ENVIRONMENT]
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}
sh deploy/compiler.sh "$venv/bin/python"
if ! cmp -s deploy/requirements-compile.txt "$venv/.ready-compile"; then
    echo "setup: installing the compiler mypyc"
    mkdir -p "$venv/tmp"
    TMPDIR=$(cd "$venv/tmp" && pwd) "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        -r deploy/requirements-compile.txt
    rm -rf "$venv/tmp"
    cp deploy/requirements-compile.txt "$venv/.ready-compile"
fi
"$venv/bin/python" deploy/compile.py
