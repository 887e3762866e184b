#!/bin/sh
# Builds the stand-in for IBM's client library for the tests. On it, installs the real pymqi (from its source package) and the
# real ibmmq (IBM's wheel). Does nothing if they are up to date.
# usage: environments.sh PYTHON            build
#        environments.sh --missing PYTHON  print the Debian packages that it would install
#
# build/mqi/lib64, build/mqi/inc   the library and its headers (the layout of IBM's installation)
# build/mqi/cpython-311/pymqi, …/ibmmq   one package each for that Python, to put on PYTHONPATH. The bridge's environment does
#                                  not contain them, as on a machine without IBM's library.
# build/mqi/cpython-311/versions   the installed versions
set -eu
only_list=
if [ "$1" = --missing ]; then only_list=1; shift; fi
python=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/mqi
packages=$build/$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
pymqi=pymqi==1.12.13
ibmmq=ibmmq==2.1.2

missing=
command -v gcc >/dev/null 2>&1 || missing="$missing gcc"
command -v make >/dev/null 2>&1 || missing="$missing make"
echo '#include <stdlib.h>' | gcc -E -x c - >/dev/null 2>&1 || missing="$missing libc6-dev"
echo '#include <openssl/ssl.h>' | gcc -E -x c - >/dev/null 2>&1 || missing="$missing libssl-dev"
headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -f "$headers/Python.h" ] || missing="$missing python3-dev"
if [ -n "$only_list" ]; then
    echo "$missing"
    exit
fi
[ -z "$missing" ] || "$root/deploy/packages.sh" $missing

make --silent --directory="$here" PYTHON="$python"

install() { # PACKAGE DIRECTORY [OPTION...]
    package=$1 directory=$2
    shift 2
    stamp="$directory/.$package"
    if [ -f "$stamp" ]; then
        [ -n "$(find "$build/inc" -name 'cmqc*_structures.h' -newer "$stamp")" ] || return 0
    fi
    rm -rf "$directory"
    MQ_FILE_PATH=$build sh "$root/deploy/pip.sh" "$python" "$package" --no-deps --target "$directory" "$@" "$package"
    touch "$stamp"
}

# Without --no-cache-dir, pip would use a wheel that it has built earlier, perhaps with IBM's library.
install "$pymqi" "$packages/pymqi" --no-binary pymqi --no-cache-dir
install "$ibmmq" "$packages/ibmmq" --only-binary ibmmq
printf '%s\n%s\n' "$pymqi" "$ibmmq" >"$packages/versions"
