"""MQCONN, MQDISC, MQOPEN, MQCLOSE, MQCMIT and MQBACK, and dynamic queues."""

from __future__ import annotations

from bridge.mq.embedded.attributes import MQ_OBJECT_NAME_LENGTH, Value, defaults, invalid_name_character
from bridge.mq.embedded.authority import ALL, Identity
from bridge.mq.embedded.handles import (
    INPUT,
    DefinitionHandle,
    Handle,
    QueueHandle,
    SubscriptionHandle,
    TopicHandle,
    check_publishable,
    open_queue,
    release_queue,
)
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.unit import Unit, undo
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.mqi import MQOD, MQError, check_od
from bridge.wire import cmqc

TEMPORARY = "TEMPDYN"
PERMANENT = "PERMDYN"
#: "the last nonblank character in positions 1 through 33"
_MAX_PREFIX_LENGTH = 33


def dynamic_queue(
    queue_manager: QueueManager, model: dict[str, Value], wanted: str, creator: str | None = None
) -> Queue:
    """Create a dynamic queue with the attributes of a model queue immediately. Raises MQError.

    Its creator has all authorities for it. For a permanent one, they are stored as an authority record.
    """
    name = _name(queue_manager, wanted)
    if (
        name in queue_manager.objects.queues
        or name in queue_manager.objects.aliases
        or name in queue_manager.objects.remotes
    ):
        raise MQError(cmqc.MQRC_OBJECT_ALREADY_EXISTS, f"queue {name}")
    queue = Queue(name, {keyword: model[keyword] for keyword in defaults("QLOCAL")} | {"DEFTYPE": model["DEFTYPE"]})
    queue.temporary = model["DEFTYPE"] == TEMPORARY
    queue.owner = creator
    queue_manager.objects.queues[name] = queue
    if not queue.temporary:
        unit = Unit().define("QLOCAL", name, queue.attributes)
        if creator is not None and queue_manager.authorization is not None:
            identity = Identity(cmqc.MQOT_Q, name, cmqc.MQZAET_PRINCIPAL, creator)
            queue_manager.objects.authority_records.put(unit, identity, ALL)
        queue_manager.recovery_log.submit(unit)
    return queue


def _name(queue_manager: QueueManager, wanted: str) -> str:
    wanted = wanted.rstrip(" ")
    generic = wanted.endswith("*")
    prefix = wanted[:-1] if generic else wanted
    if not wanted or len(wanted) > (_MAX_PREFIX_LENGTH if generic else MQ_OBJECT_NAME_LENGTH):
        raise MQError(cmqc.MQRC_DYNAMIC_Q_NAME_ERROR, f"{wanted!r}: a `*` ends at most {_MAX_PREFIX_LENGTH} characters")
    if wrong := invalid_name_character(prefix):
        raise MQError(cmqc.MQRC_DYNAMIC_Q_NAME_ERROR, f"{wanted!r} holds {wrong!r}")
    return f"{prefix}{queue_manager.next_number() & 0xFFFFFFFFFFFFFF:014X}" if generic else prefix


def check_closing(queue: Queue, options: int, creator: bool) -> None:
    """Check that MQCO_DELETE or MQCO_DELETE_PURGE is allowed for a queue. Raises MQError."""
    kind = queue.attributes.get("DEFTYPE")
    if kind not in (TEMPORARY, PERMANENT) or (kind == TEMPORARY and not creator):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"queue {queue.name} is not deleted by this handle")
    if kind == TEMPORARY:
        return
    available = sum(1 for _ in queue.messages())
    if queue.depth != available or (queue.depth and not options & cmqc.MQCO_DELETE_PURGE):
        raise MQError(cmqc.MQRC_Q_NOT_EMPTY, f"queue {queue.name} has {queue.depth} messages")


def delete(queue_manager: QueueManager, queue: Queue) -> Unit:
    """Delete a dynamic queue and its messages. Other handles for it allow only MQCLOSE."""
    unit = Unit()
    queue.deleted = True
    queue_manager.objects.queues.pop(queue.name, None)
    for stored in list(queue.messages()):
        queue.take(stored)
        unit.gets.append(stored)
    if not queue.temporary:
        unit.define("QLOCAL", queue.name, None)
        queue_manager.objects.authority_records.remove_profile(unit, cmqc.MQOT_Q, queue.name)
    queue.announce()
    return unit


