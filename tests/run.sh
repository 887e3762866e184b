#!/bin/sh
# Runs the tests. Those of the pipeline wait for Spark's virtual machine most of the time, so they run beside the others;
# what they print comes last. With arguments it is one pytest with these.
set -u
python=$1
shift
[ $# -eq 0 ] || exec "$python" -m pytest "$@"
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
"$python" -m pytest tests/pipeline >"$printed" 2>&1 &
pipeline=$!
"$python" -m pytest --ignore=tests/pipeline
status=$?
wait "$pipeline" || status=$?
cat "$printed"
exit "$status"
