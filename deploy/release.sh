#!/bin/sh
# Builds the files of a release in build/release, from the commit with the tag of its version: the sources, a wheel without and one
# with compiled modules for each Python from 3.11 to 3.14 of this machine, the Debian package for this release of Debian, the Helm
# chart, sbom.json and SHA256SUMS. Fails if a package has a known vulnerability, or PyPI cannot be asked (deploy/audit.sh).
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
if [ "$(git describe --exact-match --match "v$version" 2>/dev/null)" != "v$version" ]; then
    echo "release: the current commit does not have the tag v$version" >&2
    echo "hint: run git tag -a v$version, or git checkout v$version" >&2
    exit 1
fi
. deploy/network.sh
release=$PWD/build/release
rm -rf "$release"
mkdir -p "$release"
# A copy of the commit, without files that git does not know. Times are those of the commit.
git archive --prefix="mqbridge-$version/" -o "$release/mqbridge-$version.tar.gz" HEAD
tar -C build -xzf "$release/mqbridge-$version.tar.gz"
cd "build/mqbridge-$version"
export SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"

built=
for name in 3.11 3.12 3.13 3.14; do
    # A shim of pyenv is on PATH even if it selects no interpreter.
    for python in "python$name" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$name".*/bin/python; do
        "$python" -c 'import pip' 2>/dev/null || continue
        if [ -z "$built" ]; then
            echo "release: the wheel without compiled modules"
            MQBRIDGE_COMPILE=0 "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps -w "$release" .
            built=1
        fi
        echo "release: the wheel for Python $name, with compiled modules"
        sh deploy/compiler.sh "$python"
        MQBRIDGE_COMPILE=1 "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps -w "$release" .
        break
    done
done
[ -n "$built" ] || { echo "release: no Python from 3.11 to 3.14 with pip" >&2; exit 1; }

sh deploy/deb.sh
mv build/mqbridge_*.deb "$release"
# The layout of `helm package`.
tar -C deploy --exclude=__pycache__ --exclude=render.py --dereference --transform 's,^helm,mqbridge,' --mtime "@$SOURCE_DATE_EPOCH" \
    --owner 0 --group 0 --numeric-owner --sort name -czf "$release/mqbridge-chart-$version.tgz" helm

cd ../..
rm -rf "build/mqbridge-$version"
status=0
sh deploy/audit.sh || status=$?
mv build/sbom.json "$release"
(cd "$release" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
[ "$status" = 0 ] || echo "release: do not publish these files: the audit of the packages failed" >&2
exit "$status"
