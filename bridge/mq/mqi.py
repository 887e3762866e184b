"""The MQ interface: MQI verbs in Python, one signature for every queue manager.

Names of fields and options are those of IBM's MQI (IBM MQ documentation, "MQI application reference"). A connection
belongs to one thread at a time. Every verb raises MQError with the queue manager's reason code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import msgspec

from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQLONG, MQMD, MalformedHeader, check_mqmd


class MQError(Exception):
    """An MQI call that did not complete: MQCC_FAILED (or MQCC_WARNING) with a reason code.

    `reason` is an MQRC_ number. `detail` describes the operation and its object.
    """

    def __init__(self, reason: int, detail: str = "", comp_code: int = cmqc.MQCC_FAILED) -> None:
        super().__init__(reason, detail, comp_code)
        self.reason = reason
        self.detail = detail
        self.comp_code = comp_code

    @property
    def name(self) -> str:
        """The name of the reason code, such as MQRC_Q_FULL."""
        return cmqc.reason_name(self.reason)

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" + (f": {self.detail}" if self.detail else "")


class Property(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message property: name, type and value as for MQSETMP, and the MQPD. See `bridge.mq.embedded.property`."""

    #: `folder.group.name`. A name without a dot is in the `usr` folder
    name: str
    #: MQTYPE_BOOLEAN (bool), _BYTE_STRING (bytes), _INT8 to _INT64 (int), _FLOAT32, _FLOAT64 (float), _STRING (str),
    #: _NULL (None)
    type: MQLONG = cmqc.MQTYPE_STRING
    value: Any = ""
    Support: MQLONG = cmqc.MQPD_SUPPORT_OPTIONAL
    Context: MQLONG = cmqc.MQPD_NO_CONTEXT
    CopyOptions: MQLONG = cmqc.MQCOPY_DEFAULT


