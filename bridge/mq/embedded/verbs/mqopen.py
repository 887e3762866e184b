"""MQOPEN.

Source: IBM MQ documentation, "MQOPEN - Open object", "MQOD - Object descriptor". Authority is asked for when the object is
found, and before anything changes.
"""

from __future__ import annotations

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector.selection import selection_of
from bridge.mq.embedded.verbs.dynamic_queue import dynamic_queue
from bridge.mq.embedded.verbs.handle import (
    INPUT,
    DefinitionHandle,
    Handle,
    QueueHandle,
    TopicHandle,
    check_publishable,
    open_queue,
)
from bridge.mq.embedded.verbs.hconn import Hconn
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, check_od
from bridge.wire import cmqc

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
_KNOWN = (
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
#: What a topic cannot be opened for.
_NOT_FOR_TOPICS = INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_INQUIRE | cmqc.MQOO_SET | cmqc.MQOO_SAVE_ALL_CONTEXT
#: What a queue manager and a namelist can be opened for.
_INQUIRING = cmqc.MQOO_INQUIRE | cmqc.MQOO_FAIL_IF_QUIESCING | cmqc.MQOO_ALTERNATE_USER_AUTHORITY


def _several(options: int, mask: int) -> bool:
    return (options & mask).bit_count() > 1


def _check_options(options: int) -> None:
    """Raise MQError with MQRC_OPTIONS_ERROR for options that no object takes together."""
    if (
        options & ~_KNOWN
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
    """Open an object; return its Hobj. The results are filled in to `od`. Raises MQError."""
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
    topic = check_publishable(hconn.queue_manager.topic_string(od.ObjectName, od.ObjectString))
    hconn.ask_topic(od, options, topic)
    od.ResObjectString = topic
    od.ResolvedType = cmqc.MQOT_TOPIC
    return TopicHandle(topic, options)


def _open_queue_manager(hconn: Hconn, od: MQOD, options: int) -> DefinitionHandle:
    queue_manager = hconn.queue_manager
    if options & ~_INQUIRING:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a queue manager is opened to inquire")
    for name in (od.ObjectName, od.ObjectQMgrName):
        if name not in ("", queue_manager.name):
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"this is queue manager {queue_manager.name}, not {name}")
    hconn.ask_object(od, options, cmqc.MQOT_Q_MGR, queue_manager.name)
    return DefinitionHandle("QMGR", queue_manager.name, options, queue_manager.attributes)


def _open_namelist(hconn: Hconn, od: MQOD, options: int) -> DefinitionHandle:
    if options & ~_INQUIRING:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a namelist is opened to inquire")
    attributes = hconn.queue_manager.namelists.get(od.ObjectName)
    if attributes is None:
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no namelist {od.ObjectName!r}")
    hconn.ask_object(od, options, cmqc.MQOT_NAMELIST, od.ObjectName)
    return DefinitionHandle("NAMELIST", od.ObjectName, options, attributes)


def _open_named_queue(hconn: Hconn, od: MQOD, options: int) -> Handle:
    queue_manager = hconn.queue_manager
    name = od.ObjectName
    local = od.ObjectQMgrName in ("", queue_manager.name)
    selection = selection_of(queue_manager.appearance, od.SelectionString)
    if local and name not in queue_manager.queues and name in queue_manager.models:
        return _open_model(hconn, od, options)
    definition = _definition(queue_manager, name) if local else None
    if not options & (INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT) and definition is not None:
        if definition[0] != "QLOCAL":
            hconn.ask_queue(od, options, name)
            return DefinitionHandle(definition[0], name, options, definition[1])
    elif not local and options & (cmqc.MQOO_INQUIRE | cmqc.MQOO_SET):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is at another queue manager")
    destination = queue_manager.resolve(name, od.ObjectQMgrName)
    _resolved(queue_manager, od, destination)
    if destination.topic is not None:
        if options & _NOT_FOR_TOPICS:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} leads to a topic: open it for output")
        topic = check_publishable(destination.topic)
        hconn.ask_queue(od, options, name)
        hconn.ask_topic(od, options, topic)
        return TopicHandle(topic, options, (name, od.ObjectQMgrName))
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
    """Return the kind and attributes of the object of a name, as it is defined."""
    if name in queue_manager.queues:
        return "QLOCAL", queue_manager.queues[name].attributes
    if name in queue_manager.aliases:
        return "QALIAS", queue_manager.aliases[name]
    if name in queue_manager.remotes:
        return "QREMOTE", queue_manager.remotes[name]
    return None


def _resolved(queue_manager: QueueManager, od: MQOD, destination: Destination) -> None:
    if destination.topic is not None:
        od.ResolvedType = cmqc.MQOT_TOPIC
        od.ResObjectString = destination.topic
        return
    assert destination.queue is not None
    od.ResolvedType = cmqc.MQOT_Q
    od.ResolvedQName = destination.remote_queue or destination.queue.name
    od.ResolvedQMgrName = destination.client_id or queue_manager.name


def _open_model(hconn: Hconn, od: MQOD, options: int) -> QueueHandle:
    """Make a dynamic queue from a model queue, and open it."""
    queue_manager = hconn.queue_manager
    selection = selection_of(queue_manager.appearance, od.SelectionString)
    hconn.ask_queue(od, options, od.ObjectName, None, "DSP")
    model = queue_manager.models[od.ObjectName]
    queue = dynamic_queue(queue_manager, model, od.DynamicQName, hconn.acting(od, options))
    destination = queue_manager.resolve(queue.name)
    handle = open_queue(destination, options)
    handle.profile = queue.name
    handle.creator = queue.temporary
    handle.selection = selection
    od.ObjectName = queue.name
    od.ObjectQMgrName = queue_manager.name
    _resolved(queue_manager, od, destination)
    return handle
