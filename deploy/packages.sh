#!/bin/sh
# Installs Debian packages, as root or through sudo. If that fails, it names the packages, apt's first error and a remedy.
# Without a package it only updates apt's lists. usage: packages.sh [PACKAGE...]
set -eu

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this machine has no apt-get; install the equivalent of these Debian packages: $*" >&2
    exit 1
fi
# sudo drops the addresses of proxies.
proxies=
for name in http_proxy https_proxy; do
    eval "value=\${$name:-}"
    [ -z "$value" ] || proxies="$proxies $name=$value"
done
if [ "$(id -u)" = 0 ]; then
    as_root=env
elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
    as_root="sudo -n env$proxies"
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
    as_root="sudo env$proxies"
else
    if [ $# = 0 ]; then
        echo "setup: apt's package lists are missing or outdated, and only root can update them" >&2
        echo "       run as root: apt-get update" >&2
    else
        echo "setup: these packages are missing and only root can install them: $*" >&2
        echo "       run as root: apt-get update && apt-get install -y $*" >&2
    fi
    exit 1
fi
# apt's messages are read below. sudo passes the variable on.
export LC_ALL=C.UTF-8
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

failed() { # WHAT
    error=$(grep -E '^(E|W|Err):?' "$log" | head -1)
    echo "setup: cannot $1: ${error:-apt-get failed}" >&2
    case $error in *"Could not get lock"*)
        echo "hint: wait until the other program has ended, and run the same command again" >&2
        exit 1 ;;
    esac
    echo "hint: check the network, apt's proxy and /etc/apt/sources.list, and run the same command again" >&2
    exit 1
}

# Runs apt-get, and waits while another program, such as unattended-upgrades after the start of a machine, has locked it.
attempt() { # WORD...
    tries=0
    until $as_root "$@" >>"$log" 2>&1; do
        grep -q '^E: Could not get lock' "$log" && [ "$tries" -lt 60 ] || return 1
        [ "$tries" != 0 ] || echo "waiting for another program that installs packages: $(grep -m 1 '^E: Could not get lock' "$log")"
        sed -i '/^E: Could not get lock/d; /^E: Unable to acquire/d; /^E: Unable to lock/d' "$log"
        tries=$((tries + 1))
        sleep 5
    done
}

[ $# = 0 ] || echo "installing Debian packages: $*"
# If no server answers, apt-get exits with 0 and old lists, which may be good enough.
attempt apt-get update -qq || failed "update apt's package lists"
if [ $# = 0 ]; then
    ! grep -q '^W: Failed to fetch' "$log" || failed "update apt's package lists"
    exit 0
fi
attempt DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" ||
    failed "install the Debian packages $*"
# apt-get exits with 0 if Ctrl-C interrupts it (Debian 13).
for package in "$@"; do
    if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$'; then
        echo "setup: apt-get did not install $package; run the same make command again to continue" >&2
        exit 1
    fi
done
