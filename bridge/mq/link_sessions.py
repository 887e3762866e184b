"""The sessions that mappings have at brokers, on SYSTEM.MQTT.MAPPING.STATE: what a broker keeps when its mapping is gone.

A durable session goes on without its mapping: it gathers what comes for its filters. So each is on record before it is made:
where it is, and which filters it may be subscribed to.
"""

from __future__ import annotations

import contextlib

import msgspec

from bridge.config.queues import MAPPING_STATE_QUEUE
from bridge.mq.errors import MQError
from bridge.mq.mapping_state import MappingState
from bridge.mq.mqi import Connection
from bridge.mq.state_queue import StateQueue
from bridge.wire import cmqc

_WHAT = "session"
#: There is no queue for records, or the bridge may not use it: the mapping does without.
_NO_QUEUE = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_NOT_AUTHORIZED))


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
    #: it is subscribed to these, and to nothing else
    sure: bool = False

    def is_of(self, other: LinkSession) -> bool:
        """Return whether it is the same session: of one broker, under one client identifier."""
        return (self.host, self.port, self.client_id) == (other.host, other.port, other.client_id)


class LinkSessions:
    """The sessions of mappings, as one connection sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def load(self, mapping: str) -> LinkSession | None:
        """Return what is on record of a mapping; None where nothing is. Raises MQError."""
        try:
            data = MappingState(self._connection, mapping, what=_WHAT).load()
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise
            return None
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(data, type=LinkSession) if data else None
        return None

    def save(self, session: LinkSession) -> None:
        """Put a session on record, and commit. Raises MQError."""
        try:
            MappingState(self._connection, session.mapping, what=_WHAT).save(msgspec.msgpack.encode(session))
            self._connection.commit()
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise

    def remove(self, mapping: str) -> None:
        """Forget the session of a mapping, and commit. Raises MQError."""
        MappingState(self._connection, mapping, what=_WHAT).remove()
        self._connection.commit()

    def all(self, owner: str) -> list[LinkSession]:
        """Return the sessions of a bridge. Raises MQError."""
        try:
            queue = StateQueue(self._connection, MAPPING_STATE_QUEUE)
        except MQError as error:
            if error.reason not in _NO_QUEUE:
                raise
            return []
        found: dict[str, LinkSession] = {}
        try:
            for got in queue.browse():
                # Other records are on the queue too, and what applications may have put there, however deep it nests.
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    session = msgspec.msgpack.decode(got.data[1:], type=LinkSession)
                    found[session.mapping] = session
        finally:
            queue.close()
        return [one for one in found.values() if one.owner == owner]
