#!/bin/sh
# Installs the programs of the tests: Debian packages, the stand-in for IBM's client library, and packages of npm. Quick if everything
# is there. If a program cannot be had, its tests are skipped, unless MQBRIDGE_TEST_REQUIRE=all.
# usage: programs.sh PYTHON [slow]
set -eu
case $1 in
    /*) python=$1 ;;
    *) python=$PWD/$1 ;;
esac
slow=${2:-}
cd "$(dirname "$0")"

try() { # WHAT COMMAND...
    what=$1
    shift
    if "$@"; then return; fi
    if [ "${MQBRIDGE_TEST_REQUIRE:-}" = all ]; then
        echo "setup: MQBRIDGE_TEST_REQUIRE=all does not go on without $what" >&2
        exit 1
    fi
    echo "setup: going on without $what. The tests that need it are skipped and listed at the end" >&2
}

try "some Debian packages" sh system-packages.sh "$python" $slow
try "promtool or slapd" sh unpacked-packages.sh
try "the stand-in for IBM MQ" sh ibm_standin/environments.sh "$python"
try "MQTT.js" sh node-packages.sh "$python" mqtt_js
[ -z "$slow" ] || try "schemathesis" sh schemathesis.sh "$python"
[ -z "$slow" ] || try "the driver of the browser" sh node-packages.sh "$python" browser
