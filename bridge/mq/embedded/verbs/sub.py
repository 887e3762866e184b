"""MQSUB and MQSUBRQ.

Source: IBM MQ documentation, "MQSUB - Register subscription", "MQSD - Subscription descriptor", "MQSUBRQ - Subscription
request", "Rules for validating MQI options". An open subscription belongs to the application that has opened it.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from bridge.mq.embedded.handles import QueueHandle, SubscriptionHandle, open_queue
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.queuemanager import QueueManager, dead_letter
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.topics import check_topic_string
from bridge.mq.embedded.unit import Unit, whole
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import MQSD, MQError, check_sd
from bridge.wire import cmqc

_KNOWN = (
    cmqc.MQSO_ALTER
    | cmqc.MQSO_CREATE
    | cmqc.MQSO_RESUME
    | cmqc.MQSO_DURABLE
    | cmqc.MQSO_GROUP_SUB
    | cmqc.MQSO_MANAGED
    | cmqc.MQSO_SET_IDENTITY_CONTEXT
    | cmqc.MQSO_NO_MULTICAST
    | cmqc.MQSO_FIXED_USERID
    | cmqc.MQSO_ANY_USERID
    | cmqc.MQSO_PUBLICATIONS_ON_REQUEST
    | cmqc.MQSO_NEW_PUBLICATIONS_ONLY
    | cmqc.MQSO_FAIL_IF_QUIESCING
    | cmqc.MQSO_ALTERNATE_USER_AUTHORITY
    | cmqc.MQSO_WILDCARD_CHAR
    | cmqc.MQSO_WILDCARD_TOPIC
    | cmqc.MQSO_SET_CORREL_ID
    | cmqc.MQSO_SCOPE_QMGR
    | cmqc.MQSO_NO_READ_AHEAD
    | cmqc.MQSO_READ_AHEAD
)
#: Mutually exclusive options.
_EXCLUSIVE = (
    cmqc.MQSO_ALTER | cmqc.MQSO_RESUME,
    cmqc.MQSO_FIXED_USERID | cmqc.MQSO_ANY_USERID,
    cmqc.MQSO_WILDCARD_CHAR | cmqc.MQSO_WILDCARD_TOPIC,
    cmqc.MQSO_NO_READ_AHEAD | cmqc.MQSO_READ_AHEAD,
    cmqc.MQSO_GROUP_SUB | cmqc.MQSO_PUBLICATIONS_ON_REQUEST,
    cmqc.MQSO_GROUP_SUB | cmqc.MQSO_MANAGED,
)
_PRIORITIES = range(cmqc.MQPRI_PRIORITY_AS_PUBLISHED, 10)
_USER_DATA_LENGTH = 10_240
_DESTINATION_OPTIONS = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE


def _check_descriptor(sd: MQSD) -> None:
    """Raise MQError for invalid options and values."""
    options = sd.Options
    on_request = options & cmqc.MQSO_PUBLICATIONS_ON_REQUEST
    if (
        options & ~_KNOWN
        or not options & (cmqc.MQSO_CREATE | cmqc.MQSO_RESUME | cmqc.MQSO_ALTER)
        or any(options & mask == mask for mask in _EXCLUSIVE)
        or (options & cmqc.MQSO_GROUP_SUB and not options & cmqc.MQSO_SET_CORREL_ID)
        or (options & cmqc.MQSO_NEW_PUBLICATIONS_ONLY and (on_request or not options & cmqc.MQSO_CREATE))
    ):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQSO options 0x{options:x}")
    if (options & cmqc.MQSO_DURABLE and not sd.SubName) or len(sd.SubName) > cmqc.MQ_SUB_NAME_LENGTH:
        raise MQError(cmqc.MQRC_SUB_NAME_ERROR, "a durable subscription has a name, of at most 10240 characters")
    if len(sd.SubUserData) > _USER_DATA_LENGTH:
        raise MQError(cmqc.MQRC_SUB_USER_DATA_ERROR, f"{len(sd.SubUserData)} characters of user data")
    if not 0 <= sd.SubLevel <= 9 or sd.PubPriority not in _PRIORITIES or sd.SubExpiry < cmqc.MQEI_UNLIMITED:
        raise MQError(cmqc.MQRC_SD_ERROR, "SubLevel is 0 to 9, PubPriority -3 to 9, SubExpiry -1 or more")
    check_sd(sd)


def mqsub(hconn: Hconn, sd: MQSD, hobj: int | None) -> tuple[tuple[int, int], Unit | None]:
    """Create, alter or resume a subscription. Return its Hobj, that of its destination, and the unit of work to submit.

    Updates the results in `sd`. Raises MQError.
    """
    hconn.check_room()
    _check_descriptor(sd)
    hconn.check_quiescing(sd.Options)
    selection = selection_of(hconn.queue_manager.appearance, sd.SelectionString)
    existing = hconn.queue_manager.objects.topics.subscriptions.get(sd.SubName) if sd.SubName else None
    if existing is None:
        if not sd.Options & cmqc.MQSO_CREATE:
            raise MQError(cmqc.MQRC_NO_SUBSCRIPTION, f"no subscription {sd.SubName!r}")
        return _create(hconn, sd, hobj, selection)
    _check_existing(hconn, existing, sd)
    return _again(hconn, existing, sd, hobj)


def _topic_filter(hconn: Hconn, sd: MQSD, durable: bool) -> str:
    queue_manager = hconn.queue_manager
    topic_filter = queue_manager.objects.topic_string(sd.ObjectName, sd.ObjectString)
    if not topic_filter:
        raise MQError(cmqc.MQRC_TOPIC_STRING_ERROR, "no topic string")
    check_topic_string(topic_filter)
    attributes = queue_manager.objects.topics.attributes(topic_filter)
    if attributes["SUB"] != "ENABLED":
        raise MQError(cmqc.MQRC_SUB_INHIBITED, f"topic {topic_filter!r} has SUB(DISABLED)")
    if durable and attributes["DURSUB"] != "YES":
        raise MQError(cmqc.MQRC_DURABILITY_NOT_ALLOWED, f"topic {topic_filter!r} has DURSUB(NO)")
    return topic_filter


def _create(hconn: Hconn, sd: MQSD, hobj: int | None, selection: Any) -> tuple[tuple[int, int], Unit]:
    options = sd.Options
    durable = bool(options & cmqc.MQSO_DURABLE)
    topic_filter = _topic_filter(hconn, sd, durable)
    managed = bool(options & cmqc.MQSO_MANAGED)
    _ask(hconn, sd, topic_filter, "SUB", None if managed else hobj)
    unit = Unit()
    with whole(unit):
        return _made(hconn, unit, sd, hobj, selection, topic_filter, durable, managed), unit


def _made(
    hconn: Hconn,
    unit: Unit,
    sd: MQSD,
    hobj: int | None,
    selection: Any,
    topic_filter: str,
    durable: bool,
    managed: bool,
) -> tuple[int, int]:
    queue_manager = hconn.queue_manager
    options = sd.Options
    if managed:
        queue = queue_manager.managed_queue(unit, durable=durable)
        destination = ResolvedDestination(queue, name=queue.name)
        hobj = hconn.keep(open_queue(destination, _destination_options(sd)))
    else:
        destination = _destination(hconn, hobj)
    assert hobj is not None and destination.queue is not None
    if not options & cmqc.MQSO_SET_CORREL_ID:
        sd.SubCorrelId = hconn.generated()
    if options & cmqc.MQSO_GROUP_SUB:
        _check_group(hconn, sd, topic_filter, destination)
    user = sd.AlternateUserId if options & cmqc.MQSO_ALTERNATE_USER_AUTHORITY else ""
    sets_identity = bool(options & cmqc.MQSO_SET_IDENTITY_CONTEXT)
    subscription = Subscription(
        name=sd.SubName or f"{queue_manager.name}.{queue_manager.next_number():016X}",
        topic_filter=topic_filter,
        queue=destination.queue,
        destination=destination.remote_queue or destination.queue.name,
        destination_manager=destination.client_id,
        remote_queue=destination.remote_queue,
        client_id=destination.client_id,
        user_data=sd.SubUserData or None,
        # With MQCI_NONE, messages keep the publisher's CorrelId (IBM MQ, "SubCorrelId").
        correl_id=sd.SubCorrelId if any(sd.SubCorrelId) else None,
        durable=durable,
        ephemeral=destination.queue.temporary,
        level=sd.SubLevel,
        user=user or hconn.user.decode(errors="replace"),
        managed=managed,
        expires_at=time.time() + sd.SubExpiry / 10 if sd.SubExpiry > 0 else 0.0,
        selector=sd.SelectionString,
        selection=selection,
        priority=sd.PubPriority,
        grouped=bool(options & cmqc.MQSO_GROUP_SUB),
        any_user=not options & cmqc.MQSO_FIXED_USERID and bool(options & cmqc.MQSO_ANY_USERID),
        on_request=bool(options & cmqc.MQSO_PUBLICATIONS_ON_REQUEST),
        characters=bool(options & cmqc.MQSO_WILDCARD_CHAR),
        identity=(sd.PubAccountingToken, sd.PubApplIdentityData) if sets_identity else None,
        retain_as_published=sd.RetainAsPublished,
        owner=hconn,
    )
    sd.ResObjectString = topic_filter
    queue_manager.add_subscription(unit, subscription)
    if not options & (cmqc.MQSO_NEW_PUBLICATIONS_ONLY | cmqc.MQSO_PUBLICATIONS_ON_REQUEST):
        _put_retained(queue_manager, unit, subscription)
    return hconn.keep(SubscriptionHandle(subscription)), hobj


def _put_retained(queue_manager: QueueManager, unit: Unit, subscription: Subscription) -> None:
    """Put the retained publications that match a subscription to its destination, or to the dead-letter queue.

    Raises MQError with MQRC_RETAINED_NOT_DELIVERED if neither accepts one (IBM MQ, "2526 (MQRC_RETAINED_NOT_DELIVERED)").
    """
    name = (subscription.client_id and subscription.remote_queue) or subscription.queue.name

    def refused(stored: StoredMessage, reason: int) -> None:
        if not dead_letter(queue_manager, unit, stored, reason, name, subscription.client_id):
            raise MQError(cmqc.MQRC_RETAINED_NOT_DELIVERED, f"topic {stored.topic!r} to queue {name}")

    queue_manager.put_retained(unit, subscription, refused=refused)


def _ask(hconn: Hconn, sd: MQSD, topic_filter: str, authority: str, hobj: int | None) -> None:
    """Check the authorities for a subscription, with the queue of a handle as destination. Raises MQError."""
    authorization = hconn.queue_manager.authorization
    if authorization is None:
        return
    handle = hconn.handles.get(hobj) if hobj is not None else None
    alternate = sd.AlternateUserId if sd.Options & cmqc.MQSO_ALTERNATE_USER_AUTHORITY else None
    acting = hconn.asked if alternate is None else alternate
    profile = ""
    if isinstance(handle, QueueHandle) and (handle.queue.owner is None or handle.queue.owner != acting):
        profile = handle.profile
    authorization.subscribing(hconn.asked, alternate, topic_filter, authority, profile)
    if sd.Options & cmqc.MQSO_SET_IDENTITY_CONTEXT:
        authorization.setting_identity(hconn.asked, topic_filter)


def _destination_options(sd: MQSD) -> int:
    """Return the open options of a managed destination."""
    ahead = cmqc.MQOO_READ_AHEAD if sd.Options & cmqc.MQSO_READ_AHEAD else 0
    return _DESTINATION_OPTIONS | ahead | (cmqc.MQOO_NO_READ_AHEAD if sd.Options & cmqc.MQSO_NO_READ_AHEAD else 0)


def _check_group(hconn: Hconn, sd: MQSD, topic_filter: str, destination: ResolvedDestination) -> None:
    for other in hconn.queue_manager.objects.topics.subscriptions.values():
        if (
            other.grouped
            and other.topic_filter == topic_filter
            and other.queue is destination.queue
            and other.correl_id == sd.SubCorrelId
        ):
            raise MQError(cmqc.MQRC_DUPLICATE_GROUP_SUB, f"subscription {other.name!r} has the same topic and group")


def _destination(hconn: Hconn, hobj: int | None) -> ResolvedDestination:
    handle = hconn.find(hobj) if hobj is not None else None
    if not isinstance(handle, QueueHandle):
        raise MQError(cmqc.MQRC_HOBJ_ERROR, "without MQSO_MANAGED, MQSUB takes the handle of an open queue")
    return handle.destination


def _check_existing(hconn: Hconn, existing: Subscription, sd: MQSD) -> None:
    """Check that an existing subscription can be resumed or altered with this descriptor. Raises MQError."""
    options = sd.Options
    if not options & (cmqc.MQSO_RESUME | cmqc.MQSO_ALTER):
        raise MQError(cmqc.MQRC_SUB_ALREADY_EXISTS, f"subscription {sd.SubName!r}")
    if existing.owner is not None:
        raise MQError(cmqc.MQRC_SUBSCRIPTION_IN_USE, f"subscription {sd.SubName!r} is open")
    if not existing.any_user and existing.user != hconn.user.decode(errors="replace") and existing.kind == "API":
        alternate = sd.AlternateUserId if options & cmqc.MQSO_ALTERNATE_USER_AUTHORITY else ""
        if existing.user and existing.user != alternate:
            raise MQError(cmqc.MQRC_IDENTITY_MISMATCH, f"subscription {sd.SubName!r} is {existing.user}'s")
    topic_filter = hconn.queue_manager.objects.topic_string(sd.ObjectName, sd.ObjectString)
    if topic_filter and topic_filter != existing.topic_filter:
        detail = f"subscription {sd.SubName!r} is for {existing.topic_filter!r}"
        raise MQError(cmqc.MQRC_TOPIC_NOT_ALTERABLE, detail)
    if options & cmqc.MQSO_ALTER and existing.grouped != bool(options & cmqc.MQSO_GROUP_SUB):
        raise MQError(cmqc.MQRC_GROUPING_NOT_ALTERABLE, f"subscription {sd.SubName!r}")


def _again(hconn: Hconn, existing: Subscription, sd: MQSD, hobj: int | None) -> tuple[tuple[int, int], Unit | None]:
    """Resume or alter an existing subscription."""
    unit: Unit | None = None
    alters = sd.Options & cmqc.MQSO_ALTER
    _ask(hconn, sd, existing.topic_filter, "SUB" if alters else "RESUME", hobj if alters else None)
    if hobj is None:
        if existing.queue.deleted:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {existing.destination!r}")
        destination = ResolvedDestination(
            existing.queue, existing.remote_queue, existing.client_id, name=existing.queue.name
        )
        hobj = hconn.keep(open_queue(destination, _destination_options(sd)))
    if alters:
        unit = Unit()
        existing = _altered(hconn, existing, sd, hobj)
        hconn.queue_manager.add_subscription(unit, existing)
    existing.owner = hconn
    _describe(existing, sd)
    return (hconn.keep(SubscriptionHandle(existing)), hobj), unit


def _altered(hconn: Hconn, existing: Subscription, sd: MQSD, hobj: int) -> Subscription:
    altered = msgspec.structs.replace(existing, user_data=sd.SubUserData or None, priority=sd.PubPriority)
    if sd.SubExpiry > 0:
        altered.expires_at = time.time() + sd.SubExpiry / 10
    if sd.Options & cmqc.MQSO_SET_CORREL_ID:
        altered.correl_id = sd.SubCorrelId if any(sd.SubCorrelId) else None
    if not existing.managed:
        destination = _destination(hconn, hobj)
        assert destination.queue is not None
        altered.queue = destination.queue
        altered.remote_queue, altered.client_id = destination.remote_queue, destination.client_id
        altered.destination = destination.remote_queue or destination.queue.name
        altered.destination_manager = destination.client_id
        altered.ephemeral = destination.queue.temporary
    return altered


def mqsubrq(hconn: Hconn, hobj: int, action: int, options: int) -> tuple[int, Unit]:
    """Put the retained publications of a subscription to its destination. Return their number. Raises MQError.

    "It can be used only if the subscriber specified the option MQSO_PUBLICATIONS_ON_REQUEST" (IBM MQ, "MQSUBRQ - Subscription
    request"). The topic does not specify the reason code for other subscriptions, so this uses MQRC_OPTIONS_ERROR.
    """
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, SubscriptionHandle):
        raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj} is not of a subscription")
    if action != cmqc.MQSR_ACTION_PUBLICATION:
        raise MQError(cmqc.MQRC_ACTION_ERROR, f"action {action}")
    if options & ~cmqc.MQSRO_FAIL_IF_QUIESCING:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQSRO options 0x{options:x}")
    if not handle.subscription.on_request:
        detail = f"subscription {handle.subscription.name!r} was made without MQSO_PUBLICATIONS_ON_REQUEST"
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, detail)
    unit = Unit()
    name = handle.subscription.name
    queue_manager = hconn.queue_manager
    with whole(unit):
        _put_retained(queue_manager, unit, queue_manager.objects.topics.subscriptions.get(name, handle.subscription))
    if not unit.puts:
        raise MQError(cmqc.MQRC_NO_RETAINED_MSG, f"topic {handle.subscription.topic_filter!r}")
    return len(unit.puts), unit


def _describe(subscription: Subscription, sd: MQSD) -> None:
    """Update the descriptor of a resumed subscription, including its options (IBM MQ, "Options (MQLONG)" of MQSD)."""
    told = {
        cmqc.MQSO_DURABLE: subscription.durable,
        cmqc.MQSO_MANAGED: subscription.managed,
        cmqc.MQSO_GROUP_SUB: subscription.grouped,
        cmqc.MQSO_ANY_USERID: subscription.any_user,
        cmqc.MQSO_FIXED_USERID: not subscription.any_user,
        cmqc.MQSO_PUBLICATIONS_ON_REQUEST: subscription.on_request,
        cmqc.MQSO_WILDCARD_CHAR: subscription.characters,
        cmqc.MQSO_WILDCARD_TOPIC: not subscription.characters,
    }
    sd.Options = sd.Options & ~sum(told) | sum(option for option, is_so in told.items() if is_so)
    sd.ResObjectString = subscription.topic_filter
    sd.SubUserData = subscription.user_data or ""
    sd.SubCorrelId = subscription.correl_id or cmqc.MQCI_NONE
    sd.SubLevel = subscription.level
    sd.SelectionString = subscription.selector
    sd.PubPriority = subscription.priority
    sd.RetainAsPublished = subscription.retain_as_published
    left = subscription.expires_at - time.time()
    sd.SubExpiry = max(1, int(left * 10)) if subscription.expires_at else cmqc.MQEI_UNLIMITED
