"""Many messages by one call: what the single verbs in a row would do, and one round trip where the connection can.

The connection to an embedded queue manager of another process can (`BatchConnection`); for any other it is the verbs in a
row. A batch ends early at a verb that fails: what was done before is the result, and the next call, which begins with that
verb, raises its MQError. It is raised at once where the first fails, and where nothing would tell of it later: the unit of
work was backed out, or the outcome of a verb is unknown.
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

#: Messages, and bytes of message data, of a call where the caller has no reason for others: an embedded queue manager does
#: nothing else meanwhile.
MESSAGES: Final = 250
SIZE: Final = 1024 * 1024
#: Messages of a call that wants no data of them.
GLANCES: Final = 2_000
#: Options of gets that want to know of a message only that it is there; beside MaxLength 0.
GLANCE: Final = cmqc.MQGMO_ACCEPT_TRUNCATED_MSG | cmqc.MQGMO_NO_PROPERTIES

#: Reasons that are raised at once.
AT_ONCE: Final = (cmqc.MQRC_BACKED_OUT, cmqc.MQRC_CALL_INTERRUPTED)

#: A put: handle, message, MQPMO_ options.
Put: TypeAlias = tuple[int, AnyMessage, int]


#: A message by its MsgId and fingerprint; a blank fingerprint is that of any message.
Named: TypeAlias = tuple[bytes, bytes]


class OtherMessage(Exception):
    """A message was got whose MsgId is that of another one, which is meant: its unit of work is to be backed out."""


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is on a queue."""

    msg_id: bytes
    #: what the queue manager says of it beside its MsgId, which applications may use again
    fingerprint: bytes
    #: it has an Expiry: that it is gone later need not mean that somebody got it
    expires: bool
    #: bytes of message data, without properties
    length: int


@runtime_checkable
class BatchConnection(Protocol):
    """A connection that has the functions of this module as verbs of its own."""

    def get_many(self, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE) -> list[Got]:
        """Get messages as the function `get_many` does."""

    def get_each(
        self, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int = SIZE
    ) -> list[Got | None]:
        """Get messages by MsgId as the function `get_each` does."""

    def look_many(self, handle: int, options: GetOptions, messages: int = GLANCES) -> list[Seen]:
        """Look at messages as the function `look_many` does."""

    def take_each(self, handle: int, options: GetOptions, wanted: Sequence[Named]) -> list[bool]:
        """Take messages as the function `take_each` does."""

    def put_many(self, puts: Sequence[Put]) -> list[MQMD]:
        """Put messages as the function `put_many` does."""


def get_many(
    connection: Connection, handle: int, options: GetOptions, messages: int = MESSAGES, size: int = SIZE
) -> list[Got]:
    """Call MQGET until there are `messages`, or `size` bytes of data, or no more to get; get one message at least.

    With MQGMO_BROWSE_FIRST all but the first are MQGMO_BROWSE_NEXT, and with MQGMO_WAIT only the first waits. That it ends
    early says nothing, an embedded queue manager has bounds of its own. Raises MQError as the first MQGET does:
    MQRC_NO_MSG_AVAILABLE where there is none at all.
    """
    if isinstance(connection, BatchConnection):
        return connection.get_many(handle, options, messages, size)
    return got_many(connection.get, handle, options, messages, size)


def get_each(
    connection: Connection, handle: int, options: GetOptions, msg_ids: Sequence[bytes], size: int = SIZE
) -> list[Got | None]:
    """Call MQGET for each MsgId and return the messages, None for MQRC_NO_MSG_AVAILABLE; end early as `get_many` does.

    `options` say all else, with MQMO_MATCH_MSG_ID in MatchOptions; none waits. Raises MQError as the first MQGET does.
    """
    if isinstance(connection, BatchConnection):
        return connection.get_each(handle, options, msg_ids, size)
    return got_each(connection.get, handle, options, msg_ids, size)


