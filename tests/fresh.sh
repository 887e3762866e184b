#!/bin/sh
# Runs the README's two commands on fresh machines: chroots of Debian 12 and 13, made by debootstrap, as root and as an
# ordinary user who may use sudo. Needs root. The chroots are kept in build/fresh; the logs are build/fresh/SUITE-USER.log.
# usage: fresh.sh [ARGUMENT of pytest...]     FRESH="trixie-user bookworm-root" selects machines
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "test-fresh: only root can create chroots; run: sudo sh tests/fresh.sh" >&2; exit 1; }
sh deploy/packages.sh debootstrap git

fresh=$PWD/build/fresh
mkdir -p "$fresh"
failed=
for machine in ${FRESH:-bookworm-root bookworm-user trixie-root trixie-user}; do
    suite=${machine%-*} user=${machine#*-} root=$fresh/$machine log=$fresh/$machine.log
    if [ ! -e "$fresh/$suite.tar" ]; then
        echo "test-fresh: creating Debian $suite"
        rm -rf "$root"
        debootstrap --variant=minbase --include=make,ca-certificates,sudo "$suite" "$root" >"$log"
        tar -C "$root" -cf "$fresh/$suite.tar.new" .
        mv "$fresh/$suite.tar.new" "$fresh/$suite.tar"
    fi
    rm -rf "$root"
    mkdir "$root"
    tar -C "$root" -xf "$fresh/$suite.tar"
    # How this machine reaches the registries, and its own stores of packages.
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/xdg/pip /etc/npmrc /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || { mkdir -p "$root${file%/*}" && cp -rL "$file" "$root${file%/*}/"; }
    done
    home=/root
    if [ "$user" != root ]; then
        home=/home/$user
        chroot "$root" useradd --create-home "$user"
        echo "$user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/$user"
    fi
    mkdir "$root$home/mqbridge"
    git ls-files -z | tar --null -cf - -T - | tar -C "$root$home/mqbridge" -xf -
    git -C "$root$home/mqbridge" init -q
    chroot "$root" chown -R "$user" "$home/mqbridge"

    echo "test-fresh: $machine: make run, make test (log: build/fresh/$machine.log)"
    # A namespace of its own for processes: whatever is left running ends with it, and is reported.
    if unshare --mount --pid --fork sh -eu -c '
        root=$1 user=$2 directory=$3; shift 3
        mount -t proc proc /proc
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/run"
        [ ! -d /opt/pypi ] || { mkdir -p "$root/opt" && mount --bind /opt "$root/opt"; }
        export HOME="${directory%/*}" USER="$user" LC_ALL=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
        inside() { chroot --userspec="$user" "$root" sh -eu -c "cd $directory; $1" inside "$2"; }
        inside "setsid make run & until [ -S data/mqbridge.sock ]; do kill -0 \$! || exit 1; sleep 1; done
            kill -TERM -\$!; wait || true" ""
        inside "make test ARGS=\"\$1\"" "$*"
        left=$(ps -e -o pid=,args= | awk "\$1 != 1 && !/awk|ps -e/")
        [ -z "$left" ] || { echo "left running:"; echo "$left"; exit 1; }
    ' fresh.sh "$root" "$user" "$home/mqbridge" "$@" >"$log" 2>&1; then
        tail -1 "$log"
    else
        tail -20 "$log"
        failed="$failed $machine"
    fi
    du -sh "$root/tmp" | sed "s|^|test-fresh: left in /tmp: |"
done
[ -z "$failed" ] || { echo "test-fresh: failed:$failed" >&2; exit 1; }
