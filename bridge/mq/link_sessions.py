"""Records of mappings' sessions at brokers, and of their unfinished exchanges.

Packet identifiers are valid in one session only: that of a client identifier at a broker's address, until the broker reports
that it has no such session (Session Present 0). So each record of packet identifiers identifies its session:

- `LinkSession`, by mapping: the session that the mapping uses, with the configuration of link and mapping.
- `Exchanges`, by session: packet identifiers received and not released, and batches sent and not completed. The record of
a former session remains, even if it is empty. An empty record means that nothing else is unfinished in the session.
- `FormerSession`, by session: no mapping uses the session any longer, but exchanges in it are unfinished.
- `ParkedMessage`, by session: a message of an unfinished batch of a former session. It has left its queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import msgspec

from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.config.values import endpoint
from bridge.mq.mqi import Connection, MQError
from bridge.mq.state import MappingState, StateQueue, correl_id_of
from bridge.telemetry.message import Publication
from bridge.wire import cmqc

_SESSION, _FORMER, _EXCHANGES, _PARKED = "session", "former session", "exchanges", "parked"
#: Records of exchanges by mapping, of releases before 0.3.0.
_UNNAMED = "mapping"
#: The state queue is missing or not accessible. Sessions of links without QoS 2 work without records.
_NO_QUEUE = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_NOT_AUTHORIZED))


def session_key(client_id: str, address: str) -> str:
    """Return the identity of a session: the same for all mappings and configurations that use it."""
    return f"{client_id} at {address}"


class LinkSession(msgspec.Struct, tag="session", eq=True):
    """A mapping's session at a broker."""

    mapping: str
    #: the bridge, among those of the queue manager
    owner: str
    link: str
    host: str
    port: int
    client_id: str
    #: filters that it may be subscribed to. Empty for a mapping to a broker
    filters: list[str]
    qos: int = 0
    #: `filters` is known to be complete
    sure: bool = False
    #: the configuration of link and mapping in JSON, or "" in records of releases before 0.3.0
    link_config: str = ""
    mapping_config: str = ""
    #: `Host.epoch` of the record. After a restore, the session may have other subscriptions
    epoch: str = ""
    #: its subscription was made with Retain As Published (MQTT 5, or the bridge bit), or None if that is unknown
    keeps_retain: bool | None = None

    @property
    def address(self) -> str:
        """Host and port of the broker."""
        return endpoint(self.host, self.port)

    @property
    def key(self) -> str:
        """The identity of the session."""
        return session_key(self.client_id, self.address)

    def is_of(self, other: LinkSession) -> bool:
        """Return whether both are the same session."""
        return self.key == other.key


class FormerSession(msgspec.Struct, tag="former"):
    """A session that no mapping uses, with unfinished exchanges."""

    session: LinkSession
    #: seconds since the epoch
    since: float
    #: the session must be ended at the broker, because its mapping was removed or uses the session in another way
    ending: bool = False
    #: packet identifiers to release whose messages are gone
    releasing: list[int] = []
    #: packet identifiers received and not released, when the mapping left the session
    received: int = 0


class Exchanges(msgspec.Struct, array_like=True):
    """The unfinished QoS 2 exchanges of a session."""

    #: the store in which the packet identifiers are valid. After a restore of older data, they no longer are.
    epoch: str = ""
    #: packet identifiers from the broker: put to MQ, and not released
    received: list[int] = []
    #: packet identifiers to the broker with the MsgIds of the messages, which are on their queue. The broker may have them
    sending: list[tuple[int, bytes]] = []
    #: the same for messages that the broker has accepted (PUBREC) and that must be released
    releasing: list[tuple[int, bytes]] = []
    #: digests of publications from the broker by packet identifier, including released ones that it may send again
    digests: dict[int, bytes] = {}
    #: the broker reuses packet identifiers so early that they do not identify repeated publications
    reuses: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether any exchange is unfinished."""
        return bool(self.received or self.sending or self.releasing)


class ExchangeRecord:
    """The record of a session's exchanges on one connection."""

    def __init__(self, connection: Connection, session: LinkSession, epoch: str = "") -> None:
        """Open the queue. Raises MQError."""
        self._state = MappingState(connection, session.key, kind=_EXCHANGES)
        self._epoch = epoch
        #: whether `load` has found a record of this epoch
        self.found = False

    def load(self) -> Exchanges:
        """Return the exchanges as last committed. Ignore a record of another epoch of the store.

        Raises MQError, with MQRC_UOW_IN_PROGRESS while another connection is replacing the record.
        """
        record = self._state.load()
        exchanges = msgspec.msgpack.decode(record, type=Exchanges) if record else None
        self.found = exchanges is not None and exchanges.epoch == self._epoch
        return exchanges if exchanges is not None and self.found else Exchanges(self._epoch)

    def save(self, exchanges: Exchanges) -> None:
        """Replace the record in the unit of work of the connection. Raises MQError."""
        exchanges.epoch = self._epoch
        self._state.save(msgspec.msgpack.encode(exchanges))

    def remove(self) -> None:
        """Remove the record in the unit of work of the connection. Raises MQError."""
        self._state.remove()


