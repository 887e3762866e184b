"""The producer of a mapping: puts messages to queues, queues at other queue managers, and topics."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from bridge.mq.mqi import MQOD, Connection, MQError, Property
from bridge.mq.worker import raise_if_lost
from bridge.telemetry.message import Destination, KeptRequest, MappedMessage, Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, Typed

log = logging.getLogger(__name__)

#: The maximum number of open handles. MAXHANDS, 256 by default, must suffice for the connection's other handles too.
HANDLES = 200
_INT32 = range(-(1 << 31), 1 << 31)
#: Reason codes for an object that has changed since it was opened.
_REOPEN = frozenset((cmqc.MQRC_OBJECT_CHANGED, cmqc.MQRC_Q_DELETED))


class _Opened(NamedTuple):
    """The destination and the options of an open handle."""

    destination: Destination
    #: opened with MQOO_SET_IDENTITY_CONTEXT
    identity: bool = False
    #: the user of MQOO_ALTERNATE_USER_AUTHORITY, or "" without it
    authority: str = ""


class MessageProducer:
    """Puts the messages of one mapping on one connection.

    The caller commits or backs out the unit of work, and then calls `committed` or `backed_out`.
    """

    def __init__(self, connection: Connection, *, handles: int = HANDLES) -> None:
        self._connection = connection
        self._limit = handles
        #: least recently used first
        self._handles: OrderedDict[_Opened, int] = OrderedDict()
        #: an ordered set of topics whose retained publications are cleared after the commit
        self._cleared: dict[str, None] = {}

    def put(self, mapped: MappedMessage) -> None:
        """Put a message under syncpoint. Raises MQError with the destination in its detail.

        The RFH2 of a message for a topic must not have an mqps folder, because the queue manager writes it. The stored part
        of a request is put first, so that a reply cannot overtake it.
        """
        destination, message = mapped.destination, mapped.message
        identity = bool(message.md.UserIdentifier)
        options = cmqc.MQPMO_SYNCPOINT | cmqc.MQPMO_FAIL_IF_QUIESCING
        if identity:
            options |= cmqc.MQPMO_SET_IDENTITY_CONTEXT
        if message.md.MsgId == cmqc.MQMI_NONE:
            options |= cmqc.MQPMO_NEW_MSG_ID
        clears = mapped.clear and destination.is_topic
        if destination.is_topic and (mapped.retain or clears):
            # Also retain a clearing publication: RetainAsPublished subscribers see the RETAIN flag, and if the bridge is
            # killed before the clear command, an empty publication is retained instead of the old one.
            options |= cmqc.MQPMO_RETAIN
        properties = [_property(name, value) for name, value in mapped.properties.items()] if mapped.properties else ()
        key = _Opened(destination, identity, mapped.authority)
        try:
            if mapped.kept is not None:
                self._handle(key)  # fail before anything is put
                message = self._keep(mapped.kept, message, options)
                options &= ~cmqc.MQPMO_NEW_MSG_ID
            self._put(key, message, options, properties)
        except MQError as error:
            # The embedded queue manager's detail may contain the destination already.
            place = "" if error.detail.startswith("put to ") else f"put to {name_of(destination)}: "
            raise MQError(error.reason, f"{place}{error.detail}", error.comp_code) from error
        if clears:
            self._cleared[destination.name] = None
        elif mapped.retain and destination.is_topic:
            # This later publication of the same unit of work must not be cleared.
            self._cleared.pop(destination.name, None)

    def _put(self, key: _Opened, message: Message, options: int, properties: Sequence[Property] = ()) -> MQMD:
        try:
            return self._connection.put(self._handle(key), message, options, properties)
        except MQError as error:
            if error.reason not in _REOPEN:
                raise
            self._close(key)
            return self._connection.put(self._handle(key), message, options, properties)

    def _keep(self, kept_request: KeptRequest, request: Message, options: int) -> Message:
        """Store part of a request. Return the request with MsgId and CorrelId set to the MsgId of the stored message."""
        options &= ~(cmqc.MQPMO_SET_IDENTITY_CONTEXT | cmqc.MQPMO_RETAIN)
        key = _Opened(Destination(kept_request.queue))
        try:
            md = self._put(key, kept_request.message, options | cmqc.MQPMO_NEW_MSG_ID)
        except MQError as error:
            raise MQError(
                error.reason, f"requests_queue {kept_request.queue}: {error.detail}", error.comp_code
            ) from error
        # Depending on the replying application, the reply's CorrelId is the MsgId or the CorrelId of the request.
        return msgspec.structs.replace(
            request, md=msgspec.structs.replace(request.md, MsgId=md.MsgId, CorrelId=md.MsgId)
        )

    def backed_out(self) -> None:
        """Discard the clears of the unit of work that was backed out."""
        self._cleared.clear()

    def committed(self) -> None:
        """Clear the retained publications of the committed unit of work. Raises MQError if the connection is lost.

        An empty retained message removes the previous one (MQTT-3.3.1-10, -11). MQ needs a command for that.
        """
        while self._cleared:
            topic = next(iter(self._cleared))
            try:
                self._connection.clear_retained(topic)
            except MQError as error:
                raise_if_lost(error)
                log.error("MQB5105E clearing the retained publication of topic %r failed: %s", topic, error)
            del self._cleared[topic]

    def _handle(self, key: _Opened) -> int:
        handle = self._handles.get(key)
        if handle is not None:
            self._handles.move_to_end(key)
            return handle
        while len(self._handles) >= self._limit:
            self._close(next(iter(self._handles)))
        options = cmqc.MQOO_OUTPUT | cmqc.MQOO_FAIL_IF_QUIESCING
        if key.identity:
            options |= cmqc.MQOO_SET_IDENTITY_CONTEXT
        od = descriptor_of(key.destination)
        if key.authority:
            options |= cmqc.MQOO_ALTERNATE_USER_AUTHORITY
            od.AlternateUserId = key.authority
        handle = self._handles[key] = self._connection.open(od, options)
        return handle

    def _close(self, key: _Opened) -> None:
        self._connection.close(self._handles.pop(key))


def descriptor_of(destination: Destination) -> MQOD:
    """Return the object descriptor of a destination."""
    if destination.is_topic:
        return MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=destination.name)
    return MQOD(ObjectName=destination.name, ObjectQMgrName=destination.queue_manager)


def name_of(destination: Destination) -> str:
    """Return a description of a destination."""
    if destination.is_topic:
        return f"topic {destination.name!r}"
    at = f" at queue manager {destination.queue_manager}" if destination.queue_manager else ""
    return f"queue {destination.name}{at}"


#: dt of a typed value -> type of its message property.
_TYPES: Final = {
    None: cmqc.MQTYPE_STRING,
    "boolean": cmqc.MQTYPE_BOOLEAN,
    "i1": cmqc.MQTYPE_INT8,
    "i2": cmqc.MQTYPE_INT16,
    "i4": cmqc.MQTYPE_INT32,
    "i8": cmqc.MQTYPE_INT64,
    "r4": cmqc.MQTYPE_FLOAT32,
    "r8": cmqc.MQTYPE_FLOAT64,
    "bin.hex": cmqc.MQTYPE_BYTE_STRING,
}


def _property(name: str, value: str | int | bool | Typed) -> Property:
    if isinstance(value, Typed):
        return Property(name=name, type=_TYPES[value.dt], value=value.value)
    if isinstance(value, bool):
        return Property(name=name, type=cmqc.MQTYPE_BOOLEAN, value=value)
    if isinstance(value, int):
        return Property(name=name, type=cmqc.MQTYPE_INT32 if value in _INT32 else cmqc.MQTYPE_INT64, value=value)
    return Property(name=name, value=value)
