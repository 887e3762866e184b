#!/bin/sh
# Compiles the modules of the bridge that pyproject.toml lists (deploy/compile.py). Installs a C compiler and mypyc if they are missing.
# usage: compile.sh [ENVIRONMENT]
set -eu
cd "$(dirname "$0")/.."
venv=${1:-.venv}
sh deploy/compiler.sh "$venv/bin/python"
if ! cmp -s deploy/requirements-compile.txt "$venv/.ready-compile"; then
    echo "setup: installing the compiler mypyc"
    sh deploy/pip.sh "$venv/bin/python" "the compiler mypyc" --require-hashes -r deploy/requirements-compile.txt
    cp deploy/requirements-compile.txt "$venv/.ready-compile"
fi
"$venv/bin/python" deploy/compile.py
