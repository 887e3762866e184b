"""What becomes of publications of MQTT clients that are no plain publications at the embedded queue manager."""

from __future__ import annotations

import time
from typing import Final

from bridge.mapping.message import Message
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mq.embedded.dead_letter import dead_letter
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.retained import size_of
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.mq.unit_of_work import UnitOfWork
from bridge.wire import cmqc

APPLICATION_NAME: Final = "mqbridge"


def put_answer(queue_manager: QueueManager, work: Unit, message: PublicationMessage, reply_to: tuple[str, str]) -> None:
    """Put a client's answer to a request. Raises MQError."""
    destination = queue_manager.resolve(*reply_to)
    if destination.queue is None:
        raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"{reply_to[0]} leads to a topic")
    if queue_manager.authorization is not None:
        name = destination.queue.name if destination.client_id else reply_to[0]
        queue_manager.authorization.check_putting(message.md.UserIdentifier, name)
    queue_manager.put(work, destination, Message(message.md, message.put_data), application=APPLICATION_NAME)


def unretainable(queue_manager: QueueManager, message: PublicationMessage, asked: int, most: int) -> int:
    """Return the reason for which a client may not have one more publication retained, or MQRC_NONE.

    `asked` are the bytes of those before it in the same unit of work, `most` those that a client may have.
    """
    retained = queue_manager.retained
    kept = retained.bytes_of.get(message.client_id, 0) + asked
    if not message.payload or kept + size_of(message) <= most:
        return cmqc.MQRC_NONE
    before = retained.get(message.topic)
    if before is not None and before.message.length >= len(message.payload):
        return cmqc.MQRC_NONE
    return cmqc.MQRC_Q_SPACE_NOT_AVAILABLE


def divert(
    queue_manager: QueueManager,
    transmission_queue: Queue,
    unit: UnitOfWork,
    work: Unit,
    refusals: dict[int, int],
    diverted: dict[int, int],
) -> None:
    """Put refused publications to the dead-letter queue where their reasons are among `unit.dead_letters`."""
    for index, reason in list(refusals.items()):
        if reason not in unit.dead_letters:
            continue
        message, retain = unit.publications[index]
        name, manager = message.reply_to or ("", "")
        stored = StoredMessage(
            transmission_queue,
            queue_manager.next_number(),
            Message(message.md, message.put_data) if name else message,
            message.md.Persistence == cmqc.MQPER_PERSISTENT,
            0,
            time.time(),
            topic=None if name else message.topic,
            retained=retain,
            put_application=APPLICATION_NAME,
        )
        if dead_letter(queue_manager, work, stored, reason, name or message.topic, manager):
            del refusals[index]
            diverted[index] = reason
