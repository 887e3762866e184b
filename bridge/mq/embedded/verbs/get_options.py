"""MQGMO: which options go together, and which messages MatchOptions ask for.

Source: IBM MQ documentation, "MQGMO - Get-message options", "Rules for validating MQI options".
"""

from __future__ import annotations

from functools import lru_cache

from bridge.mq.embedded.appearance import Appearance
from bridge.mq.embedded.queue import StoredMessage
from bridge.mq.embedded.selector.selection import Selection
from bridge.mq.embedded.verbs.handle import INPUT, QueueHandle
from bridge.mq.embedded.verbs.rendering import OPTIONS
from bridge.mq.errors import MQError
from bridge.mq.mqi import GetOptions
from bridge.wire import cmqc

#: Options that browse.
BROWSES = cmqc.MQGMO_BROWSE_FIRST | cmqc.MQGMO_BROWSE_NEXT | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
#: Options that take the message where the browse cursor stands.
UNDER_CURSOR = cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_BROWSE_MSG_UNDER_CURSOR
MARKS = cmqc.MQGMO_MARK_BROWSE_HANDLE | cmqc.MQGMO_MARK_BROWSE_CO_OP
UNMARKS = cmqc.MQGMO_UNMARK_BROWSE_HANDLE | cmqc.MQGMO_UNMARK_BROWSE_CO_OP
_SYNCPOINTS = cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_SYNCPOINT_IF_PERSISTENT
#: Options that cannot be said together.
_EXCLUSIVE = (
    BROWSES | cmqc.MQGMO_MSG_UNDER_CURSOR | cmqc.MQGMO_UNLOCK,
    _SYNCPOINTS | cmqc.MQGMO_NO_SYNCPOINT,
    sum(OPTIONS),
    UNMARKS,
    cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK,
)
_KNOWN = (
    BROWSES
    | UNDER_CURSOR
    | MARKS
    | UNMARKS
    | _SYNCPOINTS
    | sum(OPTIONS)
    | cmqc.MQGMO_NO_SYNCPOINT
    | cmqc.MQGMO_WAIT
    | cmqc.MQGMO_ACCEPT_TRUNCATED_MSG
    | cmqc.MQGMO_LOCK
    | cmqc.MQGMO_UNLOCK
    | cmqc.MQGMO_FAIL_IF_QUIESCING
    | cmqc.MQGMO_CONVERT
    | cmqc.MQGMO_LOGICAL_ORDER
    | cmqc.MQGMO_COMPLETE_MSG
    | cmqc.MQGMO_ALL_MSGS_AVAILABLE
    | cmqc.MQGMO_ALL_SEGMENTS_AVAILABLE
    | cmqc.MQGMO_UNMARKED_BROWSE_MSG
)
_MATCHES = (
    cmqc.MQMO_MATCH_MSG_ID
    | cmqc.MQMO_MATCH_CORREL_ID
    | cmqc.MQMO_MATCH_GROUP_ID
    | cmqc.MQMO_MATCH_MSG_SEQ_NUMBER
    | cmqc.MQMO_MATCH_OFFSET
    | cmqc.MQMO_MATCH_MSG_TOKEN
)
_GROUP_MATCHES = cmqc.MQMO_MATCH_GROUP_ID | cmqc.MQMO_MATCH_MSG_SEQ_NUMBER | cmqc.MQMO_MATCH_OFFSET


def check_get(handle: QueueHandle, options: GetOptions) -> None:
    """Check that a handle takes a get with these options. Raises MQError."""
    flags, match = options.Options, options.MatchOptions
    _check_together(flags, handle.options)
    if flags & cmqc.MQGMO_WAIT and options.WaitInterval < cmqc.MQWI_UNLIMITED:
        raise MQError(cmqc.MQRC_WAIT_INTERVAL_ERROR, f"WaitInterval {options.WaitInterval}")
    if options.MaxLength is not None and options.MaxLength < 0:
        raise MQError(cmqc.MQRC_BUFFER_LENGTH_ERROR, f"buffer length {options.MaxLength}")
    if match & ~_MATCHES:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, f"MatchOptions 0x{match & 0xFFFFFFFF:x}")
    if match & cmqc.MQMO_MATCH_MSG_TOKEN and (flags & cmqc.MQGMO_WAIT or not any(options.MsgToken)):
        raise MQError(cmqc.MQRC_MSG_TOKEN_ERROR, "MQMO_MATCH_MSG_TOKEN goes with a token, and not with MQGMO_WAIT")
    _check_opened(flags, match, handle.options)


