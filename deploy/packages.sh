#!/bin/sh
# Installs Debian packages, as root or through sudo; says what to do where neither works.
# Without a package it only updates apt's lists. usage: packages.sh [PACKAGE...]
set -eu

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: this machine has no apt-get; install by hand what these Debian packages hold: $*" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
    as_root="sudo -n"
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
    as_root=sudo
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
[ $# = 0 ] || echo "installing Debian packages: $*"
$as_root apt-get update -qq
[ $# != 0 ] || exit 0
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
# apt-get exits with 0 if Ctrl-C interrupts it (Debian 13).
for package in "$@"; do
    if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$'; then
        echo "setup: apt-get did not install $package; run the same make command again to continue" >&2
        exit 1
    fi
done
