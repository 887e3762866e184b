#!/bin/sh
# Build build/mqbridge_VERSION_ARCHITECTURE.deb for this release of Debian, and check it with lintian. The modules are compiled
# unless MQBRIDGE_COMPILE=0.
set -eu
cd "$(dirname "$0")/.."

. deploy/network.sh
missing= compiler=
export MQBRIDGE_COMPILE="${MQBRIDGE_COMPILE:-1}"
[ "$MQBRIDGE_COMPILE" = 0 ] || compiler=python3-dev
for package in build-essential debhelper fakeroot lintian python3-venv $compiler; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing="$missing $package"
done
[ -z "$missing" ] || deploy/packages.sh $missing

# Debian's notation: 1.0~rc1 precedes 1.0.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml | sed -E 's/\.?(a|b|rc|dev)([0-9])/~\1\2/')
source=build/deb/mqbridge-$version
rm -rf build/deb
mkdir -p "$source"
tar -c --exclude=__pycache__ --exclude=bridge/compiled bridge deploy docs mappings pyproject.toml README.md LICENSE |
    tar -x -C "$source"
cp -r deploy/debian "$source/debian"
cp CHANGELOG.md "$source/debian/"
maintainer=$(sed -n 's/^Maintainer: //p' deploy/debian/control)
cat >"$source/debian/changelog" <<EOF
mqbridge ($version) unstable; urgency=medium

  * Version $version. Changes: /usr/share/doc/mqbridge/CHANGELOG.md.gz

 -- $maintainer  $(LC_ALL=C date -R ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})
EOF
echo "deb: building the package, which takes a minute or two (log: build/deb/log)"
(cd "$source" && dpkg-buildpackage --build=binary --no-sign) >build/deb/log 2>&1 || {
    cat build/deb/log >&2
    exit 1
}
package=build/mqbridge_${version}_$(dpkg --print-architecture).deb
mv "build/deb/${package#build/}" "$package"
echo "deb: checking it with lintian"
lintian --allow-root --fail-on error "$package"
echo "$package: apt install ./$package"
