#!/bin/sh
# Runs the tests, in five parts beside each other: the acceptance tests, on the embedded queue manager and elsewhere, which
# wait for processes of their own; those that share one session of Spark, most of them of the pipeline; those of the queue
# manager, which wait for the disk; and all others.
# What one prints comes when it has ended; until then a line every half minute says how far each is. With arguments it is one
# pytest with these.
set -u
python=$1
shift
# The tests' processes are as a user's: what one has compiled, the next one loads.
unset PYTHONDONTWRITEBYTECODE
[ $# -eq 0 ] || exec "$python" -m pytest "$@"
printed=$(mktemp -d)
running=
# All processes of the run have it in their environment: who is left at the end is found by it.
mark=$printed
# shellcheck disable=SC2086 # several processes
trap 'kill $running 2>/dev/null; "$python" -m tests.leftovers "$mark"; rm -rf "$printed"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A shell has its background processes ignore SIGINT, and so would the programs that the tests send it to.
part() {
    name=$1
    shift
    env --default-signal=INT MQBRIDGE_TEST_RUN="$mark" "$@" >"$printed/$name" 2>&1 &
    running="$running $!"
}

# Short sleeps: what is left of one would hold up who reads the end of the output.
progress() {
    seconds=0
    while sleep 1; do
        seconds=$((seconds + 1))
        [ $((seconds % 30)) -eq 0 ] || continue
        line=
        for each in others queues pipeline embedded elsewhere; do
            line="$line $each $(grep -o '[0-9]*%' "$printed/$each" | tail -n 1)"
        done
        echo "$((seconds / 60)):$(printf %02d $((seconds % 60)))$line" >&2
    done
}

part elsewhere "$python" -m pytest tests/acceptance -k 'ibmmq or pymqi'
elsewhere=$!
judge=tests/acceptance/test_crash.py::test_the_audit_is_the_judge
# The longest part, but for what the shortest one does when it is through.
lost=tests/acceptance/test_lost_queue_manager.py
part embedded "$python" -m pytest tests/acceptance -k 'not ibmmq and not pymqi' --deselect "$judge" --ignore "$lost"
embedded=$!
# shellcheck disable=SC2016 # its own arguments
part others sh -c '"$0" -m pytest --ignore=tests/pipeline --ignore=tests/acceptance --ignore=tests/mq --ignore=tests/mqi
    status=$?
    "$0" -m pytest "$1" && exit $status' "$python" "$lost"
others=$!
part queues "$python" -m pytest tests/mq tests/mqi
queues=$!
part pipeline "$python" -m pytest tests/pipeline "$judge"
pipeline=$!
progress &
running="$running $!"
status=0
for each in "others $others" "queues $queues" "pipeline $pipeline" "embedded $embedded" "elsewhere $elsewhere"; do
    wait "${each#* }" || status=$?
    cat "$printed/${each% *}"
done
exit "$status"
