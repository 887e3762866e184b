"""What becomes of publications of MQTT clients that are no plain publications at the embedded queue manager."""

from __future__ import annotations

import time
from typing import Final

from bridge.mq.embedded.dead_letter import dead_letter
from bridge.mq.embedded.queue import Queue, StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.retained import owner_of, size_of
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.mq.unit_of_work import UnitOfWork
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import PublicationMessage
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


def unretainable(
    queue_manager: QueueManager, message: PublicationMessage, asked: int, most_of_user: int, most_in_total: int
) -> int:
    """Return the reason why a publication of a client cannot be retained, or MQRC_NONE.

    `asked` is the size of the retained publications before it in the same unit of work. A publication that takes no more
    than the one it replaces is always accepted.
    """
    if not message.payload:
        return cmqc.MQRC_NONE
    retained, owner, size = queue_manager.retained, owner_of(message), size_of(message)
    former = retained.get(message.topic)
    replaced = former.message if former is not None else None
    freed = size_of(replaced) if isinstance(replaced, PublicationMessage) else 0
    freed_of_user = freed if isinstance(replaced, PublicationMessage) and owner_of(replaced) == owner else 0
    of_user = retained.bytes_of.get(owner, 0) + asked + size - freed_of_user
    in_total = retained.total_bytes + asked + size - freed
    if (of_user > most_of_user and size > freed_of_user) or (in_total > most_in_total and size > freed):
        return cmqc.MQRC_Q_SPACE_NOT_AVAILABLE
    return cmqc.MQRC_NONE


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