class ParkedMessage(msgspec.Struct, tag="parked", rename={"packet_id": "message_id"}):
    """A message of an unfinished batch of a former session."""

    packet_id: int
    publication: Publication
    #: MQMD and data of the message, for the dead-letter queue
    md: bytes
    data: bytes
    #: the broker has accepted it (PUBREC)
    accepted: bool = False
    #: when it expires, in seconds since the epoch, or None
    expires_at: float | None = None
    #: `Host.epoch`, in which the packet identifier is valid
    epoch: str = ""


class ParkedMessages:
    """The parked messages of a session, in the units of work of one connection. Every method raises MQError."""

    def __init__(self, connection: Connection, session: LinkSession) -> None:
        self._queue = StateQueue(connection, MAPPING_STATE_QUEUE)
        self._correl_id = correl_id_of(_PARKED, session.key)

    def load(self) -> list[ParkedMessage]:
        """Return the committed messages in the order of their packet identifiers' use."""
        return [
            msgspec.msgpack.decode(message.data, type=ParkedMessage) for message in self._queue.browse(self._correl_id)
        ]

    def __len__(self) -> int:
        return sum(1 for _ in self._queue.browse(self._correl_id, with_body=False))

    def add(self, messages: Iterable[ParkedMessage]) -> None:
        """Put messages."""
        for message in messages:
            self._queue.put(self._correl_id, msgspec.msgpack.encode(message))

    def take(self) -> list[ParkedMessage]:
        """Get all messages."""
        messages = []
        while (body := self._queue.take(self._correl_id)) is not None:
            messages.append(msgspec.msgpack.decode(body, type=ParkedMessage))
        return messages

    def close(self) -> None:
        """Close the queue."""
        self._queue.close()


class LinkSessions:
    """The records of link sessions on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextlib.contextmanager
    def _opened(self, name: str, kind: str) -> Iterator[MappingState]:
        """Open a record and close it afterwards: the connection may be used for weeks, and has 256 handles (MAXHANDS)."""
        state = MappingState(self._connection, name, kind=kind)
        try:
            yield state
        finally:
            with contextlib.suppress(MQError):  # the next call reports a lost connection
                state.close()

    def load(self, mapping: str) -> LinkSession | None:
        """Return the session that a mapping uses, or None. Raises MQError."""
        try:
            with self._opened(mapping, _SESSION) as state:
                record = state.load(create=False)
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise
            return None
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(record, type=LinkSession) if record else None
        return None

    def save(self, session: LinkSession) -> None:
        """Save the session that a mapping uses and commit. Raises MQError."""
        try:
            with self._opened(session.mapping, _SESSION) as state:
                state.save(msgspec.msgpack.encode(session))
                self._connection.commit()
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise

    def remove(self, mapping: str) -> None:
        """Remove the session of a mapping in the unit of work of the connection. Raises MQError."""
        with self._opened(mapping, _SESSION) as state:
            state.remove()

    def former(self, session: LinkSession) -> FormerSession | None:
        """Return the record of a former session, or None. Raises MQError."""
        try:
            with self._opened(session.key, _FORMER) as state:
                record = state.load(create=False)
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise
            return None
        return msgspec.msgpack.decode(record, type=FormerSession) if record else None

    def save_former(self, former: FormerSession) -> None:
        """Save a former session in the unit of work of the connection. Raises MQError."""
        with self._opened(former.session.key, _FORMER) as state:
            state.save(msgspec.msgpack.encode(former))

    def remove_former(self, session: LinkSession) -> None:
        """Remove the record of a former session in the unit of work of the connection. Raises MQError."""
        with self._opened(session.key, _FORMER) as state:
            state.remove()

    def unnamed(self, mapping: str) -> bytes | None:
        """Return the record of exchanges of a release before 0.3.0, which does not identify its session, or None.

        Raises MQError.
        """
        try:
            with self._opened(mapping, _UNNAMED) as state:
                return state.load(create=False)
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise
            return None

    def remove_unnamed(self, mapping: str) -> None:
        """Remove the record of a release before 0.3.0 in the unit of work of the connection. Raises MQError."""
        with self._opened(mapping, _UNNAMED) as state:
            state.remove()

    def all(self, owner: str) -> tuple[list[LinkSession], list[FormerSession]]:
        """Return the sessions that a bridge's mappings use, and the former ones. Raises MQError."""
        try:
            queue = StateQueue(self._connection, MAPPING_STATE_QUEUE)
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise
            return [], []
        used: dict[str, LinkSession] = {}
        former: dict[str, FormerSession] = {}
        try:
            for message in queue.browse():
                # The queue also contains other records, and possibly messages of applications, nested to any depth.
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    record = msgspec.msgpack.decode(message.data[1:], type=LinkSession | FormerSession)
                    if isinstance(record, FormerSession):
                        former[record.session.key] = record
                    else:
                        used[record.mapping] = record
        finally:
            queue.close()
        return (
            [session for session in used.values() if session.owner == owner],
            [session for session in former.values() if session.session.owner == owner],
        )
