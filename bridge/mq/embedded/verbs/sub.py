"""MQSUB with MQSO_MANAGED.

Source: IBM MQ documentation, "MQSUB - Register subscription", "MQSD - Subscription descriptor", "Rules for validating MQI
options". An open subscription belongs to the application that opened it.
"""

from __future__ import annotations

import time
from typing import Any, Final, TypeVar

from bridge.mq.embedded.handles import SubscriptionHandle, open_queue
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager, dead_letter
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import MAX_LEVEL, check_topic_string
from bridge.mq.embedded.unit import Unit, whole
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import MQSD, MQError, check_sd
from bridge.wire import cmqc

_REQUIRED: Final = (cmqc.MQSO_MANAGED, cmqc.MQSO_CREATE | cmqc.MQSO_RESUME)
_KNOWN: Final = (
    sum(_REQUIRED)
    | cmqc.MQSO_DURABLE
    | cmqc.MQSO_ANY_USERID
    | cmqc.MQSO_NEW_PUBLICATIONS_ONLY
    | cmqc.MQSO_FAIL_IF_QUIESCING
    | cmqc.MQSO_WILDCARD_TOPIC
    | cmqc.MQSO_SET_CORREL_ID
    | cmqc.MQSO_ALTERNATE_USER_AUTHORITY
)
_USER_DATA_LENGTH: Final = 10_240
_DESTINATION_OPTIONS: Final = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE


def _check_options(options: int) -> None:
    """Raise MQError for invalid options."""
    if (
        options & ~_KNOWN
        or not all(options & required for required in _REQUIRED)
        or (options & cmqc.MQSO_NEW_PUBLICATIONS_ONLY and not options & cmqc.MQSO_CREATE)
    ):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQSO options 0x{options:x}")


def check_values(sd: MQSD) -> None:
    """Raise MQError for invalid values of a descriptor."""
    if (sd.Options & cmqc.MQSO_DURABLE and not sd.SubName) or len(sd.SubName) > cmqc.MQ_SUB_NAME_LENGTH:
        raise MQError(cmqc.MQRC_SUB_NAME_ERROR, "a durable subscription requires a name of at most 10240 characters")
    if len(sd.SubUserData) > _USER_DATA_LENGTH:
        raise MQError(cmqc.MQRC_SUB_USER_DATA_ERROR, f"{len(sd.SubUserData)} characters of user data")
    if not 0 <= sd.SubLevel <= MAX_LEVEL or sd.SubExpiry < cmqc.MQEI_UNLIMITED:
        raise MQError(cmqc.MQRC_SD_ERROR, "SubLevel must be 0 to 9, SubExpiry -1 or more")
    check_sd(sd)


def mqsub(hconn: Hconn, sd: MQSD) -> tuple[tuple[int, int], Unit | None]:
    """Create or resume a managed subscription. Return the Hobjs of subscription and destination, and the unit to submit.

    Updates the results in `sd`. Raises MQError.
    """
    hconn.check_room()
    _check_options(sd.Options)
    check_values(sd)
    hconn.check_quiescing(sd.Options)
    existing = find_existing(hconn, sd)
    if existing is not None:
        check_existing(hconn, existing, sd)
        ask(hconn, sd, existing.topic_filter, "RESUME")
        queue = existing.queue
        if queue.deleted:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {existing.destination!r}")
        destination = ResolvedDestination(queue, existing.remote_queue, existing.client_id, name=queue.name)
        hobj = open_destination(hconn, destination, _DESTINATION_OPTIONS)
        existing.owner = hconn
        sd.ResObjectString = existing.topic_filter
        return (hconn.keep(SubscriptionHandle(existing)), hobj), None
    topic_filter = check_new(hconn, sd)
    ask(hconn, sd, topic_filter, "SUB")
    unit = Unit()
    with whole(unit):
        destination, hobj = managed_destination(hconn, unit, sd, _DESTINATION_OPTIONS)
        subscription = new_subscription(hconn, Subscription, sd, topic_filter, destination, managed=True)
        return (add(hconn, unit, sd, subscription), hobj), unit


def find_existing(hconn: Hconn, sd: MQSD) -> Subscription | None:
    """Return the subscription with the name in a descriptor, or None if it must be created. Raises MQError."""
    existing = hconn.queue_manager.objects.topics.subscriptions.get(sd.SubName) if sd.SubName else None
    if existing is None and not sd.Options & cmqc.MQSO_CREATE:
        raise MQError(cmqc.MQRC_NO_SUBSCRIPTION, f"no subscription {sd.SubName!r}")
    return existing


def check_new(hconn: Hconn, sd: MQSD) -> str:
    """Return the topic filter of a new subscription, after checking that the topic allows it. Raises MQError."""
    queue_manager = hconn.queue_manager
    topic_filter = queue_manager.objects.topic_string(sd.ObjectName, sd.ObjectString)
    if not topic_filter:
        raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, "no topic string")
    check_topic_string(topic_filter)
    attributes = queue_manager.objects.topics.attributes(topic_filter)
    if attributes["SUB"] != "ENABLED":
        raise MQError(cmqc.MQRC_SUB_INHIBITED, f"topic {topic_filter!r} has SUB(DISABLED)")
    if sd.Options & cmqc.MQSO_DURABLE and attributes["DURSUB"] != "YES":
        raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, f"topic {topic_filter!r} has DURSUB(NO)")
    return topic_filter


