#!/bin/sh
# Installs what the tests need of the system: mosquitto and its clients, openssl for certificates; slapd for LDAP and promtool, which
# are only unpacked; systemd, of which only the programs are used that look at units; man, zsh and fish for the page and the
# completion of the commands; "slow" also PostgreSQL and Chromium, strace, and debootstrap, in
# whose system the Debian package is installed; "bench" what compiles the load.
set -eu
sh "$(dirname "$0")/unpacked-packages.sh"
missing=
[ -x /usr/sbin/mosquitto ] || command -v mosquitto >/dev/null 2>&1 || missing="mosquitto"
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
if [ "${1:-}" = slow ] && [ ! -e /usr/share/java/postgresql.jar ]; then
    missing="$missing postgresql libpostgresql-jdbc-java"
fi
if [ "${1:-}" = slow ] && ! command -v chromium >/dev/null 2>&1; then
    missing="$missing chromium"
fi
if [ "${1:-}" = bench ] && [ ! -e /usr/include/openssl/ssl.h ]; then
    missing="$missing gcc libc6-dev libssl-dev"
fi
[ -n "$missing" ] || exit 0
"$(dirname "$0")/../deploy/packages.sh" $missing
# Debian starts the broker on port 1883, where the bridge listens by default; the tests start their own.
case "$missing" in
    *"mosquitto "*|mosquitto)
        if [ -d /run/systemd/system ]; then
            if [ "$(id -u)" = 0 ]; then systemctl disable --now mosquitto; else sudo systemctl disable --now mosquitto; fi
        fi ;;
esac