_CONTEXTS = (
    cmqc.MQOO_PASS_IDENTITY_CONTEXT
    | cmqc.MQOO_PASS_ALL_CONTEXT
    | cmqc.MQOO_SET_IDENTITY_CONTEXT
    | cmqc.MQOO_SET_ALL_CONTEXT
)
_BINDS = cmqc.MQOO_BIND_ON_OPEN | cmqc.MQOO_BIND_NOT_FIXED | cmqc.MQOO_BIND_ON_GROUP
_PURPOSES = (
    INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT | cmqc.MQOO_INQUIRE | cmqc.MQOO_SET | cmqc.MQOO_RESOLVE_LOCAL_Q | _BINDS
)
_OPEN_OPTIONS = (
    _PURPOSES
    | _CONTEXTS
    | cmqc.MQOO_SAVE_ALL_CONTEXT
    | cmqc.MQOO_ALTERNATE_USER_AUTHORITY
    | cmqc.MQOO_FAIL_IF_QUIESCING
    | cmqc.MQOO_RESOLVE_NAMES
    | cmqc.MQOO_CO_OP
    | cmqc.MQOO_RESOLVE_LOCAL_TOPIC
    | cmqc.MQOO_NO_READ_AHEAD
    | cmqc.MQOO_READ_AHEAD
    | cmqc.MQOO_NO_MULTICAST
)
#: Open options that are invalid for topics.
_NOT_FOR_TOPICS = INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_SET | cmqc.MQOO_SAVE_ALL_CONTEXT
#: Open options that are valid for the queue manager and namelists.
_INQUIRING = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING | cmqc.MQOO_ALTERNATE_USER_AUTHORITY


def _several(options: int, mask: int) -> bool:
    return (options & mask).bit_count() > 1


