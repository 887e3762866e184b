"""MQSUB and MQSUBRQ with all functions of IBM MQ.

Source: IBM MQ documentation, "MQSUB - Register subscription", "MQSD - Subscription descriptor", "MQSUBRQ - Subscription
request", "Rules for validating MQI options".
"""

from __future__ import annotations

import time

import msgspec

from bridge.mq.embedded.handles import QueueHandle, SubscriptionHandle
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.subscription import Subscription
from bridge.mq.embedded.unit import Unit, whole
from bridge.mq.embedded.verbs.sub import (
    add,
    ask,
    check_existing,
    check_new,
    check_values,
    find_existing,
    managed_destination,
    new_subscription,
    open_destination,
    put_retained,
)
from bridge.mq.mqi import MQError
from bridge.wire import cmqc
from tests.ibm_standin.mqi.hconn import MqiHconn, record_of
from tests.ibm_standin.mqi.structures import MqiSubscriptionDescriptor

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
_PRIORITIES = range(cmqc.MQPRI_PRIORITY_AS_PUBLISHED, 10)
_DESTINATION_OPTIONS = cmqc.MQOO_INPUT_SHARED | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE


def _check_descriptor(sd: MqiSubscriptionDescriptor) -> None:
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
    if sd.PubPriority not in _PRIORITIES:
        raise MQError(cmqc.MQRC_SD_ERROR, f"PubPriority {sd.PubPriority}")
    check_values(sd)
    sd.check()


def mqsub(hconn: MqiHconn, sd: MqiSubscriptionDescriptor, hobj: int | None) -> tuple[tuple[int, int], Unit | None]:
    """Create, alter or resume a subscription. Return the Hobjs of subscription and destination, and the unit to submit.

    Updates the results in `sd`. Raises MQError.
    """
    hconn.check_room()
    _check_descriptor(sd)
    hconn.check_quiescing(sd.Options)
    existing = find_existing(hconn, sd)
    if existing is None:
        return _create(hconn, sd, hobj)
    check_existing(hconn, existing, sd)
    if sd.Options & cmqc.MQSO_ALTER and existing.grouped != bool(sd.Options & cmqc.MQSO_GROUP_SUB):
        raise MQError(cmqc.MQRC_GROUPING_NOT_ALTERABLE, f"subscription {sd.SubName!r}")
    return _again(hconn, existing, sd, hobj)


def _create(hconn: MqiHconn, sd: MqiSubscriptionDescriptor, hobj: int | None) -> tuple[tuple[int, int], Unit]:
    options = sd.Options
    selection = selection_of(hconn.queue_manager.appearance, sd.SelectionString)
    topic_filter = check_new(hconn, sd)
    managed = bool(options & cmqc.MQSO_MANAGED)
    _ask(hconn, sd, topic_filter, "SUB", None if managed else hobj)
    unit = Unit()
    with whole(unit):
        if managed:
            destination, hobj = managed_destination(hconn, unit, sd, _destination_options(sd))
        else:
            destination = _destination(hconn, hobj)
        assert hobj is not None and destination.queue is not None
        subscription = new_subscription(
            hconn,
            Subscription,
            sd,
            topic_filter,
            destination,
            managed=managed,
            selector=sd.SelectionString,
            selection=selection,
            priority=sd.PubPriority,
            grouped=bool(options & cmqc.MQSO_GROUP_SUB),
            on_request=bool(options & cmqc.MQSO_PUBLICATIONS_ON_REQUEST),
            characters=bool(options & cmqc.MQSO_WILDCARD_CHAR),
            identity=(sd.PubAccountingToken, sd.PubApplIdentityData)
            if options & cmqc.MQSO_SET_IDENTITY_CONTEXT
            else None,
        )
        if subscription.grouped:
            _check_group(hconn, sd, topic_filter, destination)
        return (add(hconn, unit, sd, subscription), hobj), unit


def _ask(hconn: MqiHconn, sd: MqiSubscriptionDescriptor, topic_filter: str, authority: str, hobj: int | None) -> None:
    """Check the authorities for a subscription, with the queue of a handle as destination. Raises MQError."""
    handle = hconn.handles.get(hobj) if hobj is not None else None
    acting = sd.AlternateUserId if sd.Options & cmqc.MQSO_ALTERNATE_USER_AUTHORITY else hconn.principal
    profile = ""
    if isinstance(handle, QueueHandle):
        owner = record_of(hconn.queue_manager, handle.queue).owner
        if owner is None or owner != acting:
            profile = handle.profile
    ask(hconn, sd, topic_filter, authority, profile)
    if hconn.queue_manager.authorization is not None and sd.Options & cmqc.MQSO_SET_IDENTITY_CONTEXT:
        hconn.queue_manager.authorization.setting_identity(hconn.principal, topic_filter)


