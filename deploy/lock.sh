#!/bin/sh
# Writes the lock files: every package that the bridge (requirements.txt), its tests and benchmarks (requirements-test.txt),
# its compiler (requirements-compile.txt), its pages (requirements-docs.txt), its audit (requirements-audit.txt) and the tests of its API (requirements-api.txt) need, with version and hashes, for every Python from 3.11 on. pymqi and ibmmq are
# not in it: they need IBM's library (tests/ibm_standin/environments.sh builds them). Needs uv, which it installs into a directory of
# its own.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
. deploy/network.sh
[ -z "$bundle" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$bundle}" # uv
sh deploy/pip.sh "$tools/venv/bin/python" uv uv
# The bridge is built without isolation: what builds it is locked as well.
printf 'hatchling>=1.24\neditables\n' >"$tools/build.txt"
compile() { # OUTPUT EXTRA...
    output=$1
    shift
    "$tools/venv/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header \
        --no-emit-index-url "$@" pyproject.toml "$tools/build.txt" -o "$output"
    sed -i 's|# via -r /.*|# via the build|; s|#   -r /.*|#   the build|' "$output"
}
compile deploy/requirements-test.txt --extra archive --extra spark --extra dev --extra bench
# amqtt, which benchmarks stand beside, wants one release of some packages.
compile deploy/requirements.txt --constraints deploy/requirements-test.txt
compile deploy/requirements-compile.txt --extra compile --constraints deploy/requirements-test.txt
compile deploy/requirements-docs.txt --extra docs --constraints deploy/requirements-test.txt
compile deploy/requirements-audit.txt --extra audit --constraints deploy/requirements-test.txt
# What tests the console's API has an environment of its own (tests/schemathesis.sh).
echo 'schemathesis>=4.3,<5' | "$tools/venv/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header \
    --no-emit-index-url --no-annotate - -o deploy/requirements-api.txt
