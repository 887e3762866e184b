#!/bin/sh
# Creates a virtual environment with Python 3.11 or newer, and installs Debian's packages for it if they are missing. Keeps a
# complete environment: the Makefile writes DIRECTORY/.ready, with the path of the environment, after everything is installed.
# usage: setup.sh DIRECTORY            create the environment if it is missing, incomplete or was moved
#        setup.sh --check DIRECTORY    exit with 1 if an environment that was complete cannot be used (moved, Python removed)
set -eu
check=
if [ "$1" = --check ]; then check=1; shift; fi
venv=$1

suitable() {
    "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null 2>&1 && suitable "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# Absolute paths are written into an environment. (.ready of an older checkout is empty.)
usable() {
    [ -x "$venv/bin/python" ] && suitable "$venv/bin/python" && [ -f "$venv/.ready" ] || return 1
    path=$(cat "$venv/.ready")
    [ -z "$path" ] || [ "$path" = "$(cd "$venv" && pwd -P)" ]
}

if [ -n "$check" ]; then
    [ ! -f "$venv/.ready" ] || usable
    exit
fi
for path in "$venv" "$venv/bin" build .mypy_cache .ruff_cache .; do
    if [ -e "$path" ] && [ ! -w "$path" ]; then
        owner=$(stat -c %U "$path")
        echo "setup: $(id -un) cannot write to $(cd "$path" && pwd), which belongs to $owner (was make run with sudo?)" >&2
        echo "       hint: run make as $owner, or first: sudo chown -R $(id -un) '$(pwd)'" >&2
        exit 1
    fi
done
usable && exit
if ! python=$(find_python); then
    if [ -n "${PYTHON:-}" ]; then
        echo "setup: $PYTHON is not Python 3.11 or newer with its venv module" >&2
        exit 1
    fi
    "$(dirname "$0")/packages.sh" python3 python3-venv
    if ! python=$(find_python); then
        echo "setup: Python 3.11 or newer is needed, with its venv module; name one: make setup PYTHON=/path/to/python3" >&2
        exit 1
    fi
fi
if [ -e "$venv" ]; then
    echo "setup: $venv is incomplete or was moved: creating it again"
else
    echo "setup: creating $venv"
fi
# Like python -m venv --clear, but Ctrl-C prints no traceback, and ensurepip gets the time to delete its temporary files.
"$python" -c 'import signal, sys, venv
signal.signal(signal.SIGINT, signal.SIG_DFL)
venv.EnvBuilder(clear=True, symlinks=True, with_pip=True).create(sys.argv[1])' "$venv"
