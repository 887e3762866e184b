"""Batched MQGET and MQPUT: one round trip for many messages on a `BatchConnection`, a loop of MQI calls on any other.

The connection to an embedded queue manager in another process is a `BatchConnection`. A batch ends at the first call that
fails, and returns the results so far. The next batch starts with that call and raises its MQError. The error is raised
immediately if the first call fails, or if it would otherwise be lost: the unit of work was backed out, or the outcome of a
call is unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, runtime_checkable

import msgspec

from bridge.mq.mqi import Connection, GetOptions, Got, MQError
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

#: Default limits of a batch: messages, and bytes of message data. An embedded queue manager does nothing else meanwhile.
MESSAGES: Final = 250
SIZE: Final = 1024 * 1024
#: Default limit of a batch without message data, in messages.
GLANCES: Final = 2_000
#: MQGMO options of a get without message data. Also set MaxLength to 0.
GLANCE: Final = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_NO_PROPERTIES

#: Reason codes that are raised immediately.
AT_ONCE: Final = (cmqc.MQRC_BACKED_OUT, cmqc.MQRC_CALL_INTERRUPTED)

#: A put: handle, message, MQPMO_ options.
Put: TypeAlias = tuple[int, AnyMessage, int]


#: MsgId and fingerprint of a message. A blank fingerprint matches any message.
Named: TypeAlias = tuple[bytes, bytes]


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


@runtime_checkable
class BatchConnection(Protocol):
    """A connection that implements the functions of this module itself."""

    def get_many(self, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE) -> list[Got]:
        """See the function `get_many`."""

    def get_each(
        self, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int = SIZE
    ) -> list[Got | None]:
        """See the function `get_each`."""

    def look_many(self, handle: int, options: GetOptions, messages: int = GLANCES) -> list[Seen]:
        """See the function `look_many`."""

    def take_each(self, handle: int, options: GetOptions, wanted: Sequence[Named]) -> list[bool]:
        """See the function `take_each`."""

    def put_many(self, puts: Sequence[Put]) -> list[MQMD]:
        """See the function `put_many`."""


def get_many(
    connection: Connection, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE
) -> list[Got]:
    """Call MQGET until there are `messages` messages, `size` bytes of data, or no more messages. Return one message at least.

    With MQGMO_BROWSE_FIRST, all calls after the first use MQGMO_BROWSE_NEXT. With MQGMO_WAIT, only the first call waits. A
    short result does not mean that the queue is empty: an embedded queue manager has its own limits. Raises the MQError of
    the first MQGET, for example MQRC_NO_MSG_AVAILABLE.
    """
    if isinstance(connection, BatchConnection):
        return connection.get_many(handle, options, messages, size)
    return got_many(connection.get, handle, options, messages, size)


def get_each(
    connection: Connection, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int = SIZE
) -> list[Got | None]:
    """Call MQGET for each MsgId. Return the messages, None for MQRC_NO_MSG_AVAILABLE. It may end early, like `get_many`.

    `options` must contain MQMO_MATCH_MSG_ID in MatchOptions. No call waits. Raises the MQError of the first MQGET.
    """
    if isinstance(connection, BatchConnection):
        return connection.get_each(handle, options, msg_ids, size)
    return got_each(connection.get, handle, options, msg_ids, size)


def look_many(connection: Connection, handle: int, options: GetOptions, messages: int = GLANCES) -> list[Seen]:
    """Browse messages like `get_many`, but without their data.

    The options in `GLANCE` and MaxLength 0 are added. Raises the MQError of the first MQGET.
    """
    if isinstance(connection, BatchConnection):
        return connection.look_many(handle, options, messages)
    return looked_many(connection.get, handle, glance(options), messages)


def take_each(connection: Connection, handle: int, options: GetOptions, wanted: Sequence[Named]) -> list[bool]:
    """Get messages by MsgId and fingerprint, without their data. Return whether each existed. It may end early.

    The options in `GLANCE` and MaxLength 0 are added. Raises the MQError of the first MQGET, or OtherMessage if a message
    with the same MsgId was got instead.
    """
    if isinstance(connection, BatchConnection):
        return connection.take_each(handle, options, wanted)
    return took_each(connection.get, handle, glance(options), wanted)


def fingerprint_by(connection: Connection) -> Callable[[Got], bytes]:
    """Return the function that computes the same fingerprints as `look_many` from messages got on a connection."""
    return token if isinstance(connection, BatchConnection) else digest


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


def put_many(connection: Connection, puts: Sequence[Put]) -> list[MQMD]:
    """Call MQPUT for each message. Return the MQMDs of the messages that were put, as filled in by the queue manager.

    Raises the MQError of the first MQPUT.
    """
    if isinstance(connection, BatchConnection):
        return connection.put_many(puts)
    return put_each(connection.put, puts)


# Loops of MQI calls --------------------------------------------------------------------------------------------------


def got_many(
    get: Callable[[int, GetOptions], Got], handle: int, options: GetOptions, messages: int, size: int
) -> list[Got]:
    """Implement `get_many` with the MQGET function `get`."""
    found = [get(handle, options)]
    size -= len(found[0].data)
    options = following(options)
    while len(found) < messages and size > 0:
        try:
            got = get(handle, options)
        except MQError as error:
            if error.reason in AT_ONCE:
                raise
            break
        found.append(got)
        size -= len(got.data)
    return found


def got_each(
    get: Callable[[int, GetOptions], Got], handle: int, options: GetOptions, msg_ids: Iterable[bytes], size: int
) -> list[Got | None]:
    """Implement `get_each` with the MQGET function `get`."""
    found: list[Got | None] = []
    wanted = msgspec.structs.replace(options, Options=options.Options & ~cmqc.MQGMO_WAIT)
    for msg_id in msg_ids:
        wanted.MsgId = msg_id
        try:
            got = get(handle, wanted)
        except MQError as error:
            if error.reason == cmqc.MQRC_NO_MSG_AVAILABLE:
                found.append(None)
                continue
            if not found or error.reason in AT_ONCE:
                raise
            break
        found.append(got)
        size -= len(got.data)
        if size <= 0:
            break
    return found


def looked_many(
    get: Callable[[int, GetOptions], Got],
    handle: int,
    options: GetOptions,
    messages: int,
    fingerprint: Callable[[Got], bytes] = digest,
) -> list[Seen]:
    """Implement `look_many` with the MQGET function `get`. `options` include those of `glance`."""
    found = got_many(get, handle, options, messages, 1)
    return [
        Seen(got.md.MsgId, fingerprint(got), got.md.Expiry != cmqc.MQEI_UNLIMITED, got.DataLength) for got in found
    ]


def took_each(
    get: Callable[[int, GetOptions], Got], handle: int, options: GetOptions, wanted: Iterable[Named]
) -> list[bool]:
    """Implement `take_each` with the MQGET function `get`. `options` include those of `glance`."""
    named = list(wanted)
    found = got_each(get, handle, options, [msg_id for msg_id, _ in named], 1)
    for got, (msg_id, fingerprint) in zip(found, named, strict=False):
        if got is not None and fingerprint and digest(got) != fingerprint:
            raise OtherMessage(f"MsgId {msg_id.hex().upper()}")
    return [got is not None for got in found]


def put_each(put: Callable[[int, AnyMessage, int], MQMD], puts: Iterable[Put]) -> list[MQMD]:
    """Implement `put_many` with the MQPUT function `put`."""
    done: list[MQMD] = []
    for handle, message, options in puts:
        try:
            done.append(put(handle, message, options))
        except MQError as error:
            if not done or error.reason in AT_ONCE:
                raise
            break
    return done


def glance(options: GetOptions) -> GetOptions:
    """Return the options for gets without message data."""
    return msgspec.structs.replace(options, Options=options.Options | GLANCE, MaxLength=0)


def following(options: GetOptions) -> GetOptions:
    """Return the options for the gets that follow the first."""
    flags = options.Options & ~cmqc.MQGMO_WAIT
    if flags & cmqc.MQGMO_BROWSE_FIRST:
        flags = flags & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
    return msgspec.structs.replace(options, Options=flags)