def _destination_options(sd: MqiSubscriptionDescriptor) -> int:
    """Return the open options of a managed destination."""
    ahead = cmqc.MQOO_READ_AHEAD if sd.Options & cmqc.MQSO_READ_AHEAD else 0
    return _DESTINATION_OPTIONS | ahead | (cmqc.MQOO_NO_READ_AHEAD if sd.Options & cmqc.MQSO_NO_READ_AHEAD else 0)


def _check_group(
    hconn: MqiHconn, sd: MqiSubscriptionDescriptor, topic_filter: str, destination: ResolvedDestination
) -> None:
    for other in hconn.queue_manager.objects.topics.subscriptions.values():
        if (
            other.grouped
            and other.topic_filter == topic_filter
            and other.queue is destination.queue
            and other.correl_id == sd.SubCorrelId
        ):
            raise MQError(cmqc.MQRC_DUPLICATE_GROUP_SUB, f"subscription {other.name!r} has the same topic and group")


def _destination(hconn: MqiHconn, hobj: int | None) -> ResolvedDestination:
    handle = hconn.find(hobj) if hobj is not None else None
    if not isinstance(handle, QueueHandle):
        raise MQError(cmqc.MQRC_HOBJ_ERROR, "without MQSO_MANAGED, MQSUB takes the handle of an open queue")
    return handle.destination


def _again(
    hconn: MqiHconn, existing: Subscription, sd: MqiSubscriptionDescriptor, hobj: int | None
) -> tuple[tuple[int, int], Unit | None]:
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
        hobj = open_destination(hconn, destination, _destination_options(sd))
    if alters:
        unit = Unit()
        existing = _altered(hconn, existing, sd, hobj)
        hconn.queue_manager.add_subscription(unit, existing)
    existing.owner = hconn
    _describe(existing, sd)
    return (hconn.keep(SubscriptionHandle(existing)), hobj), unit


def _altered(hconn: MqiHconn, existing: Subscription, sd: MqiSubscriptionDescriptor, hobj: int) -> Subscription:
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


def mqsubrq(hconn: MqiHconn, hobj: int, action: int, options: int) -> tuple[int, Unit]:
    """Put the retained publications of a subscription to its destination. Return their number. Raises MQError.

    "It can be used only if the subscriber specified the option MQSO_PUBLICATIONS_ON_REQUEST" (IBM MQ, "MQSUBRQ - Subscription
    request"). The topic does not specify the reason code for other subscriptions, so this uses MQRC_OPTIONS_ERROR.
    """
    handle = hconn.handles.get(hobj)
    if not isinstance(handle, SubscriptionHandle):
        raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj} is not for a subscription")
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
        put_retained(queue_manager, unit, queue_manager.objects.topics.subscriptions.get(name, handle.subscription))
    if not unit.puts:
        raise MQError(cmqc.MQRC_NO_RETAINED_MSG, f"topic {handle.subscription.topic_filter!r}")
    return len(unit.puts), unit


def _describe(subscription: Subscription, sd: MqiSubscriptionDescriptor) -> None:
    """Update the descriptor of a resumed subscription, including its options (IBM MQ, "Options (MQLONG)" of MQSD)."""
    flags = {
        cmqc.MQSO_DURABLE: subscription.durable,
        cmqc.MQSO_MANAGED: subscription.managed,
        cmqc.MQSO_GROUP_SUB: subscription.grouped,
        cmqc.MQSO_ANY_USERID: subscription.any_user,
        cmqc.MQSO_FIXED_USERID: not subscription.any_user,
        cmqc.MQSO_PUBLICATIONS_ON_REQUEST: subscription.on_request,
        cmqc.MQSO_WILDCARD_CHAR: subscription.characters,
        cmqc.MQSO_WILDCARD_TOPIC: not subscription.characters,
    }
    sd.Options = sd.Options & ~sum(flags) | sum(option for option, is_so in flags.items() if is_so)
    sd.ResObjectString = subscription.topic_filter
    sd.SubUserData = subscription.user_data or ""
    sd.SubCorrelId = subscription.correl_id or cmqc.MQCI_NONE
    sd.SubLevel = subscription.level
    sd.SelectionString = subscription.selector
    sd.PubPriority = subscription.priority
    sd.RetainAsPublished = subscription.retain_as_published
    remaining = subscription.expires_at - time.time()
    sd.SubExpiry = max(1, int(remaining * 10)) if subscription.expires_at else cmqc.MQEI_UNLIMITED