def _check_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for unknown or incompatible options."""
    if (
        options & ~_OPEN_OPTIONS
        or not options & _PURPOSES
        or _several(options, INPUT)
        or _several(options, _BINDS)
        or _several(options, cmqc.MQOO_READ_AHEAD | cmqc.MQOO_NO_READ_AHEAD)
        or (options & _CONTEXTS and not options & cmqc.MQOO_OUTPUT)
        or (options & cmqc.MQOO_SAVE_ALL_CONTEXT and not options & INPUT)
        or (options & cmqc.MQOO_CO_OP and not options & cmqc.MQOO_BROWSE)
    ):
        raise MQError(
            cmqc.MQRC_OPTIONS_ERROR, f"MQOO options 0x{options:x}; open for input, browse, output, inquire or set"
        )


def mqopen(hconn: Hconn, od: MQOD, options: int) -> int:
    """Open an object and return its Hobj. Updates the results in `od`. Raises MQError."""
    hconn.check_room()
    _check_options(options)
    check_od(od)
    hconn.check_quiescing(options)
    if od.ObjectType == cmqc.MQOT_TOPIC:
        return hconn.keep(_open_topic(hconn, od, options))
    if od.ObjectType == cmqc.MQOT_Q_MGR:
        return hconn.keep(_open_queue_manager(hconn, od, options))
    if od.ObjectType == cmqc.MQOT_NAMELIST:
        return hconn.keep(_open_namelist(hconn, od, options))
    if od.ObjectType == cmqc.MQOT_PROCESS:
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no process {od.ObjectName!r}")
    if od.ObjectType != cmqc.MQOT_Q:
        raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
    return hconn.keep(_open_named_queue(hconn, od, options))


def _open_topic(hconn: Hconn, od: MQOD, options: int) -> TopicHandle:
    if options & _NOT_FOR_TOPICS:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a topic is opened for output")
    if od.SelectionString:
        raise MQError(cmqc.MQRC_SELECTOR_INVALID_FOR_TYPE, "a selector is for queues that are got from")
    topic = check_publishable(hconn.queue_manager.objects.topic_string(od.ObjectName, od.ObjectString))
    hconn.ask_topic(od, options, topic)
    od.ResObjectString = topic
    od.ResolvedType = cmqc.MQOT_TOPIC
    return TopicHandle(topic, options=options)


def _open_queue_manager(hconn: Hconn, od: MQOD, options: int) -> DefinitionHandle:
    queue_manager = hconn.queue_manager
    if options & ~_INQUIRING:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a queue manager is opened to inquire")
    for name in (od.ObjectName, od.ObjectQMgrName):
        if name not in ("", queue_manager.name):
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"this is queue manager {queue_manager.name}, not {name}")
    hconn.ask_object(od, options, cmqc.MQOT_Q_MGR, queue_manager.name)
    return DefinitionHandle("QMGR", queue_manager.name, options=options)


def _open_namelist(hconn: Hconn, od: MQOD, options: int) -> DefinitionHandle:
    if options & ~_INQUIRING:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a namelist is opened to inquire")
    attributes = hconn.queue_manager.objects.namelists.get(od.ObjectName)
    if attributes is None:
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no namelist {od.ObjectName!r}")
    hconn.ask_object(od, options, cmqc.MQOT_NAMELIST, od.ObjectName)
    return DefinitionHandle("NAMELIST", od.ObjectName, options=options)


def _open_named_queue(hconn: Hconn, od: MQOD, options: int) -> Handle:
    queue_manager = hconn.queue_manager
    name = od.ObjectName
    local = od.ObjectQMgrName in ("", queue_manager.name)
    selection = selection_of(queue_manager.appearance, od.SelectionString)
    if local and name not in queue_manager.objects.queues and name in queue_manager.objects.models:
        return _open_model(hconn, od, options)
    definition = _definition(queue_manager, name) if local else None
    if not options & (INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT) and definition is not None:
        if definition[0] != "QLOCAL":
            hconn.ask_queue(od, options, name)
            return DefinitionHandle(definition[0], name, options=options)
    elif not local and options & (cmqc.MQOO_INQUIRE | cmqc.MQOO_SET):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is at another queue manager")
    destination = queue_manager.objects.resolve(name, od.ObjectQMgrName)
    _resolved(queue_manager, od, destination)
    if destination.topic is not None:
        if options & _NOT_FOR_TOPICS:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} leads to a topic: open it for output")
        topic = check_publishable(destination.topic)
        hconn.ask_queue(od, options, name)
        hconn.ask_topic(od, options, topic)
        return TopicHandle(topic, options=options, opened=(name, od.ObjectQMgrName))
    if options & (INPUT | cmqc.MQOO_BROWSE) and destination.client_id:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is a remote queue: open it for output")
    profile = hconn.ask_queue(od, options, name, destination)
    handle = open_queue(destination, options)
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


def _resolved(queue_manager: QueueManager, od: MQOD, destination: ResolvedDestination) -> None:
    if destination.topic is not None:
        od.ResolvedType = cmqc.MQOT_TOPIC
        od.ResObjectString = destination.topic
        return
    assert destination.queue is not None
    od.ResolvedType = cmqc.MQOT_Q
    od.ResolvedQName = destination.remote_queue or destination.queue.name
    od.ResolvedQMgrName = destination.client_id or queue_manager.name


def _open_model(hconn: Hconn, od: MQOD, options: int) -> QueueHandle:
    """Create a dynamic queue from a model queue and open it."""
    queue_manager = hconn.queue_manager
    selection = selection_of(queue_manager.appearance, od.SelectionString)
    hconn.ask_queue(od, options, od.ObjectName, None, "DSP")
    model = queue_manager.objects.models[od.ObjectName]
    queue = dynamic_queue(queue_manager, model, od.DynamicQName, hconn.acting(od, options))
    destination = queue_manager.objects.resolve(queue.name)
    handle = open_queue(destination, options)
    handle.profile = queue.name
    handle.creator = queue.temporary
    handle.selection = selection
    od.ObjectName = queue.name
    od.ObjectQMgrName = queue_manager.name
    _resolved(queue_manager, od, destination)
    return handle


_DELETES = cmqc.MQCO_DELETE | cmqc.MQCO_DELETE_PURGE
_SUB_ENDINGS = cmqc.MQCO_KEEP_SUB | cmqc.MQCO_REMOVE_SUB
_CLOSE_OPTIONS = _DELETES | _SUB_ENDINGS | cmqc.MQCO_QUIESCE


def mqclose(hconn: Hconn, hobj: int, options: int) -> Unit | None:
    """Close an object. Return a unit of work if that removes a subscription or a dynamic queue. Raises MQError."""
    handle = hconn.handles.get(hobj)
    if handle is None:
        raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj}")
    if options & ~_CLOSE_OPTIONS or options & _DELETES == _DELETES or options & _SUB_ENDINGS == _SUB_ENDINGS:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQCO options 0x{options:x}")
    if isinstance(handle, SubscriptionHandle):
        return _close_subscription(hconn, hobj, handle, options)
    if options & _SUB_ENDINGS or (options & _DELETES and not isinstance(handle, QueueHandle)):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    if not isinstance(handle, QueueHandle):
        del hconn.handles[hobj]
        return None
    queue = handle.queue
    if options & _DELETES and not queue.deleted:
        check_closing(queue, options, handle.creator)
        if hconn.queue_manager.authorization is not None and hconn.asked != queue.owner:
            hconn.queue_manager.authorization.check(hconn.asked, cmqc.MQOT_Q, queue.name, "DLT")
    del hconn.handles[hobj]
    release_queue(handle)
    if (handle.creator or options & _DELETES) and not queue.deleted:
        return delete(hconn.queue_manager, queue)
    return None


def _close_subscription(hconn: Hconn, hobj: int, handle: SubscriptionHandle, options: int) -> Unit | None:
    subscription = handle.subscription
    if options & _DELETES or (options & cmqc.MQCO_KEEP_SUB and not subscription.durable):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    authorization = hconn.queue_manager.authorization
    creator = subscription.user == hconn.user.decode(errors="replace")
    if authorization is not None and options & cmqc.MQCO_REMOVE_SUB and subscription.durable and not creator:
        # IBM MQ, "Not Authorized (type 3)": its creator and users with SUB authority for the topic may remove a subscription.
        authorization.check_topic(hconn.asked, subscription.topic_filter, "SUB")
    del hconn.handles[hobj]
    subscription.owner = None
    if not subscription.durable or options & cmqc.MQCO_REMOVE_SUB:
        unit = Unit()
        hconn.queue_manager.remove_subscription(unit, subscription.name)
        return unit
    return None


def mqcmit(hconn: Hconn) -> Unit | None:
    """Return the unit of work to submit, or None if there is none."""
    unit, hconn.unit = hconn.unit, None
    return unit


def mqback(hconn: Hconn) -> None:
    """Back out the unit of work."""
    unit, hconn.unit = hconn.unit, None
    if unit is not None:
        undo(unit)


def mqconn(queue_manager: QueueManager, name: str, user: str, asked: str | None) -> Hconn:
    """Connect an application. Raises MQError.

    `asked` is the user whose authorities are checked, None for the bridge itself.
    """
    if queue_manager.authorization is not None:
        queue_manager.authorization.connecting(asked, user)
    hconn = Hconn(queue_manager, name, user, asked)
    queue_manager.applications.add(hconn)
    return hconn


def mqdisc(hconn: Hconn, *, commit: bool) -> list[Unit]:
    """Disconnect. Return the units of work to submit.

    If the connection is lost, `commit` is False, and its unit of work is backed out.
    """
    hconn.queue_manager.applications.discard(hconn)
    units = []
    if commit:
        if (unit := mqcmit(hconn)) is not None:
            units.append(unit)
    else:
        mqback(hconn)
    handles = hconn.handles
    # Subscriptions first, because their destinations may be dynamic queues, which are deleted with their handles.
    for hobj in sorted(handles, key=lambda one: not isinstance(handles[one], SubscriptionHandle)):
        unit = mqclose(hconn, hobj, cmqc.MQCO_NONE)
        if unit is not None:
            units.append(unit)
    return units
