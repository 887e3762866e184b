#!/bin/sh
# Runs the README's two commands on fresh machines: chroots of Debian 12 and 13, made by debootstrap, as root with the checkout in
# /root, and as an ordinary user who may use sudo. A machine shares the network with this one, with the certificate of its proxy, and
# nothing else. Then the bridge starts and the static checks run without a network. Needs root.
#
# The chroots and what was printed are in build/fresh. A machine that ran all tests gets its line in the first table of
# docs/reference/tested-configurations.md.
# usage: fresh.sh [ARGUMENT of pytest...]     FRESH="trixie-user bookworm-root" selects machines
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "test-fresh: only root can create chroots; run: sudo sh tests/fresh.sh" >&2; exit 1; }
sh deploy/packages.sh debootstrap git iproute2

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
    # The network: its name servers, and the certificate of a proxy as an administrator adds it.
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"
    for file in /usr/local/share/ca-certificates/*.crt; do
        [ ! -e "$file" ] || cp "$file" "$root/usr/local/share/ca-certificates/"
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
    # An environment of its own, and a namespace for processes: whatever is left running ends with it, and is reported.
    if env --ignore-environment HOME="$home" USER="$user" TERM=xterm LC_ALL=C.UTF-8 MQBRIDGE_TEST_REQUIRE=all \
        PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin ${http_proxy:+http_proxy="$http_proxy"} \
        ${https_proxy:+https_proxy="$https_proxy"} ${MQBRIDGE_TEST_PATIENCE:+MQBRIDGE_TEST_PATIENCE="$MQBRIDGE_TEST_PATIENCE"} \
        unshare --mount --pid --fork sh -eu -c '
        root=$1 user=$2 directory=$3; shift 3
        mount -t proc proc /proc
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/dev/shm"
        mount -t tmpfs tmpfs "$root/run"
        chroot "$root" update-ca-certificates >/dev/null
        inside() { chroot --userspec="$user" "$root" sh -eu -c "cd $directory; $1" inside "$2"; }
        started="setsid make run & until [ -S data/mqbridge.sock ]; do kill -0 \$! || exit 1; sleep 1; done
            kill -TERM -\$!; wait || true; rm -f data/mqbridge.sock"
        begin=$(date +%s)
        inside "$started" ""
        echo "test-fresh: make run: $((($(date +%s) - begin + 30) / 60)) min"
        begin=$(date +%s) status=0
        # The steps without a network follow failed tests, too.
        inside "make test ARGS=\"\$1\"" "$*" || status=$?
        echo "test-fresh: make test: $((($(date +%s) - begin + 30) / 60)) min"
        echo "test-fresh: without a network"
        unshare --net sh -eu -c "
            ip link set lo up
            $(command -v chroot) --userspec=$user $root sh -eu -c \"\$0\"" "cd $directory
            $started
            make test ARGS=tests/unit/wire"
        left=$(ps -e -o pid=,args= | awk "\$1 != 1 && !/awk|ps -e/")
        [ -z "$left" ] || { echo "left running:"; echo "$left"; exit 1; }
        exit $status
    ' fresh.sh "$root" "$user" "$home/mqbridge" "$@" >"$log" 2>&1; then
        counts=$(grep -E '^(=+ )?[0-9]+ passed.* in ' "$log" | head -1)
        echo "test-fresh: $counts"
        count() { echo "$counts" | sed -nE "s/.*[^0-9]?\b([0-9]+) $1.*/\1/p" | sed -E 's/([0-9])([0-9]{3})$/\1,\2/'; }
        minutes() { sed -n "s/^test-fresh: make $1: //p" "$log"; }
        python=$(sed -n 's/^version = //p' "$root$home/mqbridge/.venv/pyvenv.cfg")
        mosquitto=$(chroot "$root" dpkg-query -W -f '${Version}' mosquitto | sed 's/-.*//')
        [ $# != 0 ] || sed -i "s/^| $machine | .*/| $machine | Debian $(cat "$root/etc/debian_version"), Python $python, mosquitto $mosquitto | $(count passed) | $(count skipped) | $(minutes run) | $(minutes test) | $(date +%Y-%m-%d) |/" docs/reference/tested-configurations.md
    else
        tail -20 "$log"
        failed="$failed $machine"
    fi
    du -sh "$root/tmp" | sed "s|^|test-fresh: left in /tmp: |"
done
[ -z "$failed" ] || { echo "test-fresh: failed:$failed" >&2; exit 1; }
