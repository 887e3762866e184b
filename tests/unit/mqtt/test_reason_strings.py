"""Rules that Reason Strings of MQTT 5 cite."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec
import pytest

from bridge import mqtt
from bridge.mqtt.connection import ServerProtocol
from bridge.mqtt.packets import (
    AcknowledgementProperties,
    Connack,
    ConnackCode,
    ConnackProperties,
    Connect,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    Packet,
    PacketType,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    Suback,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import ReasonCode, cite_mqtt_5
from bridge.mqtt.writer import encode

#: Rules that hold before MQTT 5 only, or that only errors of the bridge itself violate.
OLDER = re.compile(
    r"MQTT 3\.1 section 3\.10|MQTT 3\.1\.1 (section (3\.1\.2\.2|1\.5\.2|3\.2\.2\.1|3\.9\.3)|table 3\.1)|Remaining Length is"
)


def test_no_rule_cites_an_older_version() -> None:
    rules = [
        node.value
        for file in sorted(Path(mqtt.__path__[0]).glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and ": " in node.value
        and "\n" not in node.value
    ]
    old = [rule for rule in rules if re.match(r"MQTT (3\.1|3\.1\.1) ", rule) and not OLDER.match(rule)]
    assert old, "the rules are in these modules"
    assert [rule for rule in map(cite_mqtt_5, old) if "3.1" in rule.partition(":")[0].replace("section 3.1", "")] == []


NOTED = AcknowledgementProperties(reason_string="full")
FAULT = DisconnectProperties(reason_string="because")
PACKETS = [
    Connack(ReasonCode.NOT_AUTHORIZED, properties=ConnackProperties(reason_string="because")),
    Puback(1, ReasonCode.QUOTA_EXCEEDED, NOTED),
    Pubrec(1, ReasonCode.QUOTA_EXCEEDED, NOTED),
    Pubrel(1, reason_code=ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, properties=NOTED),
    Pubcomp(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND, NOTED),
    Suback(1, (ReasonCode.NOT_AUTHORIZED,), NOTED),
    Disconnect(ReasonCode.PROTOCOL_ERROR, FAULT),
]


def send(protocol: ServerProtocol, packet: Packet) -> None:
    match packet:
        case Connack():
            protocol.refuse(ConnackCode.NOT_AUTHORIZED, "because")
        case Puback() | Pubrec() | Pubrel() | Pubcomp():
            answer = (PacketType[type(packet).__name__.upper()], 1)
            step = isinstance(packet, Pubrel | Pubcomp)
            reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if step else ReasonCode.QUOTA_EXCEEDED
            protocol.answer([answer], {answer: (reason, "full")})
        case Suback():
            protocol.suback(1, packet.return_codes, "full")
        case _:
            protocol.disconnect(ReasonCode.PROTOCOL_ERROR, "because")


@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: type(packet).__name__)
def test_a_reason_string_beyond_the_maximum_packet_size_is_left_out(packet: Packet) -> None:
    """MQTT-3.2.2-19, MQTT-3.4.2-2, MQTT-3.5.2-2, MQTT-3.6.2-2, MQTT-3.7.2-2, MQTT-3.9.2-1, MQTT-3.14.2-3.

    Neither packet has User Properties (MQTT-3.4.2-3, MQTT-3.5.2-3, MQTT-3.6.2-3, MQTT-3.7.2-3, MQTT-3.9.2-2, MQTT-3.14.2-4).
    """
    size = len(encode(packet, "big", 5))
    for maximum, whole in ((size, True), (size - 1, False)):
        protocol = ServerProtocol(0.0)
        properties = ConnectProperties(maximum_packet_size=maximum)
        protocol.receive_data(encode(Connect("c", "MQTT", 5, properties=properties), "big", 5), 0.0)
        if not isinstance(packet, Connack):
            protocol.accept(0.0, session_present=False)
            protocol.data_to_send()
        send(protocol, packet)
        (sent,) = Decoder(server=False, protocol_level=5).feed(protocol.data_to_send())
        bare = msgspec.structs.replace(packet, properties=None)
        assert sent == (packet if whole else bare)
