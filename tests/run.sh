#!/bin/sh
# Runs the tests, in four processes beside each other: the acceptance tests, on the embedded queue manager and elsewhere,
# which wait for processes of their own; those that share one session of Spark, most of them of the pipeline; and all others.
# What one prints comes when it has ended. With arguments it is one pytest with these.
set -u
python=$1
shift
# The tests' processes are as a user's: what one has compiled, the next one loads.
unset PYTHONDONTWRITEBYTECODE
[ $# -eq 0 ] || exec "$python" -m pytest "$@"
printed=$(mktemp -d)
trap 'rm -rf "$printed"' EXIT

# A shell has its background processes ignore SIGINT, and so would the programs that the tests send it to.
part() {
    name=$1
    shift
    env --default-signal=INT "$python" -m pytest "$@" >"$printed/$name" 2>&1 &
}

part elsewhere tests/acceptance -k 'ibmmq or pymqi'
elsewhere=$!
judge=tests/acceptance/test_crash.py::test_the_audit_is_the_judge
part embedded tests/acceptance -k 'not ibmmq and not pymqi' --deselect "$judge"
embedded=$!
part others --ignore=tests/pipeline --ignore=tests/acceptance
others=$!
part pipeline tests/pipeline "$judge"
pipeline=$!
status=0
for each in "others $others" "pipeline $pipeline" "embedded $embedded" "elsewhere $elsewhere"; do
    wait "${each#* }" || status=$?
    cat "$printed/${each% *}"
done
exit "$status"
