"""Which reason code of MQTT 5 tells a client of an MQRC_ reason code (MQTT 5 section 2.4)."""

from __future__ import annotations

from typing import Final

from bridge.wire import cmqc
from bridge.wire.mqtt import ReasonCode

REASON_CODES: Final = {
    cmqc.MQRC_NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_Q_FULL: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_RESOURCE_PROBLEM: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_STORAGE_MEDIUM_FULL: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: ReasonCode.PACKET_TOO_LARGE,
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: ReasonCode.PACKET_TOO_LARGE,
    cmqc.MQRC_PUT_INHIBITED: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    cmqc.MQRC_SUB_INHIBITED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_DURABILITY_NOT_ALLOWED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_TOPIC_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_OBJECT_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_NO_SUBS_MATCHED: ReasonCode.NO_MATCHING_SUBSCRIBERS,
    cmqc.MQRC_Q_MGR_QUIESCING: ReasonCode.SERVER_SHUTTING_DOWN,
    cmqc.MQRC_Q_MGR_STOPPING: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""Those that say more than that something is wrong; the rest is UNSPECIFIED_ERROR."""


def reason_code_of(reason: int) -> ReasonCode:
    """Return the reason code for an MQRC_ number that is not MQRC_NONE."""
    return REASON_CODES.get(reason, ReasonCode.UNSPECIFIED_ERROR)