@lru_cache(maxsize=256)
def _check_together(flags: int, opened: int) -> None:
    """Check that options go together. Raises MQError."""
    browse = flags & BROWSES
    unlock = flags & cmqc.MQGMO_UNLOCK
    if (
        flags & ~_KNOWN
        or any((flags & mask).bit_count() > 1 for mask in _EXCLUSIVE)
        or (flags & _SYNCPOINTS and (browse or flags & (cmqc.MQGMO_LOCK | cmqc.MQGMO_UNLOCK)))
        or (flags & (cmqc.MQGMO_LOCK | MARKS | cmqc.MQGMO_UNMARKED_BROWSE_MSG) and not browse)
        or (unlock and flags & ~(cmqc.MQGMO_UNLOCK | cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_FAIL_IF_QUIESCING))
        or (flags & (MARKS | UNMARKS) & _CO_OPS and not opened & cmqc.MQOO_CO_OP)
    ):
        raise MQError(cmqc.MQRC_OPTIONS_ERROR, f"MQGMO options 0x{flags & 0xFFFFFFFF:x} do not go together")


@lru_cache(maxsize=256)
def _check_opened(flags: int, match: int, opened: int) -> None:
    """Check that a handle is open for a get. Raises MQError."""
    browse = flags & BROWSES
    unlock = flags & cmqc.MQGMO_UNLOCK
    if flags & cmqc.MQGMO_COMPLETE_MSG and flags & cmqc.MQGMO_LOGICAL_ORDER == 0 and match & _OFFSET:
        raise MQError(cmqc.MQRC_MATCH_OPTIONS_ERROR, "a complete message begins at offset 0")
    if (browse or unlock or flags & (cmqc.MQGMO_MSG_UNDER_CURSOR | UNMARKS)) and not opened & cmqc.MQOO_BROWSE:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_BROWSE, "open it with MQOO_BROWSE")
    if not (browse or unlock or flags & UNMARKS) and not opened & INPUT:
        raise MQError(cmqc.MQRC_NOT_OPEN_FOR_INPUT, "open it with MQOO_INPUT_SHARED")


_CO_OPS = cmqc.MQGMO_MARK_BROWSE_CO_OP | cmqc.MQGMO_UNMARK_BROWSE_CO_OP
_OFFSET = cmqc.MQMO_MATCH_OFFSET


def matching(appearance: Appearance, options: GetOptions) -> Selection | None:
    """Return a predicate for the messages that MatchOptions ask for; None where any message will do."""
    match = options.MatchOptions
    msg_id = options.MsgId if match & cmqc.MQMO_MATCH_MSG_ID else cmqc.MQMI_NONE
    correl_id = options.CorrelId if match & cmqc.MQMO_MATCH_CORREL_ID else cmqc.MQCI_NONE
    group_id = options.GroupId if match & cmqc.MQMO_MATCH_GROUP_ID else cmqc.MQGI_NONE
    rest = match & (cmqc.MQMO_MATCH_MSG_SEQ_NUMBER | cmqc.MQMO_MATCH_OFFSET | cmqc.MQMO_MATCH_MSG_TOKEN)
    if not rest and group_id == cmqc.MQGI_NONE and msg_id == cmqc.MQMI_NONE and correl_id == cmqc.MQCI_NONE:
        return None
    if match & ~cmqc.MQMO_MATCH_CORREL_ID == cmqc.MQMO_MATCH_MSG_ID and correl_id == cmqc.MQCI_NONE:
        return appearance.has_msg_id(msg_id)

    def is_matched(stored: StoredMessage) -> bool:
        md = stored.message.md
        return (
            appearance.is_matched(stored, msg_id, correl_id)
            and group_id in (cmqc.MQGI_NONE, md.GroupId)
            and (not match & cmqc.MQMO_MATCH_MSG_SEQ_NUMBER or md.MsgSeqNumber == options.MsgSeqNumber)
            and (not match & cmqc.MQMO_MATCH_OFFSET or md.Offset == options.Offset)
            and (not match & cmqc.MQMO_MATCH_MSG_TOKEN or token_of(stored) == options.MsgToken)
        )

    return is_matched


def token_of(stored: StoredMessage) -> bytes:
    """Return the MsgToken of a message: unique on this queue manager."""
    return stored.msg_number.to_bytes(16, "big")