class MQOD(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Object descriptor of MQOPEN and MQPUT1. MQOPEN updates the fields under "Results" in place."""

    ObjectType: MQLONG = cmqc.MQOT_Q
    #: MQOPEN replaces the name of a model queue with that of the new dynamic queue, and updates ObjectQMgrName
    ObjectName: str = ""
    ObjectQMgrName: str = ""
    #: topic string of an MQOT_TOPIC. With ObjectName, it is appended to the topic object's topic string and `/`
    ObjectString: str = ""
    #: name of the dynamic queue to create from a model queue. A final `*` is replaced to make the name unique
    DynamicQName: str = "AMQ.*"
    #: with MQOO_ALTERNATE_USER_AUTHORITY
    AlternateUserId: str = ""
    #: message selector for gets and browses with this handle
    SelectionString: str = ""
    # Results
    ResolvedQName: str = ""
    ResolvedQMgrName: str = ""
    #: complete topic string
    ResObjectString: str = ""
    #: MQOT_Q, or MQOT_TOPIC for an alias of a topic
    ResolvedType: MQLONG = cmqc.MQOT_NONE


class MQSD(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Subscription descriptor of MQSUB.

    MQSUB updates ResObjectString and SubCorrelId in place.
    """

    Options: MQLONG = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE
    ObjectName: str = ""
    ObjectString: str = ""
    SubName: str = ""
    SubUserData: str = ""
    #: without MQSO_SET_CORREL_ID, the queue manager generates it and returns it here
    SubCorrelId: bytes = bytes(24)
    SubLevel: MQLONG = 1
    #: tenths of a second
    SubExpiry: MQLONG = cmqc.MQEI_UNLIMITED
    AlternateUserId: str = ""
    #: extension: the subscription option of MQTT 5.0 (section 3.8.3.1). Live publications put with MQPMO_RETAIN also have
    #: mqps.Ret. Only the embedded queue manager supports it.
    RetainAsPublished: bool = False
    # Result
    ResObjectString: str = ""


#: Character fields of descriptors: the maximum length in bytes, and the reason code if a value is longer.
_MQOD_CHARACTERS: Final = {
    "ObjectName": (48, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "ObjectQMgrName": (48, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "DynamicQName": (48, cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
    "AlternateUserId": (12, cmqc.MQRC_OD_ERROR),
}
_MQSD_CHARACTERS: Final = {
    "ObjectName": (48, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "AlternateUserId": (12, cmqc.MQRC_SD_ERROR),
}


def check_md(md: MQMD) -> None:
    """Raise MQError (MQRC_MD_ERROR) if a value of an MQMD does not fit its field.

    A C program cannot pass such a value. A program in Python can, so every verb checks its descriptors.
    """
    try:
        check_mqmd(md)
    except MalformedHeader as error:
        raise MQError(cmqc.MQRC_MD_ERROR, str(error)) from None


def check_od(od: MQOD) -> None:
    """Raise MQError if a name in an MQOD does not fit its field."""
    _check_characters(od, _MQOD_CHARACTERS)


def check_sd(sd: MQSD) -> None:
    """Raise MQError if a value of an MQSD does not fit its field. Pad SubCorrelId."""
    _check_characters(sd, _MQSD_CHARACTERS)
    if len(sd.SubCorrelId) > cmqc.MQ_CORREL_ID_LENGTH:
        raise MQError(cmqc.MQRC_SD_ERROR, f"SubCorrelId takes 24 bytes, not {len(sd.SubCorrelId)}")
    sd.SubCorrelId = sd.SubCorrelId.ljust(cmqc.MQ_CORREL_ID_LENGTH, b"\0")


def _check_characters(descriptor: MQOD | MQSD, fields: Mapping[str, tuple[int, int]]) -> None:
    for name, (length, reason) in fields.items():
        value = getattr(descriptor, name)
        try:
            size = len(value) if value.isascii() else len(value.encode())
        except UnicodeEncodeError:
            raise MQError(reason, f"{name} contains a surrogate, which UTF-8 cannot encode") from None
        if size > length:
            raise MQError(reason, f"{name} takes {length} bytes, not {size}")


class MQSTS(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Status of the asynchronous puts of a connection since the last MQSTAT."""

    CompCode: int = cmqc.MQCC_OK
    #: reason code of the first failure or warning
    Reason: int = cmqc.MQRC_NONE
    PutSuccessCount: int = 0
    PutWarningCount: int = 0
    PutFailureCount: int = 0
    ObjectType: int = cmqc.MQOT_Q
    ObjectName: str = ""
    ObjectQMgrName: str = ""
    ResolvedObjectName: str = ""
    ResolvedQMgrName: str = ""
    ObjectString: str = ""
    SubName: str = ""
    OpenOptions: int = 0
    SubOptions: int = 0


class GetOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """MQGMO, and the MQMD fields for MatchOptions."""

    Options: MQLONG = cmqc.MQGMO_NO_SYNCPOINT
    #: milliseconds, with MQGMO_WAIT. MQWI_UNLIMITED (-1) for no limit
    WaitInterval: MQLONG = 0
    #: MQMO_MATCH_… A MsgId or CorrelId of zeros matches any
    MatchOptions: MQLONG = cmqc.MQMO_MATCH_MSG_ID | cmqc.MQMO_MATCH_CORREL_ID
    MsgId: bytes = bytes(24)
    CorrelId: bytes = bytes(24)
    MsgToken: bytes = bytes(16)
    #: target of MQGMO_CONVERT, which only IBM MQ supports. 0 is the queue manager's CCSID
    CodedCharSetId: MQLONG = cmqc.MQCCSI_Q_MGR
    #: length of the caller's buffer in bytes, or None for no limit
    MaxLength: int | None = None
    #: whether the caller reads `Got.md`. If not, it may be an MQMD with initial values
    NeedsMd: bool = True


class Got(msgspec.Struct, kw_only=True):
    """The result of MQGET."""

    md: MQMD
    data: bytes
    #: complete length of the message data, more than len(data) if truncated
    DataLength: int = 0
    #: MQRC_NONE, or the reason of an MQCC_WARNING (MQRC_TRUNCATED_MSG_ACCEPTED)
    Reason: int = cmqc.MQRC_NONE
    MsgToken: bytes = bytes(16)


class TruncatedMessage(MQError):
    """MQRC_TRUNCATED_MSG_FAILED, an MQCC_WARNING: `got` has the beginning of the message, which stays on the queue."""

    def __init__(self, message: Got, detail: str) -> None:
        super().__init__(cmqc.MQRC_TRUNCATED_MSG_FAILED, detail, cmqc.MQCC_WARNING)
        self.got = message


class Connection(Protocol):
    """An MQ connection, with the MQI calls as methods."""

    def open(self, od: MQOD, options: int) -> int:
        """Open an object (MQOPEN) and return a handle for it."""

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        """Close a handle (MQCLOSE). MQCO_REMOVE_SUB removes the subscription."""

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        """Put a message to a queue or topic (MQPUT). Return the MQMD as filled in by the queue manager."""

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        """Open an object, put a message to it, and close it (MQPUT1)."""

    def get(self, handle: int, options: GetOptions) -> Got:
        """Get or browse a message (MQGET). Raises TruncatedMessage if it is too long and truncation is not allowed."""

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        """Return the values of the MQIA_ selectors and of the MQCA_ selectors, each in the order requested (MQINQ)."""

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        """Subscribe (MQSUB). Return the handles of the subscription and of its destination queue.

        `handle` is an open destination queue. With MQSO_MANAGED, pass None: the queue manager creates the queue.
        """

    def commit(self) -> None:
        """Commit the unit of work (MQCMIT)."""

    def backout(self) -> None:
        """Back out the unit of work (MQBACK)."""

    def command(self, text: str) -> list[CommandResponse]:
        """Run MQSC commands. Return one response for each."""

    def clear_retained(self, topic: str) -> None:
        """Clear the retained publication of a topic, if there is one, outside the unit of work.

        In MQTT, an empty retained message does that (MQTT-3.3.1-10, -11). MQ needs a command.
        """

    def subscriptions(self, name: str = "*") -> list[SubscriptionEntry]:
        """Return the subscriptions with a name, which may end in `*`."""

    def disconnect(self) -> None:
        """Disconnect (MQDISC): commit the open unit of work and close all handles."""


def inquire(
    connection: Connection, od: MQOD, selectors: Sequence[int], options: int = cmqc.MQOO_INQUIRE
) -> tuple[list[int], list[str]]:
    """Open an object, inquire attributes (`Connection.inquire`), and close it. Raises MQError."""
    handle = connection.open(od, options)
    try:
        return connection.inquire(handle, selectors)
    finally:
        connection.close(handle)


class AsynchronousConnection(Protocol):
    """A connection to IBM MQ, with asynchronous puts (MQPMO_ASYNC_RESPONSE)."""

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        """Return status information (MQSTAT)."""


def put_statistics(connection: Connection) -> MQSTS:
    """Return the outcomes of the asynchronous puts of a connection to IBM MQ since the last call. Raises MQError."""
    return cast("AsynchronousConnection", connection).statistics()


class AnnouncingConnection(Protocol):
    """A connection that any thread may use and that announces messages. Only the embedded queue manager supports it."""

    def announce(self, handle: int, arrived: Callable[[], None]) -> None:
        """Call `arrived` once, on any thread, when a message has arrived on a queue or a get fails at once.

        `arrived` must neither block nor raise. A message may have arrived before this call. Raises MQError.
        """


def announcing(connection: Connection | None) -> AnnouncingConnection | None:
    """Return a connection whose queue manager announces messages, or None."""
    # Since Python 3.12, isinstance with a protocol ignores the attributes that a wrapper delegates.
    return cast("AnnouncingConnection", connection) if hasattr(connection, "announce") else None


def get_or_none(connection: Connection, handle: int, options: GetOptions) -> Got | None:
    """Get or browse a message. Return None if no message is available (MQRC_NO_MSG_AVAILABLE). Raises MQError."""
    try:
        return connection.get(handle, options)
    except MQError as error:
        if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
            raise
        return None


class SubscriptionEntry(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of the queue manager, with its complete topic string. `destination` is the name of its queue."""

    name: str
    topic_string: str
    user_data: str
    durable: bool
    destination: str


class CommandResponse(msgspec.Struct, kw_only=True):
    """The response to one MQSC command."""

    command: str
    #: the AMQ message, such as "AMQ8006I: Queue APP.IN created."
    message: str
    ok: bool
    #: the attributes of each displayed object, in display order
    objects: list[dict[str, str | int]] = []
    line: int = 1
    #: attributes that the command ignored, because they have no effect on an embedded queue manager
    ignored: list[str] = []
