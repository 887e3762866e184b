"""Batched MQGET and MQPUT: one round trip for many calls on a `PipelinedConnection`, a loop of MQI calls on any other.

The connection to an embedded queue manager in another process is a `PipelinedConnection`. A batch ends at the first call that
fails, and returns the results so far. The next batch starts with that call and raises its MQError. The error is raised
immediately if the first call fails, or if it would otherwise be lost: the unit of work was backed out, or the outcome of a
call is unknown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from bridge.mq.mqi import MQPMO, Connection, GetOptions, Got, MQError, Property
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQLONG, MQMD

#: Default limits of a batch: messages, and bytes of message data. An embedded queue manager does nothing else meanwhile.
MESSAGES: Final = 250
SIZE: Final = 1024 * 1024
#: MQGMO options of a get without message data. Also set MaxLength to 0.
GLANCE: Final = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_NO_PROPERTIES

#: Reason codes that are raised immediately.
_AT_ONCE: Final = (cmqc.MQRC_BACKED_OUT, cmqc.MQRC_CALL_INTERRUPTED)

#: A put: handle, message, MQPMO_ options.
Put: TypeAlias = tuple[int, AnyMessage, int]


Result = TypeVar("Result")


class GetCall(msgspec.Struct, tag="MQGET", array_like=True):
    """An MQGET."""

    handle: MQLONG
    options: GetOptions


class PutCall(msgspec.Struct, tag="MQPUT", array_like=True):
    """An MQPUT."""

    handle: MQLONG
    message: Message
    options: MQPMO
    properties: list[Property] = []


class Pipeline(msgspec.Struct, tag="pipeline", array_like=True):
    """Calls to run in order, while time remains. Each result is a Got, or the MQMD of a put."""

    calls: list[GetCall | PutCall]
    #: how often to run the calls; see `following` for the options of repeated gets
    times: MQLONG = 1
    #: bytes of message data after which the pipeline ends
    size: MQLONG = SIZE


@runtime_checkable
class PipelinedConnection(Protocol):
    """A connection that runs a pipeline in one round trip."""

    def run(self, pipeline: Pipeline, kind: type[Result]) -> list[Result]:
        """Run a pipeline like `run_pipeline`. `kind` is the type of the results."""


def run_pipeline(
    pipeline: Pipeline,
    get: Callable[[int, GetOptions], Any],
    put: Callable[[PutCall], Any],
    *,
    until: float = math.inf,
) -> list[Any]:
    """Run calls until one fails, a limit is reached, or time.monotonic() is `until`. Run one at least.

    Raises the MQError of the first call.
    """
    results: list[Any] = []
    size = pipeline.size
    for call in _in_order(pipeline):
        if results and time.monotonic() > until:
            break
        try:
            result = get(call.handle, call.options) if isinstance(call, GetCall) else put(call)
        except MQError as error:
            if not results or error.reason in _AT_ONCE:
                raise
            break
        results.append(result)
        if isinstance(result, Got):
            size -= len(result.data)
            if size <= 0:
                break
    return results


def _in_order(pipeline: Pipeline) -> Iterable[GetCall | PutCall]:
    if pipeline.times == 1:
        return pipeline.calls
    again = [
        GetCall(call.handle, following(call.options)) if isinstance(call, GetCall) else call for call in pipeline.calls
    ]
    return chain(pipeline.calls, chain.from_iterable(repeat(again, pipeline.times - 1)))


class _CallByCall:
    """Runs pipelines on any connection, with one MQI call after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, pipeline: Pipeline, kind: type[Result]) -> list[Result]:
        def put(call: PutCall) -> MQMD:
            return self._connection.put(call.handle, call.message, call.options.Options)

        return run_pipeline(pipeline, self._connection.get, put)

def _pipelined(connection: Connection) -> PipelinedConnection:
    return connection if isinstance(connection, PipelinedConnection) else _CallByCall(connection)


def get_many(
    connection: Connection, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE
) -> list[Got]:
    """Call MQGET until there are `messages` messages, `size` bytes of data, or no more messages. Return one message at least.

    With MQGMO_BROWSE_FIRST, all calls after the first use MQGMO_BROWSE_NEXT. With MQGMO_WAIT, only the first call waits. A
    short result does not mean that the queue is empty: an embedded queue manager ends a batch that takes too long. Raises the
    MQError of the first MQGET, for example MQRC_NO_MSG_AVAILABLE.
    """
    pipeline = Pipeline([GetCall(handle, options)], messages, size=size)
    return _pipelined(connection).run(pipeline, Got)


def put_many(connection: Connection, puts: Sequence[Put], messages: int = MESSAGES, size: int = SIZE) -> list[MQMD]:
    """Call MQPUT for each message, up to `messages` and `size` bytes of data. Return the MQMDs, as filled in.

    It may end early, like `get_many`. Raises the MQError of the first MQPUT.
    """
    calls: list[GetCall | PutCall] = []
    pmos: dict[int, MQPMO] = {}
    for handle, message, options in puts[:messages]:
        pmo = pmos.get(options) or pmos.setdefault(options, MQPMO(Options=options))
        plain = message if isinstance(message, Message) else Message(message.md, message.data)
        calls.append(PutCall(handle, plain, pmo))
        size -= message.length
        if size <= 0:
            break
    return _pipelined(connection).run(Pipeline(calls), MQMD) if calls else []


def following(options: GetOptions) -> GetOptions:
    """Return the options for the gets that follow the first."""
    flags = options.Options & ~cmqc.MQGMO_WAIT
    if flags & cmqc.MQGMO_BROWSE_FIRST:
        flags = flags & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
    return msgspec.structs.replace(options, Options=flags)