def look_many(connection: Connection, handle: int, options: GetOptions, messages: int = GLANCES) -> list[Seen]:
    """Browse messages as `get_many` does, but without their data.

    The options of `GLANCE` and MaxLength 0 need not be given. Raises MQError as the first MQGET does.
    """
    if isinstance(connection, BatchConnection):
        return connection.look_many(handle, options, messages)
    return looked_many(connection.get, handle, glance(options), messages)


def take_each(connection: Connection, handle: int, options: GetOptions, wanted: Sequence[Named]) -> list[bool]:
    """Take messages by MsgId and fingerprint, without their data, and return for each whether it was there.

    It ends early as `get_each` does. As with `look_many`, the options of `GLANCE` and MaxLength 0 need not be given. Raises
    MQError as the first MQGET does, and OtherMessage where a message of the same MsgId came first, which is got now too.
    """
    if isinstance(connection, BatchConnection):
        return connection.take_each(handle, options, wanted)
    return took_each(connection.get, handle, glance(options), wanted)


def fingerprint_by(connection: Connection) -> Callable[[Got], bytes]:
    """Return the function that makes the fingerprints of `look_many` of what a connection gets."""
    return token if isinstance(connection, BatchConnection) else digest


def token(got: Got) -> bytes:
    """Return the fingerprint where MsgTokens outlive restarts of the queue manager: with the embedded one."""
    return got.MsgToken[8:]


def digest(got: Got) -> bytes:
    """Return the fingerprint of a message where its MsgToken may change: of fields that no MQGET alters."""
    md = got.md
    fields = (
        md.CorrelId, md.GroupId, md.MsgSeqNumber, md.Offset, md.MsgType, md.Feedback, md.Report, md.Priority, md.Persistence,
        md.PutDate, md.PutTime, md.PutApplType, md.PutApplName, md.UserIdentifier, md.ReplyToQ,
    )  # fmt: skip
    return hashlib.blake2b(repr(fields).encode(), digest_size=8).digest()


def put_many(connection: Connection, puts: Sequence[Put]) -> list[MQMD]:
    """Call MQPUT for each message and return the MQMDs of those that were put, as the queue manager filled them in.

    Raises MQError as the first MQPUT does.
    """
    if isinstance(connection, BatchConnection):
        return connection.put_many(puts)
    return put_each(connection.put, puts)


# The verbs in a row --------------------------------------------------------------------------------------------------


def got_many(
    get: Callable[[int, GetOptions], Got], handle: int, options: GetOptions, messages: int, size: int
) -> list[Got]:
    """Do as `get_many` does, by the MQGET that is given."""
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
    """Do as `get_each` does, by the MQGET that is given."""
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
    """Do as `look_many` does, by the MQGET that is given, with the options of a glance."""
    found = got_many(get, handle, options, messages, 1)
    return [
        Seen(got.md.MsgId, fingerprint(got), got.md.Expiry != cmqc.MQEI_UNLIMITED, got.DataLength) for got in found
    ]


def took_each(
    get: Callable[[int, GetOptions], Got], handle: int, options: GetOptions, wanted: Iterable[Named]
) -> list[bool]:
    """Do as `take_each` does, by the MQGET that is given, with the options of a glance."""
    named = list(wanted)
    found = got_each(get, handle, options, [msg_id for msg_id, _ in named], 1)
    for got, (msg_id, fingerprint) in zip(found, named, strict=False):
        if got is not None and fingerprint and digest(got) != fingerprint:
            raise OtherMessage(f"MsgId {msg_id.hex().upper()}")
    return [got is not None for got in found]


def put_each(put: Callable[[int, AnyMessage, int], MQMD], puts: Iterable[Put]) -> list[MQMD]:
    """Do as `put_many` does, by the MQPUT that is given."""
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
    """Return the options of a get that wants no data."""
    return msgspec.structs.replace(options, Options=options.Options | GLANCE, MaxLength=0)


def following(options: GetOptions) -> GetOptions:
    """Return the options of the gets behind the first."""
    flags = options.Options & ~cmqc.MQGMO_WAIT
    if flags & cmqc.MQGMO_BROWSE_FIRST:
        flags = flags & ~cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT
    return msgspec.structs.replace(options, Options=flags)
