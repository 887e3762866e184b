#!/bin/sh
# Unpacks promtool of Debian's package prometheus to build/promtool. The package is not installed: it would start a service.
set -eu
build=$(cd "$(dirname "$0")/.." && pwd)/build
[ ! -x "$build/promtool" ] && ! command -v promtool >/dev/null 2>&1 || exit 0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
echo "fetching promtool"
if ! apt-get download -qq prometheus >/dev/null 2>&1; then
    # The lists of packages are not there, or old.
    if [ "$(id -u)" = 0 ]; then apt-get update -qq; else sudo -n apt-get update -qq; fi
    apt-get download -qq prometheus >/dev/null
fi
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool
mkdir -p "$build"
mv usr/bin/promtool "$build/promtool"
