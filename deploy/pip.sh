#!/bin/sh
# Installs Python packages with pip. If that fails, it names the step and a remedy.
# usage: pip.sh PYTHON WHAT ARGUMENT...     WHAT is the name of the step, ARGUMENT... are arguments of `pip install`
set -eu
python=$1 what=$2
shift 2
. "$(dirname "$0")/network.sh"
# pip unpacks more than 2 GB for the tests. /tmp is too small for that if it is in memory, as on Debian 13.
environment=$("$python" -c 'import sys; print(sys.prefix)')
mkdir -p "$environment/tmp"
trap 'rm -rf "$environment/tmp"' EXIT
trap 'exit 130' INT TERM HUP
log=$environment/tmp/log
if ! TMPDIR=$environment/tmp "$python" -m pip install --quiet --disable-pip-version-check "$@" 2>"$log"; then
    cat "$log" >&2
    echo "setup: cannot install $what: $(sed -n 's/^ERROR: //p' "$log" | head -1)" >&2
    if grep -Eq 'CERTIFICATE_VERIFY_FAILED|SSLError' "$log"; then
        echo "hint: add the certificate of your proxy to the system: /usr/local/share/ca-certificates, then update-ca-certificates" >&2
    elif grep -Eq 'NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError|ReadTimeout|ConnectionError' "$log"; then
        echo "hint: pip cannot reach a package index. Set HTTPS_PROXY, or PIP_INDEX_URL to a mirror, and run the command again" >&2
    else
        echo "hint: run the command again. Installed packages are kept" >&2
    fi
    exit 1
fi
cat "$log" >&2
