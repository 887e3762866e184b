#!/bin/sh
# Downloads promtool and slapd from Debian and unpacks them. They are not installed, because Debian would start their services.
#
# build/promtool   promtool
# build/slapd      slapd with its libraries, modules and schemas, as they would be below /
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
folder=
trap '[ -z "$folder" ] || rm -rf "$folder"' EXIT

# Download packages to the current directory, if necessary after updating apt's lists.
download() {
    apt-get download -qq "$@" >/dev/null 2>&1 && return
    "$root/deploy/packages.sh" # only updates the lists
    apt-get download -qq "$@" >/dev/null
}

begin() { # NAME
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: this machine has no apt-get; install $1 by hand" >&2
        exit 1
    fi
    echo "downloading $1"
    [ -z "$folder" ] || rm -rf "$folder"
    folder=$(mktemp -d)
    chmod 755 "$folder" # for apt's own user
    cd "$folder"
    mkdir -p "$build"
}

if [ ! -x "$build/promtool" ] && ! command -v promtool >/dev/null 2>&1; then
    begin promtool
    # A package of its own since Debian 13. If apt has no lists yet, it knows neither.
    apt-cache show prometheus >/dev/null 2>&1 || "$root/deploy/packages.sh"
    if apt-cache show promtool >/dev/null 2>&1; then package=promtool; else package=prometheus; fi
    download $package
    dpkg-deb --fsys-tarfile ${package}_*.deb | tar -xf - ./usr/bin/promtool
    mv usr/bin/promtool "$build/promtool"
fi

if [ ! -x /usr/sbin/slapd ] && [ ! -d "$build/slapd" ]; then
    begin slapd
    apt-cache show slapd >/dev/null 2>&1 || "$root/deploy/packages.sh"
    # What apt would install with it, but for the C library, which is that of the system.
    plan=$(apt-get -s install --no-install-recommends slapd)
    packages=$(echo "$plan" | sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -vE '^(libc6|libc-bin|perl.*)$')
    download $packages
    mkdir unpacked
    for package in *.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -xf - -C unpacked --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*'
    done
    mv unpacked "$build/slapd"
fi
