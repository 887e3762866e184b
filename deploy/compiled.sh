#!/bin/sh
# Compiles the bridge if it is not compiled and there is a C compiler. Never fails, because the bridge also runs uncompiled.
# With MQBRIDGE_PURE=1 it compiles nothing. usage: compiled.sh PYTHON COMMAND... (the COMMAND that compiles)
set -eu
python=$1
shift
[ "${MQBRIDGE_PURE:-0}" = 0 ] || exit 0
"$python" -c 'import sys, bridge.compilation; sys.exit(bool(bridge.compilation.PURE))' && exit 0
if ! sh "$(dirname "$0")/compiler.sh" --ask "$python"; then
    echo "setup: no C compiler, or no headers of Python: the bridge runs as pure Python; sh deploy/compile.sh fetches them"
    exit 0
fi
echo "setup: compiling the bridge; that takes about a minute"
"$@" || echo "setup: could not compile: the bridge runs as pure Python"
