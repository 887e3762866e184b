"""The durable subscription by which a mapping takes publications, while it runs and while it does not.

It is named after its mapping and managed: its publications wait on a queue that the queue manager has made for it, and
that ends with it. A topic string cannot be altered, so a mapping whose topic filter has changed makes another
subscription, which is why there are two names.
"""

from __future__ import annotations

import logging

import msgspec

from bridge.mq.administration import Administration
from bridge.mq.mqi import MQSD, Connection, MQError
from bridge.wire import cmqc

log = logging.getLogger(__name__)

PREFIX = "mqbridge mapping "
_SECOND = " (2)"
_OPTIONS = (
    cmqc.MQSO_DURABLE
    | cmqc.MQSO_MANAGED
    | cmqc.MQSO_WILDCARD_TOPIC
    | cmqc.MQSO_ANY_USERID
    | cmqc.MQSO_SET_CORREL_ID  # none: the CorrelId of the publication itself comes through
    | cmqc.MQSO_FAIL_IF_QUIESCING
)


class MappingSubscription(msgspec.Struct, eq=False, frozen=True):
    """A subscription of a mapping that one connection has open: nobody else can open it meanwhile."""

    name: str
    topic_filter: str
    #: handles of the subscription, and of the queue that its publications wait on
    handle: int
    queue: int


def names(mapping: str) -> tuple[str, str]:
    """Return the two names of a mapping's subscription: it has them in turns, whenever its topic filter changes."""
    return PREFIX + mapping, PREFIX + mapping + _SECOND


def resume(connection: Connection, name: str) -> MappingSubscription | None:
    """Open a subscription that exists; None when there is none of that name.

    Raises MQError, with MQRC_SUBSCRIPTION_IN_USE while it is open elsewhere.
    """
    sd = MQSD(Options=_OPTIONS | cmqc.MQSO_RESUME, SubName=name)
    try:
        handle, queue = connection.subscribe(sd)
    except MQError as error:
        if error.reason == cmqc.MQRC_NO_SUBSCRIPTION:
            return None
        raise
    return MappingSubscription(name, sd.ResObjectString, handle, queue)


def create(connection: Connection, name: str, topic_filter: str, owner: str = "") -> MappingSubscription:
    """Make a subscription. Retained publications of its filter come first. Raises MQError.

    `owner` tells the bridge from others on the same queue manager.
    """
    sd = MQSD(
        Options=_OPTIONS | cmqc.MQSO_CREATE,
        SubName=name,
        ObjectString=topic_filter,
        SubUserData=owner,
        SubLevel=1,
        RetainAsPublished=True,
    )
    handle, queue = connection.subscribe(sd)
    return MappingSubscription(name, topic_filter, handle, queue)


def depth(connection: Connection, queue: int) -> int:
    """Return the number of messages on a queue that is open for inquiry (CURDEPTH). Raises MQError."""
    (number,), _ = connection.inquire(queue, (cmqc.MQIA_CURRENT_Q_DEPTH,))
    return number


def remove(connection: Connection, subscription: MappingSubscription) -> int:
    """End a subscription that is open, with its queue; how many messages went with it. Raises MQError."""
    number = depth(connection, subscription.queue)
    connection.close(subscription.handle, cmqc.MQCO_REMOVE_SUB)
    connection.close(subscription.queue)
    return number


def remove_subscription(connection: Connection, mapping: str) -> int:
    """End the subscriptions of a mapping that is no more; how many messages went with them. Raises MQError."""
    number = 0
    for name in names(mapping):
        subscription = resume(connection, name)
        if subscription is None:
            continue
        lost = remove(connection, subscription)
        if lost:
            log.warning(
                "MQB5204W subscription %r for %s is removed with its mapping, and %d messages that waited for it",
                name,
                subscription.topic_filter,
                lost,
            )
        else:
            log.info("MQB5203I subscription %r for %s is removed with its mapping", name, subscription.topic_filter)
        number += lost
    return number


def mapping_subscriptions(connection: Connection, owner: str = "") -> set[str]:
    """Return the names of a bridge's mappings that the queue manager holds subscriptions for. Raises MQError."""
    administration = Administration(connection)
    try:
        found = administration.subscriptions(PREFIX + "*")
    finally:
        administration.close()
    return {
        name.removeprefix(PREFIX).removesuffix(_SECOND)
        for name, _, whose, _ in found
        if name.startswith(PREFIX) and whose == owner
    }
