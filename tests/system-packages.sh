#!/bin/sh
# Installs what the tests need of the system: a C compiler; mosquitto and its clients; openssl for certificates; slapd for LDAP and
# promtool, which are only unpacked; systemd, of which only the programs that check units are used; man, zsh and fish for the
# manual page and the completion of the commands. "slow" adds Chromium, RabbitMQ, strace and debootstrap (for
# the Debian package).
# usage: system-packages.sh [slow]
set -eu
here=$(dirname "$0")
missing=$(sh "$here/../tests/ibm_standin/environments.sh" --missing "$here/../.venv/bin/python")
[ -x /usr/sbin/mosquitto ] || command -v mosquitto >/dev/null 2>&1 || missing="$missing mosquitto"
command -v mosquitto_pub >/dev/null 2>&1 || missing="$missing mosquitto-clients"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
command -v systemd-analyze >/dev/null 2>&1 || missing="$missing systemd"
command -v man >/dev/null 2>&1 || missing="$missing man-db"
for program in zsh fish; do
    command -v $program >/dev/null 2>&1 || missing="$missing $program"
done
if [ "${1:-}" = slow ]; then
    for program in strace debootstrap; do
        command -v $program >/dev/null 2>&1 || [ -x /usr/sbin/$program ] || missing="$missing $program"
    done
fi
[ "${1:-}" != slow ] || [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing="$missing rabbitmq-server"
if [ "${1:-}" = slow ] && ! command -v chromium >/dev/null 2>&1; then
    missing="$missing chromium"
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
[ -z "$missing" ] || "$here/../deploy/packages.sh" $missing
sh "$here/unpacked-packages.sh"
