"""Message numbers, and the put operation that all of the queue manager uses."""

from __future__ import annotations

import time
from typing import Final

from bridge.config.queue_manager import COMMAND_QUEUE, MAPPING_STATE_QUEUE
from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.objects import Destination, Objects
from bridge.mq.embedded.queue import MAX_PRIORITY, Queue, StoredMessage
from bridge.mq.embedded.storage.recovery_log import RecoveryLog
from bridge.mq.embedded.unit import Unit
from bridge.mq.memory import MESSAGE_OVERHEAD, MemoryWatermark
from bridge.mq.mqi import MQError
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import Message, Unmappable
from bridge.telemetry.subscription import is_for_subscription
from bridge.wire import cmqc

#: The memory watermark is updated once per this number of message bytes.
COUNTED_BYTES: Final = 256 * 1024


class Messages(Objects):
    """The objects of a queue manager, and the put operation."""

    #: commits units of work
    recovery_log: RecoveryLog
    #: next number for a message
    _next: int

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.appearance = Appearance(name)
        #: with the recovery log's reserve, decides whether messages are accepted (`shortage`)
        self.memory = MemoryWatermark(None)
        #: message bytes not yet reported to the watermark
        self._accepted = 0

    def next_number(self) -> int:
        """Return a new message number, unique for this queue manager.

        The low 16 bits are never 0, because they are the MQTT message id.
        """
        number = self._next
        self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
        return number

    def shortage(self, size: int, persistent: bool) -> int:
        """Return the reason why a message of `size` bytes in memory is not accepted now, or MQRC_NONE.

        MQRC_STORAGE_NOT_AVAILABLE means that memory use is above the watermark, MQRC_RESOURCE_PROBLEM that the disk is full.
        """
        if size:
            self._accepted += size
            # Not for each message, because the watermark is not compiled.
            if self._accepted >= COUNTED_BYTES or self.memory.above:
                accepted, self._accepted = self._accepted, 0
                if not self.memory.accepts(accepted):
                    return cmqc.MQRC_STORAGE_NOT_AVAILABLE
        if persistent and self.recovery_log.reserve.full:
            return cmqc.MQRC_RESOURCE_PROBLEM
        return cmqc.MQRC_NONE

    def put(
        self,
        unit: Unit,
        destination: Destination,
        message: Message,
        *,
        application: str | None = "",
        replacing: bool = False,
    ) -> StoredMessage:
        """Put a message with a complete MQMD to a queue in a unit of work. Raises MQError.

        `replacing` means that it replaces a message that is removed, so that it needs no additional memory.
        """
        queue = destination.queue
        assert queue is not None
        md = message.md
        reason = queue.refusal(message.length) if destination.put_enabled else cmqc.MQRC_PUT_INHIBITED
        if reason:
            raise MQError(reason, f"put to queue {queue.name}")
        persistent = md.Persistence == cmqc.MQPER_PERSISTENT or (
            md.Persistence == cmqc.MQPER_PERSISTENCE_AS_Q_DEF and destination.persistent
        )
        # Without its state, a mapping could not process the messages that it has got.
        if queue.name != MAPPING_STATE_QUEUE:
            # Administrators free memory by commands.
            exempt = replacing or queue.name == COMMAND_QUEUE
            reason = self.shortage(0 if exempt else message.length + MESSAGE_OVERHEAD, persistent)
            if reason:
                what = "the disk is full" if reason == cmqc.MQRC_RESOURCE_PROBLEM else self.memory.problem
                raise MQError(reason, f"put to queue {queue.name}: {what}")
        now = time.time()
        stored = StoredMessage(
            queue,
            self.next_number(),
            message,
            persistent,
            min(md.Priority, MAX_PRIORITY) if md.Priority >= 0 else destination.priority,
            now,
            destination.client_id,
            destination.remote_queue,
            msg_id=md.MsgId if md.MsgId != cmqc.MQMI_NONE else None,
            expires_at=now + md.Expiry / 10 if md.Expiry > 0 else 0.0,
            durable=persistent and not queue.temporary,
            put_application=application,
        )
        if destination.client_id and is_for_subscription(destination.remote_queue):
            _read_delivery(stored)
        queue.depth += 1
        unit.puts.append(stored)
        return stored

    def put_moved(self, unit: Unit, stored: StoredMessage, queue: Queue) -> None:
        """Put a message that was got in the same unit of work to another queue, unchanged. Raises MQError."""
        if reason := queue.refusal(stored.message.length):
            raise MQError(reason, f"put to queue {queue.name}")
        if stored.durable and not queue.temporary and self.recovery_log.reserve.full:
            raise MQError(cmqc.MQRC_RESOURCE_PROBLEM, f"put to queue {queue.name}: the disk is full")
        moved = StoredMessage(
            queue,
            self.next_number(),
            stored.message,
            stored.persistent,
            stored.priority,
            stored.put_time,
            stored.client_id,
            stored.remote_queue,
            topic=stored.topic,
            user_data=stored.user_data,
            retained=stored.retained,
            correl_id=stored.correl_id,
            msg_id=stored.msg_id or self.appearance.generated(stored.msg_number),
            expires_at=stored.expires_at,
            durable=stored.persistent and not queue.temporary,
            backout_count=stored.backout_count,
            put_application=stored.put_application,
        )
        queue.depth += 1
        unit.puts.append(moved)


def _read_delivery(stored: StoredMessage) -> None:
    """Restore the publication attributes of a message for a subscription from its headers, for example after a retry."""
    assert isinstance(stored.message, Message)
    try:
        headers = Headers(stored.message, discard_others=True)
    except Unmappable:
        return  # the session parses the headers again and dead-letters the message
    stored.topic, stored.user_data, stored.retained = headers.topic or None, headers.user_data, headers.retained
