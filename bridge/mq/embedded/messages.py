"""Messages onto queues: their numbers, and MQPUT as everything in the queue manager does it."""

from __future__ import annotations

import time
from typing import Final

from bridge.config.queue_manager import COMMAND_QUEUE, MAPPING_STATE_QUEUE
from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.objects import Destination, Objects
from bridge.mq.embedded.queue import MAX_PRIORITY, StoredMessage
from bridge.mq.embedded.storage.recovery_log import RecoveryLog
from bridge.mq.embedded.unit import Unit
from bridge.mq.memory import MESSAGE_OVERHEAD, MemoryWatermark
from bridge.mq.mqi import MQError
from bridge.telemetry.headers import Headers
from bridge.telemetry.message import Message, Unmappable
from bridge.telemetry.subscription import is_for_subscription
from bridge.wire import cmqc

#: Bytes of messages of which the memory watermark is told at once.
COUNTED_BYTES: Final = 256 * 1024


class Messages(Objects):
    """Objects of a queue manager, and what puts messages to its queues."""

    #: ends units of work
    recovery_log: RecoveryLog
    #: next number for a message
    _next: int

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.appearance = Appearance(name)
        #: decides together with the recovery log's reserve whether messages are accepted: `shortage`
        self.memory = MemoryWatermark(None)
        #: bytes of messages that the watermark has not been told of
        self._accepted = 0

    def next_number(self) -> int:
        """Return a number for a message, never used before by this queue manager.

        No number ends in sixteen zero bits: the last two bytes serve as MQTT message id, which is never 0.
        """
        number = self._next
        self._next = number + 1 if (number + 1) & 0xFFFF else number + 2
        return number

    def shortage(self, size: int, persistent: bool) -> int:
        """Return the reason for which no message that takes `size` bytes of memory is accepted now, or MQRC_NONE.

        MQRC_STORAGE_NOT_AVAILABLE: memory use is above the watermark. MQRC_RESOURCE_PROBLEM: the disk is full.
        """
        if size:
            self._accepted += size
            # Not for each message: the watermark is not compiled.
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
        """Put a message to a queue in a unit of work; `message.md` is already complete. Raises MQError.

        `replacing` says that it takes the place of a message that is removed, so that it needs no more memory.
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
        # Without its state, a mapping could not finish what it has taken.
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


def _read_delivery(stored: StoredMessage) -> None:
    """Read from its headers what a message for a subscription was published as, such as one that was dead-lettered."""
    assert isinstance(stored.message, Message)
    try:
        headers = Headers(stored.message, discard_others=True)
    except Unmappable:
        return  # the session reads the headers again and has the message dead-lettered
    stored.topic, stored.user_data, stored.retained = headers.topic or None, headers.user_data, headers.retained
