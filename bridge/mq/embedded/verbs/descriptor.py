"""What a put checks of an MQMD, and the context that it gives to a message.

Source: IBM MQ documentation, "MQMD - Message descriptor"; "Message context" for identity (UserIdentifier, AccountingToken,
ApplIdentityData) and origin (PutApplType, PutApplName, PutDate, PutTime, ApplOriginData). What the queue manager adds is
in `completion`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from bridge.mq.embedded.report import REQUESTED, check_report
from bridge.mq.errors import MQError
from bridge.mq.mqi import check_md
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
    """Raise MQError for the first field that no message can have."""
    if md.Version not in (cmqc.MQMD_VERSION_1, cmqc.MQMD_VERSION_2):
        raise MQError(cmqc.MQRC_MD_ERROR, f"MQMD version {md.Version}")
    check_md(md)
    if md.MsgType not in _MSG_TYPES and not cmqc.MQMT_APPL_FIRST <= md.MsgType <= cmqc.MQMT_APPL_LAST:
        raise MQError(cmqc.MQRC_MSG_TYPE_ERROR, f"MsgType {md.MsgType}")
    if md.Report:
        check_report(md.Report)
    if not md.ReplyToQ and (md.MsgType == cmqc.MQMT_REQUEST or md.Report & REQUESTED):
        raise MQError(cmqc.MQRC_MISSING_REPLY_TO_Q, "a request, and who asks for reports, names a ReplyToQ")
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
    """Return the group fields of a message that is put by itself: those of no group, unless its MsgFlags say so."""
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
    """Return context fields as another MQMD has them."""
    return {name: getattr(source, name) for name in names}


def blank(names: tuple[str, ...]) -> dict[str, Any]:
    """Return context fields that say nothing."""
    return copied(names, _BLANK)


class Completed(NamedTuple):
    """An MQMD as an application gave it with which options, and as the queue manager completed it."""

    given: MQMD
    options: int
    #: of the queue manager
    ccsid: str | int
    md: MQMD
    application: str | None
    #: MQRC_NONE, or that of a warning
    reason: int
