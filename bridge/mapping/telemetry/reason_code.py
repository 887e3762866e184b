"""Which reason code of MQTT 5 tells a client of an MQRC_ reason code (MQTT 5 section 2.4)."""

from __future__ import annotations

from typing import Final

from bridge.wire import cmqc
from bridge.wire.mqtt import PacketType, ReasonCode
from bridge.wire.mqtt.reason_codes import FROM_SERVER

REASON_CODES: Final = {
    cmqc.MQRC_NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_Q_FULL: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_RESOURCE_PROBLEM: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_STORAGE_MEDIUM_FULL: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: ReasonCode.PACKET_TOO_LARGE,
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: ReasonCode.PACKET_TOO_LARGE,
    # A message above the MAXMSGL of the channel.
    cmqc.MQRC_DATA_LENGTH_ERROR: ReasonCode.PACKET_TOO_LARGE,
    # A subscription for which the queue manager or its channel has no connection left (MaxChannels, MAXINST, MAXINSTC).
    cmqc.MQRC_MAX_CONNS_LIMIT_REACHED: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_CHANNEL_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_CHANNEL_CONFIG_ERROR: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_HANDLE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_PUT_INHIBITED: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    cmqc.MQRC_SUB_INHIBITED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_DURABILITY_NOT_ALLOWED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_TOPIC_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_OBJECT_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    # Of the Response Topic of a request from MQ, the only topic that stands for a queue.
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_NO_SUBS_MATCHED: ReasonCode.NO_MATCHING_SUBSCRIBERS,
    cmqc.MQRC_Q_MGR_QUIESCING: ReasonCode.SERVER_SHUTTING_DOWN,
    cmqc.MQRC_Q_MGR_STOPPING: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""Those that say more than that something is wrong; the rest is UNSPECIFIED_ERROR."""


#: What a packet says in place of a reason code that MQTT 5 does not have for it.
_ELSE: Final = {
    ReasonCode.PACKET_TOO_LARGE: ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.TOPIC_NAME_INVALID: ReasonCode.TOPIC_FILTER_INVALID,
}


def reason_code_of(reason: int, packet: PacketType) -> ReasonCode:
    """Return the reason code with which a packet tells a client of an MQRC_ number that is not MQRC_NONE."""
    code, allowed = REASON_CODES.get(reason, ReasonCode.UNSPECIFIED_ERROR), FROM_SERVER[packet]
    if code not in allowed:
        code = _ELSE.get(code, code)
    return code if code in allowed else ReasonCode.UNSPECIFIED_ERROR
