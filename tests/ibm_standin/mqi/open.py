"""MQOPEN and MQCLOSE with all functions of IBM MQ: namelists, model queues and dynamic queues."""

from __future__ import annotations

from bridge.mq.embedded.attributes import MQ_OBJECT_NAME_LENGTH, Value, defaults, invalid_name_character
from bridge.mq.embedded.authority import ALL, Identity
from bridge.mq.embedded.handles import DefinitionHandle, Handle, SubscriptionHandle, TopicHandle, open_queue
from bridge.mq.embedded.queue import INPUT, Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.selector import selection_of
from bridge.mq.embedded.unit import Unit
from bridge.mq.embedded.verbs import open as product
from bridge.mq.embedded.verbs.open import INQUIRING, describe_destination, open_object, release
from bridge.mq.mqi import MQOD, MQError, check_od
from bridge.wire import cmqc
from tests.ibm_standin.mqi.hconn import MqiHconn, MqiQueueHandle, record_of

TEMPORARY = "TEMPDYN"
PERMANENT = "PERMDYN"
#: "the last nonblank character in positions 1 through 33"
_MAX_PREFIX_LENGTH = 33


def dynamic_queue(
    queue_manager: QueueManager, model: dict[str, Value], wanted: str, creator: str | None = None
) -> Queue:
    """Create a dynamic queue with the attributes of a model queue immediately. Raises MQError.

    Its creator has all authorities for it. For a permanent queue, they are stored as an authority record.
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
    record_of(queue_manager, queue).owner = creator
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


def mqopen(hconn: MqiHconn, od: MQOD, options: int) -> int:
    """Open an object and return its Hobj. Updates the results in `od`. Raises MQError."""
    hconn.check_room()
    _check_options(options)
    return hconn.keep(_open(hconn, od, options))


def _open(hconn: MqiHconn, od: MQOD, options: int) -> Handle:
    if od.ObjectType == cmqc.MQOT_NAMELIST:
        return _open_namelist(hconn, od, options)
    if od.ObjectType == cmqc.MQOT_PROCESS:
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no process {od.ObjectName!r}")
    objects = hconn.queue_manager.objects
    local = od.ObjectType == cmqc.MQOT_Q and od.ObjectQMgrName in ("", objects.name)
    if local and od.ObjectName not in objects.queues and od.ObjectName in objects.models:
        return _open_model(hconn, od, options)
    if od.ObjectType == cmqc.MQOT_TOPIC and options & _NOT_FOR_TOPICS:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a topic is opened for output")
    handle = open_object(hconn, od, options)
    if isinstance(handle, TopicHandle) and options & _NOT_FOR_TOPICS:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{od.ObjectName} leads to a topic: open it for output")
    return handle


def _open_namelist(hconn: MqiHconn, od: MQOD, options: int) -> DefinitionHandle:
    if options & ~INQUIRING:
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, "a namelist is opened to inquire")
    check_od(od)
    hconn.check_quiescing(options)
    attributes = hconn.queue_manager.objects.namelists.get(od.ObjectName)
    if attributes is None:
        raise MQError(cmqc.MQRC_UNKNOWN_OBJECT_NAME, f"no namelist {od.ObjectName!r}")
    hconn.ask_object(od, options, cmqc.MQOT_NAMELIST, od.ObjectName)
    return DefinitionHandle("NAMELIST", od.ObjectName, options=options)


def _open_model(hconn: MqiHconn, od: MQOD, options: int) -> MqiQueueHandle:
    """Create a dynamic queue from a model queue and open it."""
    queue_manager = hconn.queue_manager
    check_od(od)
    hconn.check_quiescing(options)
    selection = selection_of(queue_manager.appearance, od.SelectionString)
    hconn.ask_object(od, options, cmqc.MQOT_Q, od.ObjectName, "DSP")
    model = queue_manager.objects.models[od.ObjectName]
    queue = dynamic_queue(queue_manager, model, od.DynamicQName, hconn.acting(od, options))
    destination = queue_manager.objects.resolve(queue.name)
    handle = open_queue(MqiQueueHandle, destination, options)
    handle.profile = queue.name
    handle.creator = queue.temporary
    handle.selection = selection
    od.ObjectName = queue.name
    od.ObjectQMgrName = queue_manager.name
    describe_destination(queue_manager, od, destination)
    return handle


_DELETES = cmqc.MQCO_DELETE | cmqc.MQCO_DELETE_PURGE
_SUB_ENDINGS = cmqc.MQCO_KEEP_SUB | cmqc.MQCO_REMOVE_SUB
_CLOSE_OPTIONS = _DELETES | _SUB_ENDINGS | cmqc.MQCO_QUIESCE


def mqclose(hconn: MqiHconn, hobj: int, options: int) -> Unit | None:
    """Close an object. Return a unit of work if that removes a subscription or a dynamic queue. Raises MQError."""
    handle = hconn.handles.get(hobj)
    if options & ~_CLOSE_OPTIONS or options & _DELETES == _DELETES:
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQCO options 0x{options:x}")
    options &= ~cmqc.MQCO_QUIESCE
    if not options & _DELETES:
        return product.mqclose(hconn, hobj, options)
    if handle is None:
        raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj}")
    if options & _SUB_ENDINGS or isinstance(handle, SubscriptionHandle) or not isinstance(handle, MqiQueueHandle):
        raise MQError(cmqc.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"MQCO options 0x{options:x}")
    queue, authorization = handle.queue, hconn.queue_manager.authorization
    if not queue.deleted:
        check_closing(queue, options, handle.creator)
        if authorization is not None and hconn.principal != record_of(hconn.queue_manager, queue).owner:
            authorization.check(hconn.principal, cmqc.MQOT_Q, queue.name, "DLT")
    handle.deletes = True
    return release(hconn, hobj)
