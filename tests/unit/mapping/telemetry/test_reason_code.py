"""Reason codes of MQTT 5 for MQRC_ reason codes, in each packet that can contain them."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import PacketType, Puback, Pubrec, Suback
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from bridge.telemetry.conversion import reason_code_of
from bridge.wire import cmqc

#: MQRC_ -> reason code in PUBACK and PUBREC, in SUBACK
TABLE = {
    cmqc.MQRC_NOT_AUTHORIZED: (0x87, 0x87),
    cmqc.MQRC_Q_FULL: (0x97, 0x97),
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: (0x97, 0x97),
    cmqc.MQRC_RESOURCE_PROBLEM: (0x97, 0x97),
    cmqc.MQRC_STORAGE_MEDIUM_FULL: (0x97, 0x97),
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: (0x97, 0x97),
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: (0x97, 0x97),
    cmqc.MQRC_PUT_INHIBITED: (0x83, 0x83),
    cmqc.MQRC_TOPIC_STRING_ERROR: (0x90, 0x8F),
    cmqc.MQRC_OBJECT_STRING_ERROR: (0x90, 0x8F),
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: (0x90, 0x83),
    cmqc.MQRC_SUB_INHIBITED: (0x87, 0x87),
    cmqc.MQRC_DURABILITY_NOT_ALLOWED: (0x87, 0x87),
    cmqc.MQRC_UNEXPECTED_ERROR: (0x80, 0x80),
    cmqc.MQRC_Q_MGR_STOPPING: (0x80, 0x80),
}


def test_each_mqrc_has_its_reason_codes(subtests: pytest.Subtests) -> None:
    for reason in TABLE:
        with subtests.test(reason=reason):
            published, subscribed = TABLE[reason]
            assert reason_code_of(reason, PacketType.PUBACK) == reason_code_of(reason, PacketType.PUBREC) == published
            assert reason_code_of(reason, PacketType.SUBACK) == subscribed


@pytest.mark.parametrize("reason", [cmqc.MQRC_MSG_TOO_BIG_FOR_Q, cmqc.MQRC_Q_MGR_STOPPING])
def test_a_disconnect_has_a_more_specific_reason(reason: int) -> None:
    code = reason_code_of(reason, PacketType.DISCONNECT)
    assert code in (ReasonCode.PACKET_TOO_LARGE, ReasonCode.SERVER_SHUTTING_DOWN)


def test_each_packet_can_contain_each_of_them() -> None:
    """MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.9.3-2: the encoder accepts all of them."""
    for reason in {value for name, value in cmqc.code_numbers().items() if name.startswith("MQRC_") and value}:
        encode(Puback(1, reason_code_of(reason, PacketType.PUBACK)), "big", 5)
        encode(Pubrec(1, reason_code_of(reason, PacketType.PUBREC)), "big", 5)
        encode(Suback(1, (reason_code_of(reason, PacketType.SUBACK),)), "big", 5)
