"""The MQ interface: MQI verbs in Python, one signature for every queue manager.

Names of fields and options are those of IBM's MQI (IBM MQ documentation, "MQI application reference"). A connection
belongs to one thread at a time. Every verb raises MQError with the reason code that a queue manager gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from bridge.telemetry.transmission import AnyMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQLONG, MQMD, MalformedHeader, check_mqmd


class MQError(Exception):
    """An MQI call that did not complete: MQCC_FAILED (or MQCC_WARNING) with a reason code.

    `reason` is the number of an MQRC_, `detail` says what was being done to which object.
    """

    def __init__(self, reason: int, detail: str = "", comp_code: int = cmqc.MQCC_FAILED) -> None:
        super().__init__(reason, detail, comp_code)
        self.reason = reason
        self.detail = detail
        self.comp_code = comp_code

    @property
    def name(self) -> str:
        """Return the name of the reason code, such as MQRC_Q_FULL."""
        return cmqc.reason_name(self.reason)

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" + (f": {self.detail}" if self.detail else "")


class Property(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message property: MQSETMP's name, type and value, and the MQPD. `bridge.mq.embedded.property` says more."""

    #: `folder.group.name`; without a dot it is in the `usr` folder
    name: str
    #: MQTYPE_BOOLEAN (bool), _BYTE_STRING (bytes), _INT8 to _INT64 (int), _FLOAT32, _FLOAT64 (float), _STRING (str),
    #: _NULL (None)
    type: MQLONG = cmqc.MQTYPE_STRING
    value: Any = ""
    Support: MQLONG = cmqc.MQPD_SUPPORT_OPTIONAL
    Context: MQLONG = cmqc.MQPD_NO_CONTEXT
    CopyOptions: MQLONG = cmqc.MQCOPY_DEFAULT


