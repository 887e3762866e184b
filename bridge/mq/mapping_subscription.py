"""The managed durable subscription of a mapping with a topic source.

Its queue is created and deleted by the queue manager. The topic string of a subscription cannot be altered, so a mapping
whose topic filter has changed creates a second subscription under another name before it removes the first.
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
    | cmqc.MQSO_SET_CORREL_ID  # zeros: messages keep the CorrelId of the publication
    | cmqc.MQSO_FAIL_IF_QUIESCING
)


class MappingSubscription(msgspec.Struct, eq=False, frozen=True):
    """A mapping's subscription, open for exclusive use on one connection."""

    name: str
    topic_filter: str
    #: handles of the subscription and of its queue
    handle: int
    queue: int


def names(mapping: str) -> tuple[str, str]:
    """Return the two names of a mapping's subscription, used alternately when its topic filter changes."""
    return PREFIX + mapping, PREFIX + mapping + _SECOND


def resume(connection: Connection, name: str) -> MappingSubscription | None:
    """Open an existing subscription. Return None if there is no subscription with this name.

    Raises MQError, with MQRC_SUBSCRIPTION_IN_USE if it is open elsewhere.
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
    """Create a subscription. It delivers matching retained publications first. Raises MQError.

    `owner` identifies the bridge among those on the same queue manager.
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
    """Remove an open subscription and its queue. Return the number of messages discarded. Raises MQError."""
    number = depth(connection, subscription.queue)
    connection.close(subscription.handle, cmqc.MQCO_REMOVE_SUB)
    connection.close(subscription.queue)
    return number


def remove_subscription(connection: Connection, mapping: str) -> int:
    """Remove the subscriptions of a deleted mapping. Return the number of messages discarded. Raises MQError."""
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
    """Return the names of the bridge's mappings that have subscriptions on the queue manager. Raises MQError."""
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
