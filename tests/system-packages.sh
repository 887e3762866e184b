#!/bin/sh
# Installs what the tests need of the system: a C compiler; mosquitto and its clients; HAProxy for shards, and `ip` for hosts in
# namespaces; GnuCOBOL for records; openssl for certificates; curl for documented commands; slapd for LDAP and promtool, which are only unpacked; systemd, of which only the programs that check
# units are used; man, zsh and fish for the manual page and the completion of the commands. "slow" adds Chromium, RabbitMQ, strace,
# D-Bus (for systemd) and debootstrap (for the Debian package).
# If apt does not know one of the packages, it installs the others and fails.
# usage: system-packages.sh PYTHON [slow]
set -eu
here=$(dirname "$0")
missing=$(sh "$here/ibm_standin/environments.sh" --missing "$1")
slow=${2:-}
[ -x /usr/sbin/mosquitto ] || command -v mosquitto >/dev/null 2>&1 || missing="$missing mosquitto"
command -v mosquitto_pub >/dev/null 2>&1 || missing="$missing mosquitto-clients"
command -v haproxy >/dev/null 2>&1 || [ -x /usr/sbin/haproxy ] || missing="$missing haproxy"
command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || missing="$missing iproute2"
command -v cobc >/dev/null 2>&1 || missing="$missing gnucobol3"
for program in curl openssl; do
    command -v $program >/dev/null 2>&1 || missing="$missing $program"
done
command -v systemd-analyze >/dev/null 2>&1 || missing="$missing systemd"
command -v man >/dev/null 2>&1 || missing="$missing man-db"
for program in zsh fish; do
    command -v $program >/dev/null 2>&1 || missing="$missing $program"
done
if [ "$slow" = slow ]; then
    command -v dbus-daemon >/dev/null 2>&1 || missing="$missing dbus"
    for program in strace debootstrap; do
        command -v $program >/dev/null 2>&1 || [ -x /usr/sbin/$program ] || missing="$missing $program"
    done
    command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
    [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing="$missing rabbitmq-server"
fi
# Debian starts the broker on port 1883, where the bridge listens by default; the tests start their own.
disable_mosquitto() {
    [ -x /usr/sbin/mosquitto ] || return 0
    if [ "$(id -u)" = 0 ]; then systemctl disable --now mosquitto; else sudo systemctl disable --now mosquitto; fi
}
case "$missing " in
    *" mosquitto "*)
        if [ -d /run/systemd/system ]; then
            trap disable_mosquitto EXIT # also if Ctrl-C interrupts the installation
            trap 'exit 130' INT TERM HUP
        fi ;;
esac
[ -n "$missing" ] || exit 0
sh "$here/../deploy/packages.sh" $missing && exit 0
known=
for package in $missing; do
    ! apt-cache show "$package" >/dev/null 2>&1 || known="$known $package"
done
# Without a network, apt knows all packages or none.
if [ -n "$known" ] && [ "$(echo $known)" != "$(echo $missing)" ]; then sh "$here/../deploy/packages.sh" $known || true; fi
exit 1
