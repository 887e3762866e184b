"""Batched MQGET and MQPUT: one round trip for many calls on a `PipelinedConnection`, a loop of MQI calls on any other.

The connection to an embedded queue manager in another process is a `PipelinedConnection`. A batch ends at the first call that
fails, and returns the results so far. The next batch starts with that call and raises its MQError. The error is raised
immediately if the first call fails, or if it would otherwise be lost: the unit of work was backed out, or the outcome of a
call is unknown.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
#: Default limit of a batch without message data, in messages.
GLANCES: Final = 2_000
#: MQGMO options of a get without message data. Also set MaxLength to 0.
GLANCE: Final = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_NO_PROPERTIES

#: Reason codes that are raised immediately.
_AT_ONCE: Final = (cmqc.MQRC_BACKED_OUT, cmqc.MQRC_CALL_INTERRUPTED)

#: A put: handle, message, MQPMO_ options.
Put: TypeAlias = tuple[int, AnyMessage, int]


#: MsgId and fingerprint of a message. A blank fingerprint matches any message.
Named: TypeAlias = tuple[bytes, bytes]

Result = TypeVar("Result")


class OtherMessage(Exception):
    """The message that was got has the right MsgId but another fingerprint. The caller must back out."""


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message on a queue, without its data."""

    msg_id: bytes
    #: distinguishes messages with the same MsgId, which applications may reuse
    fingerprint: bytes
    #: the message has an Expiry: if it disappears, it was not necessarily got
    expires: bool
    #: bytes of message data, without properties
    length: int


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
    """Calls to run in order, while time remains.

    Each result is a Got or, with `glance`, a Seen, and the MQMD of a put.
    """

    calls: list[GetCall | PutCall]
    #: how often to run the calls; see `following` for the options of repeated gets
    times: MQLONG = 1
    #: repeat the only call, a get, for each of these messages instead; the result for a missing message is None
    names: list[Named] = []
    #: bytes of message data after which the pipeline ends
    size: MQLONG = SIZE
    glance: bool = False


@runtime_checkable
class PipelinedConnection(Protocol):
    """A connection that runs a pipeline in one round trip."""

    def run(self, pipeline: Pipeline, kind: type[Result]) -> list[Result | None]:
        """Run a pipeline like `run_pipeline`. `kind` is the type of the results."""


def run_pipeline(
    pipeline: Pipeline,
    get: Callable[[int, GetOptions], Any],
    put: Callable[[PutCall], Any],
    *,
    tokens: bool = False,
    until: float = math.inf,
) -> list[Any]:
    """Run calls until one fails, a limit is reached, or time.monotonic() is `until`. Run one at least.

    With `tokens`, fingerprints are MsgTokens to match. Raises the MQError of the first call.
    """
    results: list[Any] = []
    size = pipeline.size
    for call in _by_name(pipeline, tokens) if pipeline.names else _in_order(pipeline):
        if results and time.monotonic() > until:
            break
        try:
            result = get(call.handle, call.options) if isinstance(call, GetCall) else put(call)
        except MQError as error:
            if pipeline.names and error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                results.append(None)
                continue
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


def _by_name(pipeline: Pipeline, tokens: bool) -> Iterator[GetCall]:
    (call,) = pipeline.calls
    assert isinstance(call, GetCall)
    flags = call.options.Options & ~cmqc.MQGMO_WAIT
    plain = GetCall(call.handle, msgspec.structs.replace(call.options, Options=flags))
    by_token = GetCall(call.handle, msgspec.structs.replace(plain.options))
    by_token.options.MatchOptions |= cmqc.MQMO_MATCH_MSG_TOKEN
    # The options are reused, because a call does not keep them.
    for msg_id, fingerprint in pipeline.names:
        if fingerprint and tokens:
            by_token.options.MsgId, by_token.options.MsgToken = msg_id, bytes(8) + fingerprint
            yield by_token
        else:
            plain.options.MsgId = msg_id
            yield plain


