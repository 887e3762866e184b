#!/bin/sh
# Makes a virtual environment with Python 3.11 or newer, installing Debian's packages for it where they are missing.
# usage: setup.sh DIRECTORY
set -eu
venv=$1

suitable() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 && suitable "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

if ! python=$(find_python); then
    "$(dirname "$0")/packages.sh" python3 python3-venv
    if ! python=$(find_python); then
        echo "setup: Python 3.11 or newer is needed, with its venv module; name one: make setup PYTHON=/path/to/python3" >&2
        exit 1
    fi
fi
[ -x "$venv/bin/python" ] && suitable "$venv/bin/python" || "$python" -m venv --clear "$venv"