def open_destination(hconn: Hconn, destination: ResolvedDestination, options: int) -> int:
    """Open the destination queue of a subscription, and return its Hobj. Raises MQError."""
    return hconn.keep(open_queue(hconn.QUEUE_HANDLE, destination, options))


def managed_destination(hconn: Hconn, unit: Unit, sd: MQSD, options: int) -> tuple[ResolvedDestination, int]:
    """Create and open the queue of a managed subscription. Return the destination and its Hobj."""
    queue = hconn.queue_manager.managed_queue(unit, durable=bool(sd.Options & cmqc.MQSO_DURABLE))
    destination = ResolvedDestination(queue, name=queue.name)
    return destination, open_destination(hconn, destination, options)


S = TypeVar("S", bound=Subscription)


def new_subscription(
    hconn: Hconn, kind: type[S], sd: MQSD, topic_filter: str, destination: ResolvedDestination, **more: Any
) -> S:
    """Return a new subscription that is open on the connection. `more` are further fields."""
    queue_manager, queue = hconn.queue_manager, destination.queue
    assert queue is not None
    if not sd.Options & cmqc.MQSO_SET_CORREL_ID:
        sd.SubCorrelId = hconn.generated()
    return kind(
        name=sd.SubName or f"{queue_manager.name}.{queue_manager.next_number():016X}",
        topic_filter=topic_filter,
        queue=queue,
        destination=destination.remote_queue or queue.name,
        destination_manager=destination.client_id,
        remote_queue=destination.remote_queue,
        client_id=destination.client_id,
        user_data=sd.SubUserData or None,
        # With MQCI_NONE, messages keep the publisher's CorrelId (IBM MQ, "SubCorrelId").
        correl_id=sd.SubCorrelId if any(sd.SubCorrelId) else None,
        durable=bool(sd.Options & cmqc.MQSO_DURABLE),
        user=_alternate_user(sd) or hconn.user.decode(errors="replace"),
        level=sd.SubLevel,
        expires_at=time.time() + sd.SubExpiry / 10 if sd.SubExpiry > 0 else 0.0,
        ephemeral=queue.temporary,
        any_user=bool(sd.Options & cmqc.MQSO_ANY_USERID),
        retain_as_published=sd.RetainAsPublished,
        owner=hconn,
        **more,
    )


def add(hconn: Hconn, unit: Unit, sd: MQSD, subscription: Subscription) -> int:
    """Add a new subscription in a unit of work, with its retained publications. Return its Hobj. Raises MQError."""
    sd.ResObjectString = subscription.topic_filter
    hconn.queue_manager.add_subscription(unit, subscription)
    if not sd.Options & (cmqc.MQSO_NEW_PUBLICATIONS_ONLY | cmqc.MQSO_PUBLICATIONS_ON_REQUEST):
        put_retained(hconn.queue_manager, unit, subscription)
    return hconn.keep(SubscriptionHandle(subscription))


def put_retained(queue_manager: QueueManager, unit: Unit, subscription: Subscription) -> None:
    """Put the retained publications that match a subscription to its destination, or to the dead-letter queue.

    Raises MQError with MQRC_RETAINED_NOT_DELIVERED if neither accepts one (IBM MQ, "2526 (MQRC_RETAINED_NOT_DELIVERED)").
    """
    name = (subscription.client_id and subscription.remote_queue) or subscription.queue.name

    def refused(stored: StoredMessage, reason: int) -> None:
        if not dead_letter(queue_manager, unit, stored, reason, name, subscription.client_id):
            raise MQError(cmqc.MQRC_RETAINED_NOT_DELIVERED, f"topic {stored.topic!r} to queue {name}")

    queue_manager.put_retained(unit, subscription, refused=refused)


def _alternate_user(sd: MQSD) -> str | None:
    """Return AlternateUserId if the options contain MQSO_ALTERNATE_USER_AUTHORITY, otherwise None."""
    return sd.AlternateUserId if sd.Options & cmqc.MQSO_ALTERNATE_USER_AUTHORITY else None


def ask(hconn: Hconn, sd: MQSD, topic_filter: str, authority: str, profile: str = "") -> None:
    """Check the authorities for a subscription: for the topic, and for the queue of a `profile`. Raises MQError."""
    if hconn.queue_manager.authorization is not None:
        hconn.queue_manager.authorization.subscribing(
            hconn.principal, _alternate_user(sd), topic_filter, authority, profile
        )


def check_existing(hconn: Hconn, existing: Subscription, sd: MQSD) -> None:
    """Check that an existing subscription can be resumed with this descriptor. Raises MQError."""
    if not sd.Options & (cmqc.MQSO_RESUME | cmqc.MQSO_ALTER):
        raise MQError(cmqc.MQRC_SUB_ALREADY_EXISTS, f"subscription {sd.SubName!r}")
    if existing.owner is not None:
        raise MQError(cmqc.MQRC_SUBSCRIPTION_IN_USE, f"subscription {sd.SubName!r} is open")
    users = ("", hconn.user.decode(errors="replace"), _alternate_user(sd))
    if not existing.any_user and existing.kind == "API" and existing.user not in users:
        raise MQError(cmqc.MQRC_IDENTITY_MISMATCH, f"subscription {sd.SubName!r} is {existing.user}'s")
    topic_filter = hconn.queue_manager.objects.topic_string(sd.ObjectName, sd.ObjectString)
    if topic_filter and topic_filter != existing.topic_filter:
        detail = f"subscription {sd.SubName!r} is for {existing.topic_filter!r}"
        raise MQError(cmqc.MQRC_TOPIC_NOT_ALTERABLE, detail)
