#!/bin/sh
# Test the bridge on IBM MQ, and print a report: check --connect, ibm-acceptance, and mosquitto clients of a running bridge.
#
#   sh deploy/mq/acceptance.sh                      IBM MQ Advanced for Developers in Docker. Asks whether you accept its licence
#   sh deploy/mq/acceptance.sh -c bridge.yaml       the queue manager of a configuration file, without Docker
#
# -c FILE      configuration file with `type: ibm` and control_socket. Its first channel must accept the clients of this script
# -o REPORT    the report is also written to this file (default: mq-report.txt)
# --yes        run ibm-acceptance on a queue manager that other applications use
#
# Variables: MQTT_HOST and MQTT_PORT (127.0.0.1 and 1883) and MQTT_OPTIONS (such as `--cafile ca.pem -u USER -P PASSWORD`) are for the
# clients; MQBRIDGE is the program (mqbridge); SUBSCRIPTIONS is the number of durable subscriptions that ibm-acceptance creates (10000).
# Needs mosquitto_pub and mosquitto_sub. Exit status 1 if a test failed. The part with Docker is not yet run.
set -u
here=$(cd "$(dirname "$0")" && pwd)
config='' report=mq-report.txt yes=''
while [ $# -gt 0 ]; do
    case $1 in
        -c) config=${2:?-c needs a file} && shift 2 ;;
        -o) report=${2:?-o needs a file} && shift 2 ;;
        --yes) yes=--yes && shift ;;
        *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
host=${MQTT_HOST:-127.0.0.1} port=${MQTT_PORT:-1883} program=${MQBRIDGE:-mqbridge} subscriptions=${SUBSCRIPTIONS:-10000}
for needed in mosquitto_pub mosquitto_sub; do
    command -v $needed >/dev/null || { echo "$needed is not installed (Debian: apt install mosquitto-clients)" >&2; exit 2; }
done
work=$(mktemp -d) || exit 2
bridge_pid=''

# The bridge -------------------------------------------------------------------------------------------------------------

if [ -n "$config" ]; then
    mqbridge() { "$program" "$@" --config "$config"; }
    check() { "$program" check --connect "$config"; }
    start_bridge() { "$program" run "$config" >"$work/bridge.log" 2>&1 & bridge_pid=$!; }
    stop_bridge() { [ -z "$bridge_pid" ] || { kill "$bridge_pid" && wait "$bridge_pid"; bridge_pid=''; }; }
    bridge_log() { tail -n 20 "$work/bridge.log"; }
else
    command -v docker >/dev/null || { echo 'docker is not installed; with a queue manager of your own: -c bridge.yaml' >&2; exit 2; }
    if [ "${LICENSE:-}" != accept ]; then
        echo 'This starts IBM MQ Advanced for Developers, which is licensed by IBM. To read the licence:'
        echo '  docker run --rm -e LICENSE=view icr.io/ibm-messaging/mq:latest'
        printf 'Do you accept the licence? [y/N] '
        read -r answer || answer=''
        case $answer in [yY] | [yY][eE][sS]) ;; *) echo 'not started' >&2; rm -r "$work"; exit 2 ;; esac
    fi
    export LICENSE=accept MQ_APP_PASSWORD_FILE="$work/mqAppPassword"
    od -An -N12 -tx1 /dev/urandom | tr -d ' \n' >"$MQ_APP_PASSWORD_FILE"
    chmod 755 "$work" && chmod 644 "$MQ_APP_PASSWORD_FILE"  # for the users of both containers
    yes=--yes
    compose() { docker compose -f "$here/compose.yaml" "$@"; }
    mqbridge() { compose run --rm -T --no-deps bridge "$@" --config /etc/mqbridge/bridge.yaml; }
    check() { compose run --rm -T --no-deps bridge check --connect /etc/mqbridge/bridge.yaml; }
    start_bridge() { compose up --detach bridge; }
    stop_bridge() { compose stop bridge; }
    bridge_log() { compose logs --tail 20 bridge; }
    compose up --build --wait --detach qmgr || { compose logs --tail 50 qmgr; compose down --volumes; rm -r "$work"; exit 1; }
