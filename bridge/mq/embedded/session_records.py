"""Records of sessions on SYSTEM.MQTT.PERSISTENT.STATE of the embedded queue manager: the latest of each is in force."""

from __future__ import annotations

import time

from bridge.config.queues import STATE_QUEUE
from bridge.mapping.message import Message
from bridge.mapping.telemetry.session_record import MARKS, SessionRecord, StateKey, UnknownRecord, decode, encode
from bridge.mq.backend import unreadable
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_DESCRIPTOR = MQMD(Persistence=cmqc.MQPER_PERSISTENT)


class SessionRecords:
    """The records, as the telemetry service's backend writes them."""

    def __init__(self, queue_manager: QueueManager, application_name: str) -> None:
        self._queue_manager = queue_manager
        self._application_name = application_name
        #: how often each record was written
        self._sequences: dict[str, int] = {}

    def load(self) -> list[SessionRecord]:
        """Return the records of all sessions. Raises MQError for a message on their queue that is none.

        Those of a bridge that has this queue manager as its own, but runs elsewhere, are its business.
        """
        states = self._queue_manager.states
        for stored in self._queue_manager.queues[STATE_QUEUE].messages():
            if states.get(stored.client_id) is not stored and stored.message.md.CorrelId not in MARKS:
                raise unreadable(_msg_id(stored), "it was put by an application")
        records = []
        for stored in states.values():
            try:
                records.append(decode(stored.message.data))
            except UnknownRecord as error:
                raise unreadable(_msg_id(stored), str(error)) from error
        self._sequences = {_name(record.key): record.sequence for record in records}
        return records

    def save(self, work: Unit, key: StateKey, record: SessionRecord | None) -> None:
        """Replace a record in a unit of work; None removes it."""
        queue_manager, name = self._queue_manager, _name(key)
        if record is None:
            self._sequences.pop(name, None)
            work.latest.append((queue_manager.states, name, None))
            return
        queue = queue_manager.queues[STATE_QUEUE]
        sequence = self._sequences[name] = self._sequences.get(name, 0) + 1
        stored = StoredMessage(
            queue,
            queue_manager.next_number(),
            Message(_DESCRIPTOR, encode(record, sequence)),
            True,
            0,
            time.time(),
            name,
            durable=True,
            put_application=self._application_name,
        )
        queue.depth += 1
        work.puts.append(stored)
        work.latest.append((queue_manager.states, name, stored))


def _name(key: StateKey) -> str:
    """Return the name of a record among those of the queue manager."""
    return f"{key.side}:{key.client_id}"


def _msg_id(stored: StoredMessage) -> bytes:
    """Return the MsgId of a message, as far as it is its own: the last eight bytes, where the queue manager has made it."""
    return stored.msg_id or stored.msg_number.to_bytes(8, "big")
