"""Dead-lettering of messages that cannot be delivered, with an MQDLH that contains the reason."""

from __future__ import annotations

import logging

import msgspec

from bridge.mq.dead_letter import OriginContext
from bridge.mq.dead_letter import dead_letter as behind_header
from bridge.mq.embedded.messages import Messages
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import Route
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQError
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import fitted_mqmd

log = logging.getLogger(__name__)


def undelivered(
    queue_manager: Messages,
    unit: Unit,
    route: Route,
    subscription: Subscription,
    message: AnyMessage,
    persistent: bool,
    now: float,
) -> int:
    """Dead-letter or drop a copy that a subscription's destination rejects, or reject the publication."""
    queue = subscription.queue
    reason = queue.refusal(message.length)
    if route.dead_letters:
        refused = StoredMessage(
            queue,
            queue_manager.next_number(),
            message,
            persistent,
            0,
            now,
            subscription.client_id,
            subscription.remote_queue,
            route.topic,
            subscription.user_data,
        )
        destination = (subscription.client_id and subscription.remote_queue) or queue.name
        if dead_letter(queue_manager, unit, refused, reason, destination, subscription.client_id):
            return cmqc.MQRC_NONE
    policy = route.all_deliveries[persistent]
    if policy == "ALL" or (policy == "ALLDUR" and subscription.durable):
        log.warning(
            "MQB3201W publication to %s is refused: subscription %s cannot take it: %s (%d)",
            route.topic,
            subscription.name,
            cmqc.reason_name(reason),
            reason,
        )
        return cmqc.MQRC_PUBLICATION_FAILURE
    log.warning(
        "MQB3202W publication to %s is not delivered to subscription %s: %s (%d)",
        route.topic,
        subscription.name,
        cmqc.reason_name(reason),
        reason,
    )
    return cmqc.MQRC_NONE


def dead_letter(
    queue_manager: Messages,
    unit: Unit,
    stored: StoredMessage,
    reason: int,
    queue_name: str,
    manager: str = "",
    *,
    replacing: bool = False,
) -> bool:
    """Put a copy of a message, after an MQDLH, to the dead-letter queue (DEADQ). Return False if that is not possible.

    For `replacing`, see `Messages.put`.
    """
    name = str(queue_manager.attributes["DEADQ"])
    queue = queue_manager.queues.get(name)
    if queue is None or queue is stored.queue:
        why = "is no local queue" if queue is None else "is where it lies"
        log.error("MQB3203E a message for %s cannot be dead-lettered: DEADQ(%s) %s", queue_name, name, why)
        return False
    _fit(stored)
    msg_id = queue_manager.appearance.msg_id(stored)
    client_id, stored.client_id = stored.client_id, ""
    try:
        md, data = queue_manager.appearance.seen(stored, properties=True)
    finally:
        stored.client_id = client_id
    outer = msgspec.structs.replace(md, MsgId=msg_id)
    letter = behind_header(outer, data, reason, queue_name, manager or queue_manager.name, OriginContext.of(md))
    try:
        queue_manager.put(unit, queue_manager.resolve(name), letter, application="mqbridge", replacing=replacing)
    except MQError as error:
        log.error("MQB3204E a message for %s cannot be dead-lettered: %s", queue_name, error)
        return False
    log.warning(
        "MQB3205W dead-lettered a message for %s, topic %r, to queue %s: %s (%d)",
        f"client {manager!r}" if manager == client_id else f"queue {queue_name} at {manager or queue_manager.name}",
        stored.topic or "",
        name,
        cmqc.reason_name(reason),
        reason,
    )
    return True


def _fit(stored: StoredMessage) -> None:
    """Truncate MQMD fields that are too long for the headers of a dead-lettered message. Older releases accepted them."""
    md = fitted_mqmd(stored.message.md)
    if md is not stored.message.md:
        stored.message = msgspec.structs.replace(stored.message, md=md)
    if stored.correl_id is not None and len(stored.correl_id) != cmqc.MQ_CORREL_ID_LENGTH:
        stored.correl_id = stored.correl_id[: cmqc.MQ_CORREL_ID_LENGTH].ljust(cmqc.MQ_CORREL_ID_LENGTH, b"\0")
    if stored.msg_id is not None and len(stored.msg_id) > cmqc.MQ_MSG_ID_LENGTH:
        stored.msg_id = stored.msg_id[: cmqc.MQ_MSG_ID_LENGTH]