fi
end() {
    stop_bridge >/dev/null 2>&1
    [ -n "$config" ] || compose down --volumes >/dev/null 2>&1
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

# The clients ------------------------------------------------------------------------------------------------------------

pub() { mosquitto_pub -h "$host" -p "$port" ${MQTT_OPTIONS:-} "$@"; }
# Subscribe until N messages have come: sub N OPTIONS.
sub() { number=$1 && shift && mosquitto_sub -h "$host" -p "$port" ${MQTT_OPTIONS:-} -C "$number" -W 60 "$@"; }
topic=mqbridge/acceptance/$$
lines=''
if command -v stdbuf >/dev/null; then lines='stdbuf -oL'; fi  # otherwise mosquitto_sub does not print at once into a file
expect() {
    if [ "$2" = "$3" ]; then echo "pass  $1"; else echo "fail  $1: expected '$2', found '$3'"; touch "$work/failed"; fi
}

clients() {
    waited=0
    until pub -t "$topic/ready" -n 2>/dev/null; do
        waited=$((waited + 1))
        [ $waited -lt 60 ] || { echo "fail  no bridge accepts clients at $host:$port"; bridge_log; touch "$work/failed"; return; }
        sleep 1
    done
    for version in mqttv311 mqttv5; do
        for qos in 0 1 2; do
            $lines mosquitto_sub -h "$host" -p "$port" ${MQTT_OPTIONS:-} -C 1 -W 60 -V $version -q $qos \
                -t "$topic/$version/$qos" -d >"$work/received" 2>&1 &
            subscriber=$!
            tries=0
            until grep -q 'Subscribed (mid' "$work/received" || [ $tries -ge 10 ]; do tries=$((tries + 1)); sleep 1; done
            pub -V $version -q $qos -t "$topic/$version/$qos" -m "hello $qos"
            wait $subscriber
            expect "$version QoS $qos" "hello $qos" "$(grep '^hello' "$work/received")"
        done
        pub -V $version -q 1 -r -t "$topic/$version/retained" -m kept
        expect "$version retained publication" kept "$(sub 1 -V $version -q 1 -t "$topic/$version/retained")"
        pub -V $version -q 1 -r -t "$topic/$version/retained" -n
        durable="-V $version -i acceptance.$version.$$ -c -q 1 -t $topic/$version/away"
        [ $version = mqttv311 ] || durable="$durable -x 3600"
        # shellcheck disable=SC2086
        mosquitto_sub -h "$host" -p "$port" ${MQTT_OPTIONS:-} $durable -E
        for number in 1 2 3; do pub -V $version -q 1 -t "$topic/$version/away" -m $number; done
        mqbridge mq put "$topic/$version/away" direct --to "acceptance.$version.$$" >/dev/null
        # shellcheck disable=SC2086
        expect "$version messages while away" '1 2 3 direct' "$(sub 4 $durable | tr '\n' ' ' | sed 's/ $//')"
        mosquitto_sub -h "$host" -p "$port" ${MQTT_OPTIONS:-} -V $version -i "acceptance.$version.$$" -t "$topic/end" -E  # ends the session
    done
}

# The report -------------------------------------------------------------------------------------------------------------

section() { printf '\n== %s\n' "$1"; }
run() { "$@" 2>&1 || { echo "(exit status $?)"; touch "$work/failed"; }; }
{
    echo "mqbridge on IBM MQ, $(date -u +%Y-%m-%dT%H:%M:%SZ), $(uname -sm)"
    section 'versions'
    run "${program}" version 2>/dev/null || true
    run mqbridge mqsc display QMGR CMDLEVEL PLATFORM
    section 'mqbridge check --connect'
    run check
    section 'mqbridge ibm-acceptance'
    run mqbridge ibm-acceptance --subscriptions "$subscriptions" $yes
    section 'MQTT clients (mosquitto)'
    start_bridge 2>&1
    clients
    section 'mqbridge status'
    run mqbridge status
    stop_bridge 2>&1
    section 'result'
    if [ -e "$work/failed" ]; then echo 'FAILED: see the lines that begin with fail, and the exit statuses'; else echo 'passed'; fi
} | tee "$report"
[ ! -e "$work/failed" ]