class _CallByCall:
    """Runs pipelines on any connection, with one MQI call after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, pipeline: Pipeline, kind: type[Result]) -> list[Result | None]:
        def put(call: PutCall) -> MQMD:
            return self._connection.put(call.handle, call.message, call.options.Options)

        return run_pipeline(pipeline, self._look if pipeline.glance else self._connection.get, put)

    def _look(self, handle: int, options: GetOptions) -> Seen:
        got = self._connection.get(handle, options)
        return Seen(got.md.MsgId, digest(got), got.md.Expiry != cmqc.MQEI_UNLIMITED, got.DataLength)


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
    return _present(_pipelined(connection).run(pipeline, Got))


def get_each(
    connection: Connection, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int = SIZE
) -> list[Got | None]:
    """Call MQGET for each MsgId. Return the messages, None for MQRC_NO_MSG_AVAILABLE. It may end early, like `get_many`.

    `options` must contain MQMO_MATCH_MSG_ID in MatchOptions. No call waits. Raises the MQError of the first MQGET.
    """
    if not msg_ids:
        return []
    names = [(msg_id, b"") for msg_id in msg_ids[:GLANCES]]
    return _pipelined(connection).run(Pipeline([GetCall(handle, options)], names=names, size=size), Got)


def look_many(connection: Connection, handle: int, options: GetOptions, messages: int = GLANCES) -> list[Seen]:
    """Browse messages like `get_many`, but without their data.

    The options in `GLANCE` and MaxLength 0 are added. Raises the MQError of the first MQGET.
    """
    pipeline = Pipeline([GetCall(handle, glance(options))], messages, glance=True)
    return _present(_pipelined(connection).run(pipeline, Seen))


def take_each(connection: Connection, handle: int, options: GetOptions, wanted: Sequence[Named]) -> list[bool]:
    """Get messages by MsgId and fingerprint, without their data. Return whether each existed. It may end early.

    The options in `GLANCE` and MaxLength 0 are added. Raises the MQError of the first MQGET, or OtherMessage if a message
    with the same MsgId was got instead.
    """
    if not wanted:
        return []
    pipeline = Pipeline([GetCall(handle, glance(options))], names=list(wanted[:GLANCES]), glance=True)
    found = _pipelined(connection).run(pipeline, Seen)
    for seen, (msg_id, fingerprint) in zip(found, wanted, strict=False):
        if seen is not None and fingerprint and seen.fingerprint != fingerprint:
            raise OtherMessage(f"MsgId {msg_id.hex().upper()}")
    return [seen is not None for seen in found]


def put_many(connection: Connection, puts: Sequence[Put]) -> list[MQMD]:
    """Call MQPUT for each message. Return the MQMDs of the messages that were put, as filled in by the queue manager.

    It may end early, like `get_many`. Raises the MQError of the first MQPUT.
    """
    calls: list[GetCall | PutCall] = []
    size = 0
    for handle, message, options in puts[:MESSAGES]:
        calls.append(PutCall(handle, Message(message.md, message.data), MQPMO(Options=options)))
        size += message.length
        if size >= SIZE:
            break
    return _present(_pipelined(connection).run(Pipeline(calls), MQMD)) if calls else []


def fingerprint_by(connection: Connection) -> Callable[[Got], bytes]:
    """Return the function that computes the same fingerprints as `look_many` from messages got on a connection."""
    return token if isinstance(connection, PipelinedConnection) else digest


def token(got: Got) -> bytes:
    """Return the fingerprint of a message on the embedded queue manager, whose MsgTokens survive restarts."""
    return got.MsgToken[8:]


def digest(got: Got) -> bytes:
    """Return the fingerprint of a message on IBM MQ, where MsgTokens may change: a hash of immutable MQMD fields."""
    md = got.md
    fields = (
        md.CorrelId, md.GroupId, md.MsgSeqNumber, md.Offset, md.MsgType, md.Feedback, md.Report, md.Priority, md.Persistence,
        md.PutDate, md.PutTime, md.PutApplType, md.PutApplName, md.UserIdentifier, md.ReplyToQ,
    )  # fmt: skip
    return hashlib.blake2b(repr(fields).encode(), digest_size=8).digest()


def glance(options: GetOptions) -> GetOptions:
    """Return the options for gets without message data."""
    return msgspec.structs.replace(options, Options=options.Options | GLANCE, MaxLength=0)


def following(options: GetOptions) -> GetOptions:
    """Return the options for the gets that follow the first."""
    flags = options.Options & ~cmqc.MQGMO_WAIT
    if flags & cmqc.MQGMO_BROWSE_FIRST:
        flags = flags & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
    return msgspec.structs.replace(options, Options=flags)


def _present(results: list[Result | None]) -> list[Result]:
    return [result for result in results if result is not None]
