"""MQCONN, MQDISC, MQOPEN, MQCLOSE, MQCMIT and MQBACK."""

from __future__ import annotations

from typing import Final, TypeVar

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.handles import (
    DefinitionHandle,
    Handle,
    SubscriptionHandle,
    TopicHandle,
    check_publishable,
    open_queue,
)
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import INPUT
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import MQOD, MQError, check_od
from bridge.wire import cmqc

_CONTEXTS: Final = cmqc.MQOO_SET_IDENTITY_CONTEXT | cmqc.MQOO_SET_ALL_CONTEXT
_PURPOSES: Final = INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_INQUIRE
_OPEN_OPTIONS: Final = (
    _PURPOSES
    | _CONTEXTS
    | cmqc.MQOO_ALTERNATE_USER_AUTHORITY
    | cmqc.MQOO_FAIL_IF_QUIESCING
    | cmqc.MQOO_NO_READ_AHEAD
    | cmqc.MQOO_READ_AHEAD
)
#: Open options that are invalid for topics.
_NOT_FOR_TOPICS: Final = INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE
#: Open options that are valid for the queue manager.
INQUIRING: Final = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING | cmqc.MQOO_ALTERNATE_USER_AUTHORITY


def _check_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for unknown or incompatible options."""
    if (
        options & ~_OPEN_OPTIONS
        or not options & _PURPOSES
        or (options & INPUT).bit_count() > 1
        or (options & _CONTEXTS and not options & cmqc.MQOO_OUTPUT)
    ):
        raise MQError(
            cmqc.MQRC_OPTIONS_ERROR, f"MQOO options 0x{options:x}; hint: open for input, browse, output or inquire"
        )


def mqopen(hconn: Hconn, od: MQOD, options: int) -> int:
    """Open a queue, a topic or the queue manager, and return its Hobj. Updates the results in `od`. Raises MQError."""
    hconn.check_room()
    _check_options(options)
    return hconn.keep(open_object(hconn, od, options))


def open_object(hconn: Hconn, od: MQOD, options: int) -> Handle:
    """Open an object with valid options. Raises MQError."""
    check_od(od)
    hconn.check_quiescing(options)
    if od.ObjectType == cmqc.MQOT_TOPIC:
        return _open_topic(hconn, od, options)
    if od.ObjectType == cmqc.MQOT_Q_MGR:
        return _open_queue_manager(hconn, od, options)
    if od.ObjectType != cmqc.MQOT_Q:
        raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
    return _open_named_queue(hconn, od, options)


def _open_topic(hconn: Hconn, od: MQOD, options: int) -> TopicHandle:
    if options & _NOT_FOR_TOPICS:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a topic can be opened for output only")
    if od.SelectionString:
        raise MQError(
            cmqc.MQRC_SELECTOR_INVALID_FOR_TYPE, "a selector requires a queue that is open for input or browse"
        )
    topic = check_publishable(hconn.queue_manager.objects.topic_string(od.ObjectName, od.ObjectString))
    hconn.ask_topic(od, options, topic)
    od.ResObjectString = topic
    od.ResolvedType = cmqc.MQOT_TOPIC
    return TopicHandle(topic, options=options)


def _open_queue_manager(hconn: Hconn, od: MQOD, options: int) -> DefinitionHandle:
    queue_manager = hconn.queue_manager
    if options & ~INQUIRING:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a queue manager can be opened for inquiry only")
    for name in (od.ObjectName, od.ObjectQMgrName):
        if name not in ("", queue_manager.name):
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"this is queue manager {queue_manager.name}, not {name}")
    hconn.ask_object(od, options, cmqc.MQOT_Q_MGR, queue_manager.name)
    return DefinitionHandle("QMGR", queue_manager.name, options=options)


def _open_named_queue(hconn: Hconn, od: MQOD, options: int) -> Handle:
    queue_manager = hconn.queue_manager
    name = od.ObjectName
    local = od.ObjectQMgrName in ("", queue_manager.name)
    selection = selection_of(queue_manager.appearance, od.SelectionString)
    definition = _definition(queue_manager, name) if local else None
    if not options & (INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT) and definition is not None:
        if definition[0] != "QLOCAL":
            hconn.ask_queue(od, options, name)
            return DefinitionHandle(definition[0], name, options=options)
    elif not local and options & cmqc.MQOO_INQUIRE:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is at another queue manager")
    destination = queue_manager.objects.resolve(name, od.ObjectQMgrName)
    describe_destination(queue_manager, od, destination)
    if destination.topic is not None:
        if options & _NOT_FOR_TOPICS:
            raise MQError(
                cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is an alias of a topic; hint: open it for output"
            )
        topic = check_publishable(destination.topic)
        hconn.ask_queue(od, options, name)
        hconn.ask_topic(od, options, topic)
        return TopicHandle(topic, options=options, opened=(name, od.ObjectQMgrName))
    if options & (INPUT | cmqc.MQOO_BROWSE) and destination.client_id:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is a remote queue; hint: open it for output")
    profile = hconn.ask_queue(od, options, name, destination)
    handle = open_queue(hconn.QUEUE_HANDLE, destination, options)
    handle.profile = profile
    handle.opened = name, od.ObjectQMgrName
    handle.selection = selection
    if definition is not None:
        handle.kind, handle.attributes = definition
    return handle


def _definition(queue_manager: QueueManager, name: str) -> tuple[str, dict[str, Value]] | None:
    """Return the kind and attributes of the object with a name, or None."""
    if name in queue_manager.objects.queues:
        return "QLOCAL", queue_manager.objects.queues[name].attributes
    if name in queue_manager.objects.aliases:
        return "QALIAS", queue_manager.objects.aliases[name]
    if name in queue_manager.objects.remotes:
        return "QREMOTE", queue_manager.objects.remotes[name]
    return None


def describe_destination(queue_manager: QueueManager, od: MQOD, destination: ResolvedDestination) -> None:
    if destination.topic is not None:
        od.ResolvedType = cmqc.MQOT_TOPIC
        od.ResObjectString = destination.topic
        return
    assert destination.queue is not None
    od.ResolvedType = cmqc.MQOT_Q
    od.ResolvedQName = destination.remote_queue or destination.queue.name
    od.ResolvedQMgrName = destination.client_id or queue_manager.name


_SUB_ENDINGS: Final = cmqc.MQCO_KEEP_SUB | cmqc.MQCO_REMOVE_SUB


def mqclose(hconn: Hconn, hobj: int, options: int) -> Unit | None:
    """Close an object. Return a unit of work if this removes a subscription. Raises MQError."""
    handle = hconn.handles.get(hobj)
    if handle is None:
        raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj}")
    if options & ~_SUB_ENDINGS or options & _SUB_ENDINGS == _SUB_ENDINGS:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQCO options 0x{options:x}")
    if isinstance(handle, SubscriptionHandle):
        return _close_subscription(hconn, hobj, handle, options)
    if options:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    return release(hconn, hobj)


def release(hconn: Hconn, hobj: int) -> Unit | None:
    """Remove a valid handle that does not belong to a subscription."""
    return hconn.handles.pop(hobj).release(hconn.queue_manager)


def _close_subscription(hconn: Hconn, hobj: int, handle: SubscriptionHandle, options: int) -> Unit | None:
    subscription = handle.subscription
    if options & cmqc.MQCO_KEEP_SUB and not subscription.durable:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    authorization = hconn.queue_manager.authorization
    creator = subscription.user == hconn.user.decode(errors="replace")
    if authorization is not None and options & cmqc.MQCO_REMOVE_SUB and subscription.durable and not creator:
        # IBM MQ, "Not Authorized (type 3)": the creator and users with SUB authority for the topic may remove a subscription.
        authorization.check_topic(hconn.principal, subscription.topic_filter, "SUB")
    del hconn.handles[hobj]
    subscription.owner = None
    if not subscription.durable or options & cmqc.MQCO_REMOVE_SUB:
        unit = Unit()
        hconn.queue_manager.remove_subscription(unit, subscription.name)
        return unit
    return None


def mqcmit(hconn: Hconn) -> Unit | None:
    """Return the unit of work to submit, or None."""
    unit, hconn.unit = hconn.unit, None
    return unit


def mqback(hconn: Hconn) -> None:
    """Back out the unit of work."""
    unit, hconn.unit = hconn.unit, None
    if unit is not None:
        undo(unit)


C = TypeVar("C", bound=Hconn)


def mqconn(kind: type[C], queue_manager: QueueManager, name: str, user: str, principal: str | None) -> C:
    """Connect an application. Raises MQError.

    `principal` is the user whose authorities are checked, or None for the bridge itself.
    """
    if queue_manager.authorization is not None:
        queue_manager.authorization.connecting(principal, user)
    hconn = kind(queue_manager, name, user, principal)
    queue_manager.applications.add(hconn)
    return hconn


def mqdisc(hconn: Hconn, *, commit: bool) -> list[Unit]:
    """Disconnect. Return the units of work to submit.

    If the connection was lost, `commit` is False, and its unit of work is backed out.
    """
    hconn.queue_manager.applications.discard(hconn)
    units = []
    if commit:
        if (unit := mqcmit(hconn)) is not None:
            units.append(unit)
    else:
        mqback(hconn)
    handles = hconn.handles
    # Subscriptions first, because their destinations may be removed with them.
    for hobj in sorted(handles, key=lambda hobj: not isinstance(handles[hobj], SubscriptionHandle)):
        unit = mqclose(hconn, hobj, cmqc.MQCO_NONE)
        if unit is not None:
            units.append(unit)
    return units
