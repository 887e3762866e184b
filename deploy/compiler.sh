#!/bin/sh
# Installs Debian's C compiler and the headers of Python if they are missing. With --ask it installs nothing, and fails if they
# are missing. usage: compiler.sh [--ask] PYTHON
set -eu
ask=
if [ "$1" = --ask ]; then ask=1; shift; fi
missing=
command -v cc >/dev/null 2>&1 || missing="gcc libc6-dev"
headers=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -e "$headers/Python.h" ] || missing="$missing python3-dev"
[ -n "$missing" ] || exit 0
[ -z "$ask" ] || exit 1
"$(dirname "$0")/packages.sh" $missing
