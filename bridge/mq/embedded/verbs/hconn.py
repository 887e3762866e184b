"""Connection handles: the user, open objects, unit of work and authority checks of one connection.

The module also checks and completes message descriptors for MQPUT (context, report options).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

from bridge.mq.embedded.handles import Handle, QueueHandle
from bridge.mq.embedded.objects import ResolvedDestination
from bridge.mq.embedded.queuemanager import REQUESTED, QueueManager, check_report
from bridge.mq.embedded.unit import Unit
from bridge.mq.mqi import MQOD, MQError, check_md
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

_MSG_TYPES = (cmqc.MQMT_REQUEST, cmqc.MQMT_REPLY, cmqc.MQMT_REPORT, cmqc.MQMT_DATAGRAM)
_GROUP_FLAGS = cmqc.MQMF_MSG_IN_GROUP | cmqc.MQMF_LAST_MSG_IN_GROUP
_SEGMENT_FLAGS = cmqc.MQMF_SEGMENT | cmqc.MQMF_LAST_SEGMENT
_FLAGS = _GROUP_FLAGS | _SEGMENT_FLAGS | cmqc.MQMF_SEGMENTATION_ALLOWED
_LARGEST = 999_999_999

IDENTITY = ("UserIdentifier", "AccountingToken", "ApplIdentityData")
ORIGIN = ("PutApplType", "PutApplName", "PutDate", "PutTime", "ApplOriginData")
_BLANK = MQMD()

#: Byte fields of an MQMD and their lengths. Applications may pass fewer bytes.
BYTE_FIELDS: Final = (("MsgId", 24), ("CorrelId", 24), ("AccountingToken", 32), ("GroupId", 24))


def check_descriptor(md: MQMD) -> None:
    """Raise MQError for the first invalid field."""
    if md.Version not in (cmqc.MQMD_VERSION_1, cmqc.MQMD_VERSION_2):
        raise MQError(cmqc.MQRC_MD_ERROR, f"MQMD version {md.Version}")
    check_md(md)
    if md.MsgType not in _MSG_TYPES and not cmqc.MQMT_APPL_FIRST <= md.MsgType <= cmqc.MQMT_APPL_LAST:
        raise MQError(cmqc.MQRC_MSG_TYPE_ERROR, f"MsgType {md.MsgType}")
    if md.Report:
        check_report(md.Report)
    if not md.ReplyToQ and (md.MsgType == cmqc.MQMT_REQUEST or md.Report & REQUESTED):
        raise MQError(cmqc.MQRC_MISSING_REPLY_TO_Q, "a request, or a message with report options, requires ReplyToQ")
    feedback = md.Feedback
    if not (0 <= feedback <= cmqc.MQFB_SYSTEM_LAST or cmqc.MQFB_APPL_FIRST <= feedback <= cmqc.MQFB_APPL_LAST):
        raise MQError(cmqc.MQRC_FEEDBACK_ERROR, f"Feedback {feedback}")
    if md.Persistence not in (0, 1, 2):
        raise MQError(cmqc.MQRC_PERSISTENCE_ERROR, f"Persistence {md.Persistence}")
    if md.Expiry == 0 or md.Expiry < cmqc.MQEI_UNLIMITED:
        raise MQError(cmqc.MQRC_EXPIRY_ERROR, f"Expiry {md.Expiry}")
    if md.Priority < cmqc.MQPRI_PRIORITY_AS_Q_DEF:
        raise MQError(cmqc.MQRC_PRIORITY_ERROR, f"priority {md.Priority}")
    if md.Version != cmqc.MQMD_VERSION_1:
        _check_group(md)


def _check_group(md: MQMD) -> None:
    if md.MsgFlags & ~_FLAGS & ~cmqc.MQMF_ACCEPT_UNSUP_MASK:
        raise MQError(cmqc.MQRC_MSG_FLAGS_ERROR, f"MsgFlags 0x{md.MsgFlags & 0xFFFFFFFF:x}")
    if not 1 <= md.MsgSeqNumber <= _LARGEST:
        raise MQError(cmqc.MQRC_MSG_SEQ_NUMBER_ERROR, f"MsgSeqNumber {md.MsgSeqNumber}")
    if not 0 <= md.Offset <= _LARGEST:
        raise MQError(cmqc.MQRC_OFFSET_ERROR, f"Offset {md.Offset}")


def group_fields(md: MQMD) -> dict[str, Any]:
    """Return the group fields of a message outside logical order: defaults, unless MsgFlags specify a group or segment."""
    flags = md.MsgFlags if md.Version != cmqc.MQMD_VERSION_1 else cmqc.MQMF_NONE
    if not flags & (_GROUP_FLAGS | _SEGMENT_FLAGS):
        return {"GroupId": cmqc.MQGI_NONE, "MsgSeqNumber": 1, "Offset": 0, "MsgFlags": flags}
    changes: dict[str, Any] = {}
    if flags & cmqc.MQMF_LAST_MSG_IN_GROUP:
        flags |= cmqc.MQMF_MSG_IN_GROUP
    if flags & cmqc.MQMF_LAST_SEGMENT:
        flags |= cmqc.MQMF_SEGMENT
    if not flags & cmqc.MQMF_SEGMENT:
        changes["Offset"] = 0
    if not flags & cmqc.MQMF_MSG_IN_GROUP:
        changes["MsgSeqNumber"] = 1
    return changes | {"MsgFlags": flags}


def is_grouped(md: MQMD) -> bool:
    """Return whether a message belongs to a group, or is a segment."""
    return md.Version != cmqc.MQMD_VERSION_1 and bool(md.MsgFlags & (_GROUP_FLAGS | _SEGMENT_FLAGS))


def copied(names: tuple[str, ...], source: MQMD) -> dict[str, Any]:
    """Return the context fields of an MQMD."""
    return {name: getattr(source, name) for name in names}


def blank(names: tuple[str, ...]) -> dict[str, Any]:
    """Return blank context fields."""
    return copied(names, _BLANK)


class CompletedDescriptor(NamedTuple):
    """An MQMD and put options of an application, and the completed MQMD."""

    source: MQMD
    options: int
    #: the queue manager's
    ccsid: str | int
    md: MQMD
    application: str | None


class Hconn:
    """One connection to the embedded queue manager, created by `mqconn`."""

    #: class of the handles of queues
    QUEUE_HANDLE: ClassVar[type[QueueHandle]] = QueueHandle

    def __init__(self, queue_manager: QueueManager, name: str, user: str, principal: str | None) -> None:
        self.queue_manager = queue_manager
        #: name of the application
        self.name = name
        self.user = user.encode()[:12]
        #: the user whose authorities are checked, or None for the bridge itself
        self.principal = principal
        #: IP address of the application, or "" if it did not connect over TCP
        self.address = ""
        #: its server-connection channel, or ""
        self.channel = ""
        #: process of the application, or 0 if it is this process or on another machine
        self.process_id = 0
        #: closes the connection (STOP CONN). None for connections of the bridge itself
        self.stop: Callable[[], None] | None = None
        self.connection_id = queue_manager.connection_id()
        #: open handles by Hobj
        self.handles: dict[int, Handle] = {}
        self._next_hobj = 1
        #: the unit of work, or None if there was no call under syncpoint since the last unit ended
        self.unit: Unit | None = None
        #: the completed MQMD of the last put, reused if the next put has the same MQMD
        self.completed: CompletedDescriptor | None = None

    # Handles ---------------------------------------------------------------------------------------------------------

    def check_room(self) -> None:
        """Check that another handle may be opened (MAXHANDS). Raises MQError."""
        if len(self.handles) >= int(self.queue_manager.objects.attributes["MAXHANDS"]):
            raise MQError(cmqc.MQRC_HANDLE_NOT_AVAILABLE, "MAXHANDS handles are open")

    def keep(self, handle: Handle) -> int:
        """Add a handle and return its Hobj."""
        hobj = self._next_hobj
        self._next_hobj += 1
        self.handles[hobj] = handle
        return hobj

    def find(self, hobj: int) -> Handle:
        """Return the handle of an Hobj. Raises MQError."""
        handle = self.handles.get(hobj)
        if handle is None:
            raise MQError(cmqc.MQRC_HOBJ_ERROR, f"handle {hobj}")
        if handle.changed:
            raise MQError(
                cmqc.MQRC_OBJECT_CHANGED, f"definitions of handle {hobj} have changed; hint: close it and open it again"
            )
        return handle

    def find_queue(self, hobj: int) -> QueueHandle:
        """Return the queue handle of an Hobj. Raises MQError."""
        handle = self.find(hobj)
        if not isinstance(handle, QueueHandle):
            raise MQError(cmqc.MQRC_HOBJ_ERROR, "the handle is not for a queue")
        return handle

    # The unit of work ------------------------------------------------------------------------------------------------

    @property
    def in_unit_of_work(self) -> bool:
        """Whether there are uncommitted changes."""
        return self.unit is not None and not self.unit.empty

    def unit_of_work(self) -> Unit:
        """Return the unit of work, with one more message counted. Raises MQError with MQRC_SYNCPOINT_LIMIT_REACHED."""
        unit = self.unit
        if unit is None:
            unit = self.unit = Unit()
        if unit.verbs >= int(self.queue_manager.objects.attributes["MAXUMSGS"]):
            raise MQError(cmqc.MQRC_SYNCPOINT_LIMIT_REACHED, "MAXUMSGS messages are uncommitted")
        unit.verbs += 1
        return unit

    # Checks ----------------------------------------------------------------------------------------------------------

    def check_quiescing(self, options: int) -> None:
        """Raise MQError if options contain _FAIL_IF_QUIESCING (the same number in all calls) while quiescing."""
        if self.queue_manager.quiescing and options & cmqc.MQOO_FAIL_IF_QUIESCING:
            raise MQError(cmqc.MQRC_Q_MGR_QUIESCING, f"queue manager {self.queue_manager.name} is quiescing")

    def check_administrator(self, command: str) -> None:
        """Check that the connected user may run commands. Raises MQError."""
        if self.queue_manager.authorization is not None:
            self.queue_manager.authorization.administering(self.principal, command)

    def ask_object(self, od: MQOD, options: int, type: int, name: str, *more: str) -> None:
        """Check the authorities for opening an object. Raises MQError."""
        if self.queue_manager.authorization is not None:
            alternate = alternate_user(od, options)
            self.queue_manager.authorization.opening(self.principal, alternate, type, name, options, *more)

    def ask_queue(self, od: MQOD, options: int, name: str, destination: ResolvedDestination | None = None) -> str:
        """Check the authorities for opening a queue. Return the name of the checked object. Raises MQError.

        For a queue at another queue manager, the checked object is the transmission queue (IBM MQ documentation, "MQOPEN").
        """
        if destination is not None and destination.client_id and od.ObjectQMgrName not in ("", self.queue_manager.name):
            assert destination.queue is not None
            name = destination.queue.name
        self.ask_object(od, options, cmqc.MQOT_Q, name)
        return name

    def ask_topic(self, od: MQOD, options: int, topic: str) -> None:
        """Check the authorities for opening a topic. Raises MQError."""
        if self.queue_manager.authorization is not None:
            self.queue_manager.authorization.opening_topic(self.principal, alternate_user(od, options), topic, options)

    # Generated values ------------------------------------------------------------------------------------------------

    def generated(self) -> bytes:
        """Return a new unique identifier."""
        return self.queue_manager.appearance.generated(self.queue_manager.next_number())


def alternate_user(od: MQOD, options: int) -> str | None:
    """Return AlternateUserId if the options contain MQOO_ALTERNATE_USER_AUTHORITY, otherwise None."""
    return od.AlternateUserId if options & cmqc.MQOO_ALTERNATE_USER_AUTHORITY else None