class MQOD(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Object descriptor: what MQOPEN and MQPUT1 name. MQOPEN fills in the fields under "Results", in place."""

    ObjectType: MQLONG = cmqc.MQOT_Q
    #: the name of a model queue is replaced by that of the dynamic queue made of it, as is ObjectQMgrName
    ObjectName: str = ""
    ObjectQMgrName: str = ""
    #: topic string of an MQOT_TOPIC; joined to the topic object's own by a `/` when ObjectName is given as well
    ObjectString: str = ""
    #: name of the dynamic queue to make of a model queue; a `*` at its end becomes unique
    DynamicQName: str = "AMQ.*"
    #: with MQOO_ALTERNATE_USER_AUTHORITY
    AlternateUserId: str = ""
    #: message selector: gets and browses with this handle see matching messages only
    SelectionString: str = ""
    # Results
    ResolvedQName: str = ""
    ResolvedQMgrName: str = ""
    #: whole topic string
    ResObjectString: str = ""
    #: MQOT_Q, or MQOT_TOPIC where an alias leads to a topic
    ResolvedType: MQLONG = cmqc.MQOT_NONE


class MQPMO(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Put message options. The put fills in the fields under "Results", in place."""

    Options: MQLONG = cmqc.MQPMO_NONE
    #: with MQPMO_PASS_…_CONTEXT: handle of a queue opened with MQOO_SAVE_ALL_CONTEXT
    Context: MQLONG = 0
    #: a publication goes to the highest SubLevel that is not above it
    PubLevel: MQLONG = 9
    # Results
    ResolvedQName: str = ""
    ResolvedQMgrName: str = ""
    KnownDestCount: MQLONG = 0
    UnknownDestCount: MQLONG = 0
    InvalidDestCount: MQLONG = 0
    #: no field of IBM's: MQRC_NONE, or the reason of an MQCC_WARNING (the message was put all the same)
    Reason: MQLONG = cmqc.MQRC_NONE


class MQSD(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Subscription descriptor: what MQSUB creates, alters or resumes.

    A result is ResObjectString; of a subscription that is resumed also SubUserData, SubCorrelId, SubLevel, SelectionString
    and what else it was made with.
    """

    Options: MQLONG = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE
    ObjectName: str = ""
    ObjectString: str = ""
    SubName: str = ""
    SubUserData: str = ""
    #: without MQSO_SET_CORREL_ID a result: the queue manager makes one
    SubCorrelId: bytes = bytes(24)
    SubLevel: MQLONG = 1
    #: tenths of a second
    SubExpiry: MQLONG = cmqc.MQEI_UNLIMITED
    AlternateUserId: str = ""
    PubPriority: MQLONG = cmqc.MQPRI_PRIORITY_AS_PUBLISHED
    PubAccountingToken: bytes = cmqc.MQACT_NONE
    PubApplIdentityData: str = ""
    SelectionString: str = ""
    #: no field of IBM's: MQTT 5's subscription option of that name (3.8.3.1). What is put with MQPMO_RETAIN comes with
    #: mqps.Ret while it is live, too. The embedded queue manager obeys it, IBM MQ knows no such thing.
    RetainAsPublished: bool = False
    # Result
    ResObjectString: str = ""


#: Character fields of a descriptor: the length in bytes, and the reason for a longer value. No object has a longer name.
_MQOD_CHARACTERS: Final = {
    "ObjectName": (48, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "ObjectQMgrName": (48, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "DynamicQName": (48, cmqc.MQRC_DYNAMIC_Q_NAME_ERROR),
    "AlternateUserId": (12, cmqc.MQRC_OD_ERROR),
}
_MQSD_CHARACTERS: Final = {
    "ObjectName": (48, cmqc.MQRC_UNKNOWN_OBJECT_NAME),
    "AlternateUserId": (12, cmqc.MQRC_SD_ERROR),
    "PubApplIdentityData": (32, cmqc.MQRC_SD_ERROR),
}
_MQSD_BYTES: Final = {"SubCorrelId": 24, "PubAccountingToken": 32}


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
    """Raise MQError if a value of an MQSD does not fit its field. Pad its byte fields."""
    _check_characters(sd, _MQSD_CHARACTERS)
    for name, length in _MQSD_BYTES.items():
        value = getattr(sd, name)
        if len(value) > length:
            raise MQError(cmqc.MQRC_SD_ERROR, f"{name} takes {length} bytes, not {len(value)}")
        setattr(sd, name, value.ljust(length, b"\0"))


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
    #: of the first failure or warning
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


class GetOptions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """MQGMO, and the fields of the MQMD that a get reads: what MatchOptions compare, and the form wanted by CONVERT."""

    Options: MQLONG = cmqc.MQGMO_NO_SYNCPOINT
    #: milliseconds, with MQGMO_WAIT; MQWI_UNLIMITED (-1) for ever
    WaitInterval: MQLONG = 0
    #: MQMO_MATCH_…; a MsgId, CorrelId or GroupId of zeros matches any
    MatchOptions: MQLONG = cmqc.MQMO_MATCH_MSG_ID | cmqc.MQMO_MATCH_CORREL_ID
    MsgId: bytes = bytes(24)
    CorrelId: bytes = bytes(24)
    GroupId: bytes = bytes(24)
    MsgSeqNumber: MQLONG = 1
    Offset: MQLONG = 0
    MsgToken: bytes = bytes(16)
    #: not 0: the application gave a message handle; properties go there where the queue's PROPCTL decides
    MsgHandle: MQLONG = 0
    #: MQGMO_CONVERT: wanted form of MQFMT_STRING data; 0 is the queue manager's own CCSID
    Encoding: MQLONG = cmqc.MQENC_NATIVE
    CodedCharSetId: MQLONG = cmqc.MQCCSI_Q_MGR
    #: length of the caller's buffer in bytes; None takes any message
    MaxLength: int | None = None


class Got(msgspec.Struct, kw_only=True):
    """What MQGET returns: the MQMD, the message data, and the object the message came from."""

    md: MQMD
    data: bytes
    ResolvedQName: str = ""
    #: whole length of the message data; more than len(data) when it was truncated
    DataLength: int = 0
    #: MQRC_NONE, or the reason of an MQCC_WARNING (MQRC_TRUNCATED_MSG_ACCEPTED)
    Reason: int = cmqc.MQRC_NONE
    #: MQGMO fields
    MsgToken: bytes = bytes(16)
    ReturnedLength: int = 0
    GroupStatus: bytes = cmqc.MQGS_NOT_IN_GROUP
    SegmentStatus: bytes = cmqc.MQSS_NOT_A_SEGMENT
    Segmentation: bytes = b" "
    #: the message properties, when they were asked for in a message handle
    properties: list[Property] = []


class TruncatedMessage(MQError):
    """MQRC_TRUNCATED_MSG_FAILED, an MQCC_WARNING: the message stays where it is, `got` has what fits the buffer."""

    def __init__(self, got: Got, detail: str) -> None:
        super().__init__(cmqc.MQRC_TRUNCATED_MSG_FAILED, detail, cmqc.MQCC_WARNING)
        self.got = got


class Connection(Protocol):
    """An MQ connection: what MQCONN returns and the other verbs take."""

    def open(self, od: MQOD, options: int) -> int:
        """Open an object (MQOPEN) and return a handle for it."""

    def close(self, handle: int, options: int = cmqc.MQCO_NONE) -> None:
        """Close a handle (MQCLOSE); with MQCO_REMOVE_SUB a subscription is removed."""

    def put(
        self,
        handle: int,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        """Put a message to a queue or topic (MQPUT); return the MQMD as the queue manager filled it in."""

    def put1(
        self,
        od: MQOD,
        message: AnyMessage,
        options: int | MQPMO = cmqc.MQPMO_NO_SYNCPOINT,
        properties: Sequence[Property] = (),
    ) -> MQMD:
        """Open an object, put a message to it, and close it (MQPUT1)."""

    def get(self, handle: int, options: GetOptions) -> Got:
        """Take or browse a message (MQGET). Raises TruncatedMessage when it does not fit and may not be cut."""

    def inquire(self, handle: int, selectors: Sequence[int]) -> tuple[list[int], list[str]]:
        """Return the values of the MQIA_ selectors and those of the MQCA_ selectors, each in the order asked for (MQINQ)."""

    def set(self, handle: int, selectors: Sequence[int], ints: Sequence[int], chars: Sequence[str]) -> None:
        """Give attributes of a queue other values (MQSET)."""

    def subscribe(self, sd: MQSD, handle: int | None = None) -> tuple[int, int]:
        """Subscribe (MQSUB) and return the handles of the subscription and of the queue that it puts to.

        `handle` is a queue opened by the caller as destination; None with MQSO_MANAGED makes one.
        """

    def subscription_request(
        self, handle: int, action: int = cmqc.MQSR_ACTION_PUBLICATION, options: int = cmqc.MQSRO_NONE
    ) -> int:
        """Have the retained publications of a subscription sent (MQSUBRQ) and return their number."""

    def statistics(self, type: int = cmqc.MQSTAT_TYPE_ASYNC_ERROR) -> MQSTS:
        """Return the status that MQSTAT tells."""

    def commit(self) -> None:
        """Commit the unit of work (MQCMIT)."""

    def backout(self) -> None:
        """Back the unit of work out (MQBACK)."""

    def command(self, text: str) -> list[CommandResponse]:
        """Run MQSC commands, one response for each."""

    def disconnect(self) -> None:
        """Disconnect (MQDISC): commit the unit of work that is open, and close all handles."""


class CommandResponse(msgspec.Struct, kw_only=True):
    """What one MQSC command answered."""

    command: str
    #: AMQ message as runmqsc prints it, such as "AMQ8006I: IBM MQ queue created."
    message: str
    ok: bool
    #: one attribute map for each object displayed, in the order to show
    objects: list[dict[str, str | int]] = []
    line: int = 1
