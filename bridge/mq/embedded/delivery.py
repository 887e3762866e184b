"""Delivery of a publication to one subscription."""

from __future__ import annotations

import time

import msgspec

from bridge.mq.embedded.appearance import with_properties
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.subscription import Subscription
from bridge.telemetry.message import Message
from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc


def delivery(number: int, subscription: Subscription, publication: StoredMessage) -> StoredMessage | None:
    """Return the message to put to a subscription's destination; None if it has expired or its selector does not match.

    `number` is the number of the new message. `publication` is the live or retained publication. Source: IBM MQ
    documentation, PubPriority, PubAccountingToken, PubApplIdentityData, SelectionString and SubExpiry of MQSD.
    """
    # "No more publications will match this subscription after this interval has passed". It is removed later.
    if subscription.expires_at and subscription.expires_at <= time.time():
        return None
    queue = subscription.queue
    priority = publication.priority
    if subscription.priority >= 0:
        priority = subscription.priority
    elif subscription.priority == cmqc.MQPRI_PRIORITY_AS_Q_DEF:
        priority = int(queue.attributes["DEFPRTY"])
    stored = StoredMessage(
        queue,
        number,
        _identified(subscription, publication.message),
        publication.persistent,
        priority,
        publication.put_time,
        subscription.client_id,
        subscription.remote_queue,
        publication.topic,
        subscription.user_data,
        publication.retained,
        subscription.correl_id,
        None,
        publication.expires_at,
        publication.persistent and not subscription.ephemeral,
        put_application=publication.put_application,
    )
    if subscription.selection is not None and not subscription.selection(stored):
        return None
    if subscription.direct:
        _make_direct(stored)
    return stored


def _make_direct(stored: StoredMessage) -> None:
    """Convert a copy to a direct message: the administrative subscription has another queue name at a client."""
    stored.message = Message(*with_properties(stored, stored.message.md, True))
    stored.topic = stored.user_data = None
    stored.retained = False


def _identified(subscription: Subscription, message: AnyMessage) -> AnyMessage:
    if subscription.identity is None or not isinstance(message, Message):
        return message
    token, data = subscription.identity
    md = msgspec.structs.replace(message.md, AccountingToken=token, ApplIdentityData=data.encode()[:32])
    return msgspec.structs.replace(message, md=md)
