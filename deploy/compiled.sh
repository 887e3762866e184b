#!/bin/sh
# Has the bridge compiled where it is not, and a C compiler is there; never fails, for what is not compiled runs as well.
# Compiles nothing with MQBRIDGE_PURE=1. usage: compiled.sh PYTHON COMMAND..., where COMMAND compiles
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
