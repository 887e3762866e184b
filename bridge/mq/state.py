"""State of mappings and links on state queues, in the units of work of their messages."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import msgspec

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.mqi import MQOD, Connection, GetOptions, Got, MQError, get_or_none
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_OPEN = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING


class StateQueue:
    """A state queue on one connection. Puts and gets are under syncpoint. Every method raises MQError."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        try:
            self._handle = connection.open(MQOD(ObjectName=name), _OPEN)
        except MQError as error:
            if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                words = f"no queue {name}, which stores state between restarts; hint: deploy/mq/bridge.mqsc defines it"
                raise MQError(error.reason, words) from error
            raise

    def put(
        self,
        correl_id: bytes,
        body: bytes,
        *,
        msg_id: bytes = cmqc.MQMI_NONE,
        expiry: int = cmqc.MQEI_UNLIMITED,
        options: int = cmqc.MQPMO_NONE,
    ) -> None:
        """Put a message. Without `msg_id` it gets a new MsgId. `options` are additional MQPMO options."""
        md = MQMD(MsgId=msg_id, CorrelId=correl_id, Persistence=cmqc.MQPER_PERSISTENT, Expiry=expiry)
        if msg_id == cmqc.MQMI_NONE:
            options |= cmqc.MQPMO_NEW_MSG_ID
        options |= cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        self._connection.put(self._handle, Message(md, body), options)

    def take(self, correl_id: bytes = cmqc.MQCI_NONE, *, wait: int = 0) -> bytes | None:
        """Get the oldest matching message. Return its body, or None if none arrives within `wait` milliseconds."""
        got = self._get(cmqc.MQGMO_SYNCPOINT, correl_id, cmqc.MQMI_NONE, wait)
        return None if got is None else got.data

    def remove(self, correl_id: bytes = cmqc.MQCI_NONE, *, msg_id: bytes = cmqc.MQMI_NONE, wait: int = 0) -> Got | None:
        """Get the oldest matching message without its body, or return None if there is none."""
        return self._get(cmqc.MQGMO_SYNCPOINT, correl_id, msg_id, wait, with_body=False)

    def holds(self, msg_id: bytes) -> bool:
        """Return whether the queue contains a committed message with this MsgId."""
        return self._get(cmqc.MQGMO_BROWSE_FIRST, cmqc.MQCI_NONE, msg_id, with_body=False) is not None

    def browse(self, correl_id: bytes = cmqc.MQCI_NONE, *, with_body: bool = True) -> Iterator[Got]:
        """Yield matching messages, the oldest first."""
        how = cmqc.MQGMO_BROWSE_FIRST
        while (got := self._get(how, correl_id, cmqc.MQMI_NONE, with_body=with_body)) is not None:
            yield got
            how = cmqc.MQGMO_BROWSE_NEXT

    def _get(
        self, options: int, correl_id: bytes, msg_id: bytes, wait: int = 0, *, with_body: bool = True
    ) -> Got | None:
        options |= cmqc.MQGMO_FAIL_IF_QUIESCING
        if wait:
            options |= cmqc.MQGMO_WAIT
        if not with_body:
            options |= cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
        wanted = GetOptions(
            Options=options, WaitInterval=wait, MsgId=msg_id, CorrelId=correl_id, MaxLength=None if with_body else 0
        )
        return get_or_none(self._connection, self._handle, wanted)

    def close(self) -> None:
        """Close the queue."""
        self._connection.close(self._handle)


#: The first byte of a record. An empty message means that there is no record.
_MARK = b"R"


