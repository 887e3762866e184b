"""SYSTEM.MQTT.MAPPING.STATE: how far a mapping has come that moves messages exactly once.

Two persistent messages for each such mapping, found by a CorrelId made of its name: its record, and the one before. What
they say is the mapping's business. The older one is replaced by the next record, so that while a unit of work that does so
is under way, one alone is to be seen: after a lost connection that says that the queue manager is at it still.

A mapping to a link works on two connections. One holds the messages that it has taken, uncommitted, until the broker has
them; the other commits the record of what is being sent before it is sent. So the record outlives a crash that puts the
messages back, and says which of them the broker may have already. A mapping from a link needs one connection: the record of
what it has received is saved in the unit of work that puts it.
"""

from __future__ import annotations

import hashlib

from bridge.config.queues import MAPPING_STATE_QUEUE
from bridge.mq.errors import MQError
from bridge.mq.mqi import Connection
from bridge.mq.state_queue import StateQueue
from bridge.wire import cmqc

#: What stands before a record; a message of no bytes says that there is none.
_MARK = b"R"


class MappingState:
    """The record of one mapping. One connection at a time saves it."""

    def __init__(self, connection: Connection, mapping: str, *, what: str = "mapping") -> None:
        """Open the queue; `what` tells records of one mapping apart. Raises MQError."""
        self._connection = connection
        self._correl_id = hashlib.sha256(f"mqbridge {what} {mapping}".encode()).digest()[:24]
        self._queue = StateQueue(connection, MAPPING_STATE_QUEUE)

    def load(self) -> bytes | None:
        """Return the record that was committed last; None without one.

        Not called within a unit of work: it may commit one. Raises MQError; with MQRC_UOW_IN_PROGRESS another connection,
        which may be lost, is just replacing the record.
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
        """Replace the record, in the unit of work of the connection; None says that there is none. Raises MQError."""
        body = b"" if record is None else _MARK + record
        if self._queue.remove(self._correl_id) is None:
            self._queue.put(self._correl_id, body)
        self._queue.put(self._correl_id, body)

    def remove(self) -> bool:
        """Let nothing be left of the mapping, in the unit of work of the connection; whether there was anything.

        Raises MQError.
        """
        found = False
        while self._queue.remove(self._correl_id) is not None:
            found = True
        return found


def forget_record(connection: Connection, mapping: str) -> None:
    """Let nothing be left of how far a mapping had come, and commit; where there is no such queue, there is no record."""
    try:
        if MappingState(connection, mapping).remove():
            connection.commit()
    except MQError as error:
        if error.reason not in _NO_QUEUE:
            raise


#: There is no queue for records, or the bridge may not use it: it has none of mappings that are not exactly-once.
_NO_QUEUE = frozenset((cmqc.MQRC_UNKNOWN_OBJECT_NAME, cmqc.MQRC_NOT_AUTHORIZED, cmqc.MQRC_OBJECT_IN_USE))
