"""Pipelines of MQI calls (`bridge.mq.batch`), during which the queue manager does nothing else.

Calls outside syncpoint share one unit of work, so they are committed together or not at all.
"""

from __future__ import annotations

import time
from typing import Any, Final

from bridge.mq.batch import GetCall, Pipeline, PutCall, following, run_pipeline
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.embedded.verbs.get import (
    BROWSES,
    candidates,
    get_result,
    manner_of,
    mqget,
    ready_handle,
    release_lock,
)
from bridge.mq.embedded.verbs.get import OPTIONS as PROPERTIES
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.embedded.verbs.put import mqput
from bridge.mq.mqi import GetOptions, Got, MQError
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: The maximum duration of a pipeline in seconds, and of its results in bytes of message data.
MAX_SECONDS: Final = 0.02
_MAX_SIZE: Final = 4 * 1024 * 1024
#: Options of browses that change nothing but the cursor, so that repeated browses are a single pass over the queue.
_WALK: Final = (
    cmqc.MQGMO_BROWSE_FIRST
    | cmqc.MQGMO_BROWSE_NEXT
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | sum(PROPERTIES)
)


def run(hconn: Hconn, pipeline: Pipeline) -> tuple[list[Any], Unit | None]:
    """Run a pipeline. Return its results, and the unit of work to submit. Raises MQError."""
    until = time.monotonic() + MAX_SECONDS
    pipeline.size = min(pipeline.size, _MAX_SIZE)
    call = pipeline.calls[0]
    if pipeline.times > 1 and isinstance(call, GetCall) and _is_walk(call.options.Options):
        return _walk(hconn, call, pipeline, until), None
    unit = Unit()

    def collect(result: Any, part: Unit | None) -> Any:
        if part is not None:
            unit.add(part)
        return result

    def get(hobj: int, options: GetOptions) -> Any:
        return collect(*mqget(hconn, hobj, options))

    def put(call: PutCall) -> MQMD:
        md: MQMD = collect(*mqput(hconn, call.handle, call.message, call.options, call.properties))
        return md

    try:
        results = run_pipeline(pipeline, get, put, until=until)
    except BaseException:
        undo(unit)
        raise
    return results, None if unit.empty else unit


def _is_walk(options: int) -> bool:
    return bool(options & BROWSES) and not options & ~_WALK


def _walk(hconn: Hconn, call: GetCall, pipeline: Pipeline, until: float) -> list[Got]:
    """Repeat a browse like `run_pipeline`, with one check of its options. Raises the MQError of the first browse."""
    options = call.options
    handle = ready_handle(hconn, call.handle, options)
    how = manner_of(handle, options)
    found: list[Got] = []
    size = pipeline.size
    for stored in candidates(hconn, handle, options):
        try:
            got = get_result(hconn, handle, (stored,), options, how)
        except MQError:
            if not found:
                raise
            break
        if not found:
            release_lock(handle)
            options = following(options)
        handle.cursor = stored
        found.append(got)
        size -= len(got.data)
        if len(found) >= pipeline.times or size <= 0 or time.monotonic() > until:
            break
    if not found:
        raise MQError(cmqc.MQRC_NO_MSG_AVAILABLE, f"queue {handle.queue.name}")
    return found

