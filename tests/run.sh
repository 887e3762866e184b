#!/bin/sh
# Runs the tests, in three processes beside each other: the acceptance tests, which wait for processes of their own; those of
# the pipeline, which wait for Spark's virtual machine; and all others. What the last two print comes at the end.
# With arguments it is one pytest with these.
set -u
python=$1
shift
[ $# -eq 0 ] || exec "$python" -m pytest "$@"
printed=$(mktemp -d)
trap 'rm -rf "$printed"' EXIT
"$python" -m pytest tests/pipeline >"$printed/pipeline" 2>&1 &
pipeline=$!
"$python" -m pytest --ignore=tests/pipeline --ignore=tests/acceptance >"$printed/others" 2>&1 &
others=$!
"$python" -m pytest tests/acceptance
status=$?
wait "$pipeline" || status=$?
wait "$others" || status=$?
cat "$printed/pipeline" "$printed/others"
exit "$status"