class MappingState:
    """The record of one mapping. One connection at a time saves it."""

    def __init__(self, connection: Connection, mapping: str, *, what: str = "mapping") -> None:
        """Open the queue. `what` distinguishes several records of one mapping. Raises MQError."""
        self._connection = connection
        self._correl_id = hashlib.sha256(f"mqbridge {what} {mapping}".encode()).digest()[:24]
        self._queue = StateQueue(connection, MAPPING_STATE_QUEUE)

    def load(self) -> bytes | None:
        """Return the last committed record, or None.

        Do not call this within a unit of work, because it may commit. Raises MQError, with MQRC_UOW_IN_PROGRESS while another
        connection, which may be lost, is replacing the record.
        """
        found = [got.data for got in self._queue.browse(self._correl_id)]
        if len(found) == 1:
            raise MQError(
                cmqc.MQRC_UOW_IN_PROGRESS,
                f"the unit of work of a connection that was lost has not ended yet (its record on {MAPPING_STATE_QUEUE})",
            )
        if not found:
            self.save(None)
            self._connection.commit()
            return None
        return found[-1][len(_MARK) :] if found[-1] else None

    def save(self, record: bytes | None) -> None:
        """Replace the record, or remove it with None, in the unit of work of the connection. Raises MQError."""
        body = b"" if record is None else _MARK + record
        if self._queue.remove(self._correl_id) is None:
            self._queue.put(self._correl_id, body)
        self._queue.put(self._correl_id, body)

    def remove(self) -> bool:
        """Remove the mapping's messages in the unit of work of the connection. Return whether there were any.

        Raises MQError.
        """
        found = False
        while self._queue.remove(self._correl_id) is not None:
            found = True
        return found


def forget_record(connection: Connection, mapping: str) -> None:
    """Remove the record of a mapping and commit. Without the state queue there is no record to remove."""
    try:
        if MappingState(connection, mapping).remove():
            connection.commit()
    except MQError as error:
        if error.reason not in _NO_QUEUE:
            raise


#: The state queue is missing or not accessible. Only exactly-once mappings need it.
_NO_QUEUE = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_NOT_AUTHORIZED, cmqc.MQRC_OBJECT_IN_USE))


_WHAT = "session"
#: The state queue is missing or not accessible. Sessions of links work without records.
_NO_SESSION_QUEUE = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_NOT_AUTHORIZED))


class LinkSession(msgspec.Struct, tag="session", eq=True):
    """A mapping's session at a broker."""

    mapping: str
    #: the bridge, among those of the queue manager
    owner: str
    link: str
    host: str
    port: int
    client_id: str
    #: filters that it may be subscribed to
    filters: list[str]
    qos: int = 0
    #: `filters` is known to be complete
    sure: bool = False

    def is_of(self, other: LinkSession) -> bool:
        """Return whether both have the same broker and client identifier."""
        return (self.host, self.port, self.client_id) == (other.host, other.port, other.client_id)


class LinkSessions:
    """The records of link sessions on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def load(self, mapping: str) -> LinkSession | None:
        """Return the session of a mapping, or None. Raises MQError."""
        try:
            data = MappingState(self._connection, mapping, what=_WHAT).load()
        except MQError as error:
            if error.reason not in _NO_SESSION_QUEUE:
                raise
            return None
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(data, type=LinkSession) if data else None
        return None

    def save(self, session: LinkSession) -> None:
        """Save a session and commit. Raises MQError."""
        try:
            MappingState(self._connection, session.mapping, what=_WHAT).save(msgspec.msgpack.encode(session))
            self._connection.commit()
        except MQError as error:
            if error.reason not in _NO_SESSION_QUEUE:
                raise

    def remove(self, mapping: str) -> None:
        """Remove the session of a mapping and commit. Raises MQError."""
        MappingState(self._connection, mapping, what=_WHAT).remove()
        self._connection.commit()

    def all(self, owner: str) -> list[LinkSession]:
        """Return the sessions of a bridge. Raises MQError."""
        try:
            queue = StateQueue(self._connection, MAPPING_STATE_QUEUE)
        except MQError as error:
            if error.reason not in _NO_SESSION_QUEUE:
                raise
            return []
        found: dict[str, LinkSession] = {}
        try:
            for got in queue.browse():
                # The queue also contains other records, and possibly messages of applications, nested to any depth.
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    session = msgspec.msgpack.decode(got.data[1:], type=LinkSession)
                    found[session.mapping] = session
        finally:
            queue.close()
        return [session for session in found.values() if session.owner == owner]
