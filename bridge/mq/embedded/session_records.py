"""Records of sessions on SYSTEM.MQTT.PERSISTENT.STATE of the embedded queue manager: the latest of each is in force."""

from __future__ import annotations

import logging
import time

from bridge.config.queues import STATE_QUEUE
from bridge.mq.backend import unreadable
from bridge.mq.embedded.dead_letter import dead_letter
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.telemetry.message import Message
from bridge.telemetry.record import MARKS, StateKey, StateRecord, UnknownRecord, decode, encode
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

log = logging.getLogger(__name__)

_DESCRIPTOR = MQMD(Persistence=cmqc.MQPER_PERSISTENT)


class SessionRecords:
    """The records, as the telemetry service's backend writes them."""

    def __init__(self, queue_manager: QueueManager, application_name: str) -> None:
        self._queue_manager = queue_manager
        self._application_name = application_name
        #: how often each record was written
        self._sequences: dict[str, int] = {}

    def load(self) -> list[StateRecord]:
        """Return the records of all sessions. Raises MQError for one that cannot be read.

        What applications have put on their queue goes to the dead-letter queue: nobody could take it away before the start.
        The messages of a bridge that has this queue manager as its own, but runs elsewhere, are its business.
        """
        queue_manager = self._queue_manager
        states = queue_manager.states
        with queue_manager.lock:
            records = []
            for stored in states.values():
                try:
                    records.append(decode(stored.message.data))
                except UnknownRecord as error:
                    raise unreadable(queue_manager.appearance.msg_id(stored), str(error)) from error
            self._sequences = {_name(record.key): record.sequence for record in records}
            for stored in list(queue_manager.queues[STATE_QUEUE].messages()):
                own = states.get(stored.client_id) is stored or stored.message.md.CorrelId in MARKS
                if not own and not stored.expired:
                    self._dead_letter(stored)
        return records

    def _dead_letter(self, stored: StoredMessage) -> None:
        """Move a message that is no record in force to the dead-letter queue, and say so; what cannot be moved stays."""
        queue_manager, work = self._queue_manager, Unit()
        msg_id, name = queue_manager.appearance.msg_id(stored), queue_manager.attributes["DEADQ"]

        def ended(reason: int) -> None:
            log.error(
                "MQB3105E %s %s (MsgId %s) %s; the bridge goes on",
                # The row of the log that removed a record may be lost with a database that had to be salvaged.
                "a replaced record on" if stored.client_id else "a message that an application has put on",
                STATE_QUEUE,
                msg_id.hex().upper(),
                "stays there: it cannot be dead-lettered" if reason else f"has gone to dead-letter queue {name}",
            )

        if not dead_letter(queue_manager, work, stored, cmqc.MQRC_FORMAT_ERROR, STATE_QUEUE):
            ended(cmqc.MQRC_FORMAT_ERROR)
            return
        stored.queue.take(stored)
        work.gets.append(stored)
        work.done = ended
        queue_manager.recovery_log.submit(work)

    def save(self, work: Unit, key: StateKey, record: StateRecord | None) -> None:
        """Replace a record in a unit of work; None removes it."""
        queue_manager, name = self._queue_manager, _name(key)
        if record is None:
            self._sequences.pop(name, None)
            work.changes.latest.append((queue_manager.states, name, None))
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
        work.changes.latest.append((queue_manager.states, name, stored))


def _name(key: StateKey) -> str:
    """Return the name of a record among those of the queue manager."""
    return f"{key.side}:{key.queue}{':' if key.queue else ''}{key.client_id}"
