"""Dynamic queues: what opening a model queue makes.

Source: IBM MQ documentation, "Dynamic queues", DynamicQName of MQOD, "MQCLOSE - Close object". A temporary dynamic queue
ends with the handle that made it, its messages with it; a permanent one is a QLOCAL until somebody deletes it.
"""

from __future__ import annotations

import msgspec

from bridge.mq.embedded.attributes import MQ_OBJECT_NAME_LENGTH, Value, defaults, invalid_name_character
from bridge.mq.embedded.authority.records import Identity
from bridge.mq.embedded.authority.words import ALL
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.unit import Unit
from bridge.mq.errors import MQError
from bridge.wire import cmqc

TEMPORARY = "TEMPDYN"
PERMANENT = "PERMDYN"
#: "the last nonblank character in positions 1 through 33"
_LONGEST_PREFIX = 33


def dynamic_queue(
    queue_manager: QueueManager, model: dict[str, Value], wanted: str, creator: str | None = None
) -> Queue:
    """Make a dynamic queue with the attributes of a model queue, there at once. Raises MQError.

    Its creator has all authorities for it, those for a permanent one on record.
    """
    name = _name(queue_manager, wanted)
    if name in queue_manager.queues or name in queue_manager.aliases or name in queue_manager.remotes:
        raise MQError(cmqc.MQRC_OBJECT_ALREADY_EXISTS, f"queue {name}")
    queue = Queue(name, {keyword: model[keyword] for keyword in defaults("QLOCAL")} | {"DEFTYPE": model["DEFTYPE"]})
    queue.temporary = model["DEFTYPE"] == TEMPORARY
    queue.owner = creator
    queue_manager.queues[name] = queue
    if not queue.temporary:
        unit = Unit()
        unit.changes.definitions.append(("QLOCAL", name, msgspec.json.encode(queue.attributes).decode()))
        if creator is not None and queue_manager.authorization is not None:
            identity = Identity(cmqc.MQOT_Q, name, cmqc.MQZAET_PRINCIPAL, creator)
            queue_manager.authority_records.put(unit, identity, ALL)
        queue_manager.recovery_log.submit(unit)
    return queue


def _name(queue_manager: QueueManager, wanted: str) -> str:
    wanted = wanted.rstrip(" ")
    generic = wanted.endswith("*")
    prefix = wanted[:-1] if generic else wanted
    if not wanted or len(wanted) > (_LONGEST_PREFIX if generic else MQ_OBJECT_NAME_LENGTH):
        raise MQError(cmqc.MQRC_DYNAMIC_Q_NAME_ERROR, f"{wanted!r}: a `*` ends at most {_LONGEST_PREFIX} characters")
    if wrong := invalid_name_character(prefix):
        raise MQError(cmqc.MQRC_DYNAMIC_Q_NAME_ERROR, f"{wanted!r} holds {wrong!r}")
    return f"{prefix}{queue_manager.next_number() & 0xFFFFFFFFFFFFFF:014X}" if generic else prefix


def check_closing(queue: Queue, options: int, creator: bool) -> None:
    """Check that MQCO_DELETE or MQCO_DELETE_PURGE may be given for a queue. Raises MQError."""
    kind = queue.attributes.get("DEFTYPE")
    if kind not in (TEMPORARY, PERMANENT) or (kind == TEMPORARY and not creator):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"queue {queue.name} is not deleted by this handle")
    if kind == TEMPORARY:
        return
    available = sum(1 for _ in queue.messages())
    if queue.depth != available or (queue.depth and not options & cmqc.MQCO_DELETE_PURGE):
        raise MQError(cmqc.MQRC_Q_NOT_EMPTY, f"queue {queue.name} has {queue.depth} messages")


def delete(queue_manager: QueueManager, queue: Queue) -> Unit:
    """Take a dynamic queue away, with its messages; handles that others have for it are good for MQCLOSE only."""
    unit = Unit()
    queue.deleted = True
    queue_manager.queues.pop(queue.name, None)
    for stored in list(queue.messages()):
        queue.take(stored)
        unit.gets.append(stored)
    if not queue.temporary:
        unit.changes.definitions.append(("QLOCAL", queue.name, None))
        queue_manager.authority_records.remove_profile(unit, cmqc.MQOT_Q, queue.name)
    queue.announce()
    return unit
