"""MQOPEN and MQCLOSE.

Source: IBM MQ documentation, "MQOPEN - Open object", "MQCLOSE - Close object", "MQOD - Object descriptor". Authority is
asked for when the object is found, and before anything changes.
"""

from __future__ import annotations

from bridge.mq.embedded.attributes import Value
from bridge.mq.embedded.objects import Destination
from bridge.mq.embedded.selector.selection import selection_of
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs import dynamic_queue
from bridge.mq.embedded.verbs.handles import (
    INPUT,
    DefinitionHandle,
    Handle,
    Handles,
    QueueHandle,
    SubscriptionHandle,
    TopicHandle,
    alternate_user,
    check_publishable,
)
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD
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
_DELETES = cmqc.MQCO_DELETE | cmqc.MQCO_DELETE_PURGE
_SUB_ENDINGS = cmqc.MQCO_KEEP_SUB | cmqc.MQCO_REMOVE_SUB


def _several(options: int, mask: int) -> bool:
    return (options & mask).bit_count() > 1


def check_open_options(options: int) -> None:
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


class Opening(Handles):
    """The verbs that open and close objects."""

    def open(self, od: MQOD, options: int) -> int:
        """Do MQOPEN; the results are filled in to `od`."""
        self._check_room()
        check_open_options(options)
        self._check_quiescing(options)
        if od.ObjectType == cmqc.MQOT_TOPIC:
            return self._keep(self._open_topic(od, options))
        if od.ObjectType == cmqc.MQOT_Q_MGR:
            return self._keep(self._open_queue_manager(od, options))
        if od.ObjectType == cmqc.MQOT_NAMELIST:
            return self._keep(self._open_namelist(od, options))
        if od.ObjectType == cmqc.MQOT_PROCESS:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no process {od.ObjectName!r}")
        if od.ObjectType != cmqc.MQOT_Q:
            raise MQError(cmqc.MQRC_OBJECT_TYPE_ERROR, f"object type {od.ObjectType}")
        return self._keep(self._open_named_queue(od, options))

    def _open_topic(self, od: MQOD, options: int) -> TopicHandle:
        if options & _NOT_FOR_TOPICS:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a topic is opened for output")
        if od.SelectionString:
            raise MQError(cmqc.MQRC_SELECTOR_INVALID_FOR_TYPE, "a selector is for queues that are got from")
        topic = check_publishable(self.queue_manager.topic_string(od.ObjectName, od.ObjectString))
        self._ask_topic(od, options, topic)
        od.ResObjectString = topic
        od.ResolvedType = cmqc.MQOT_TOPIC
        return TopicHandle(topic, options)

    def _open_queue_manager(self, od: MQOD, options: int) -> DefinitionHandle:
        queue_manager = self.queue_manager
        if options & ~_INQUIRING:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a queue manager is opened to inquire")
        for name in (od.ObjectName, od.ObjectQMgrName):
            if name not in ("", queue_manager.name):
                raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"this is queue manager {queue_manager.name}, not {name}")
        if queue_manager.authorization is not None:
            alternate = alternate_user(od, options)
            queue_manager.authorization.opening(self.asked, alternate, cmqc.MQOT_Q_MGR, queue_manager.name, options)
        return DefinitionHandle("QMGR", queue_manager.name, options, queue_manager.attributes)

    def _open_namelist(self, od: MQOD, options: int) -> DefinitionHandle:
        if options & ~_INQUIRING:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a namelist is opened to inquire")
        attributes = self.queue_manager.namelists.get(od.ObjectName)
        if attributes is None:
            raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no namelist {od.ObjectName!r}")
        authorization = self.queue_manager.authorization
        if authorization is not None:
            authorization.opening(self.asked, alternate_user(od, options), cmqc.MQOT_NAMELIST, od.ObjectName, options)
        return DefinitionHandle("NAMELIST", od.ObjectName, options, attributes)

    def _open_named_queue(self, od: MQOD, options: int) -> Handle:
        queue_manager = self.queue_manager
        name = od.ObjectName
        local = od.ObjectQMgrName in ("", queue_manager.name)
        selection = selection_of(queue_manager.appearance, od.SelectionString)
        if local and name not in queue_manager.queues and name in queue_manager.models:
            return self._open_model(od, options)
        definition = self._definition(name) if local else None
        if not options & (INPUT | cmqc.MQOO_BROWSE | cmqc.MQOO_OUTPUT) and definition is not None:
            if definition[0] != "QLOCAL":
                self._ask_queue(od, options, name)
                return DefinitionHandle(definition[0], name, options, definition[1])
        elif not local and options & (cmqc.MQOO_INQUIRE | cmqc.MQOO_SET):
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is at another queue manager")
        destination = queue_manager.resolve(name, od.ObjectQMgrName)
        self._resolved(od, destination)
        if destination.topic is not None:
            if options & _NOT_FOR_TOPICS:
                raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} leads to a topic: open it for output")
            topic = check_publishable(destination.topic)
            self._ask_queue(od, options, name)
            self._ask_topic(od, options, topic)
            return TopicHandle(topic, options)
        if options & (INPUT | cmqc.MQOO_BROWSE) and destination.client_id:
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{name} is a remote queue: open it for output")
        profile = self._ask_queue(od, options, name, destination)
        handle = self._open_queue(destination, options)
        handle.profile = profile
        handle.selection = selection
        if definition is not None:
            handle.kind, handle.attributes = definition
        return handle

    def _definition(self, name: str) -> tuple[str, dict[str, Value]] | None:
        """Return the kind and attributes of the object of a name, as it is defined."""
        queue_manager = self.queue_manager
        if name in queue_manager.queues:
            return "QLOCAL", queue_manager.queues[name].attributes
        if name in queue_manager.aliases:
            return "QALIAS", queue_manager.aliases[name]
        if name in queue_manager.remotes:
            return "QREMOTE", queue_manager.remotes[name]
        return None

    def _resolved(self, od: MQOD, destination: Destination) -> None:
        if destination.topic is not None:
            od.ResolvedType = cmqc.MQOT_TOPIC
            od.ResObjectString = destination.topic
            return
        assert destination.queue is not None
        od.ResolvedType = cmqc.MQOT_Q
        od.ResolvedQName = destination.remote_queue or destination.queue.name
        od.ResolvedQMgrName = destination.client_id or self.queue_manager.name

    def _open_model(self, od: MQOD, options: int) -> QueueHandle:
        """Make a dynamic queue from a model queue, and open it."""
        selection = selection_of(self.queue_manager.appearance, od.SelectionString)
        self._ask_queue(od, options, od.ObjectName, None, "DSP")
        queue = dynamic_queue.dynamic_queue(
            self.queue_manager, self.queue_manager.models[od.ObjectName], od.DynamicQName, self._acting(od, options)
        )
        destination = self.queue_manager.resolve(queue.name)
        handle = self._open_queue(destination, options)
        handle.profile = queue.name
        handle.creator = queue.temporary
        handle.selection = selection
        od.ObjectName = queue.name
        od.ObjectQMgrName = self.queue_manager.name
        self._resolved(od, destination)
        return handle

    def unfinished(self, number: int) -> int:
        """Return the reason with which MQCLOSE of a handle warns: a group or a message is not complete, or MQRC_NONE."""
        handle = self._handles.get(number)
        if not isinstance(handle, QueueHandle):
            return cmqc.MQRC_NONE
        return max(handle.put_place.unfinished, handle.got_place.unfinished)

    def close(self, number: int, options: int = cmqc.MQCO_NONE) -> Unit | None:
        """Do MQCLOSE; return a unit of work when a subscription or a dynamic queue ends with it."""
        handle = self._find(number)
        known = _DELETES | _SUB_ENDINGS | cmqc.MQCO_QUIESCE
        if options & ~known or _several(options, _DELETES) or _several(options, _SUB_ENDINGS):
            raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQCO options 0x{options:x}")
        if isinstance(handle, SubscriptionHandle):
            return self._close_subscription(number, handle, options)
        if options & _SUB_ENDINGS or (options & _DELETES and not isinstance(handle, QueueHandle)):
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
        if not isinstance(handle, QueueHandle):
            del self._handles[number]
            return None
        queue = handle.queue
        if options & _DELETES and not queue.deleted:
            dynamic_queue.check_closing(queue, options, handle.creator)
            if self.queue_manager.authorization is not None and self.asked != queue.owner:
                self.queue_manager.authorization.check(self.asked, cmqc.MQOT_Q, queue.name, "DLT")
        del self._handles[number]
        self._release_queue(handle)
        if (handle.creator or options & _DELETES) and not queue.deleted:
            return dynamic_queue.delete(self.queue_manager, queue)
        return None

    def _close_subscription(self, number: int, handle: SubscriptionHandle, options: int) -> Unit | None:
        subscription = handle.subscription
        if options & _DELETES or (options & cmqc.MQCO_KEEP_SUB and not subscription.durable):
            raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
        del self._handles[number]
        subscription.owner = None
        if not subscription.durable or options & cmqc.MQCO_REMOVE_SUB:
            unit = Unit()
            self.queue_manager.remove_subscription(unit, subscription.name)
            return unit
        return None
