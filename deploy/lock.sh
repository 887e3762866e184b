#!/bin/sh
# Writes the lock files requirements*.txt: packages with version and hashes, for each Python from 3.11 on. They are for the bridge
# (no suffix), tests and benchmarks (-test), the compiler (-compile), the documentation (-docs), the audit (-audit) and the tests of
# the API (-api). pymqi and ibmmq need IBM's library and are not included (see tests/ibm_standin/environments.sh). The script
# installs uv into a temporary directory.
set -eu
cd "$(dirname "$0")/.."
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools/venv"
. deploy/network.sh
[ -z "$bundle" ] || export SSL_CERT_FILE="${SSL_CERT_FILE:-$bundle}" # uv
sh deploy/pip.sh "$tools/venv/bin/python" uv uv
# The bridge is built without isolation, so the packages that build it are locked, too.
printf 'hatchling>=1.24\neditables\n' >"$tools/build.txt"
compile() { # OUTPUT EXTRA...
    output=$1
    shift
    "$tools/venv/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header \
        --no-emit-index-url "$@" pyproject.toml "$tools/build.txt" -o "$output"
    sed -i 's|# via -r /.*|# via the build|; s|#   -r /.*|#   the build|' "$output"
}
compile deploy/requirements-test.txt --extra archive --extra spark --extra dev --extra bench
# amqtt, to which benchmarks compare the bridge, requires one release of some packages.
compile deploy/requirements.txt --constraints deploy/requirements-test.txt
compile deploy/requirements-compile.txt --extra compile --constraints deploy/requirements-test.txt
compile deploy/requirements-docs.txt --extra docs --constraints deploy/requirements-test.txt
compile deploy/requirements-audit.txt --extra audit --constraints deploy/requirements-test.txt
# The tests of the console's API have a separate environment (tests/schemathesis.sh).
echo 'schemathesis>=4.3,<5' | "$tools/venv/bin/uv" pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header \
    --no-emit-index-url --no-annotate - -o deploy/requirements-api.txt
