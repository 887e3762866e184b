#!/bin/sh
# Looks up known vulnerabilities of all locked packages, and writes build/sbom.json (CycloneDX). Fails if PyPI cannot be reached.
set -eu
cd "$(dirname "$0")/.."
venv=.venv-audit
sh deploy/setup.sh $venv
. deploy/network.sh
[ -z "$bundle" ] || export REQUESTS_CA_BUNDLE="${REQUESTS_CA_BUNDLE:-$bundle}" # pip-audit
sh deploy/pip.sh $venv/bin/python pip-audit --require-hashes -r deploy/requirements-audit.txt
(cd $venv && pwd -P >.ready)
mkdir -p build
$venv/bin/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml -o build/sbom.json deploy/requirements.txt
echo "build/sbom.json lists the components of the bridge (CycloneDX)"
for lock in requirements requirements-test requirements-compile; do
    $venv/bin/pip-audit --strict --progress-spinner off --require-hashes --disable-pip -r deploy/$lock.txt
done
