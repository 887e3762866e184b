"""Violations of MQTT 5, byte by byte: the reason code, the end of the connection, and the will."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import (
    Connack,
    Connect,
    Packet,
    Publish,
    PublishProperties,
    Subscribe,
    Will,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import client_of, ended, subscribe
from tests.helpers.raw_client import RawClient

# The bridge decides this before it asks the queue manager: tests/contract/backend covers what it asks.
pytestmark = pytest.mark.queue_managers("embedded")

MALFORMED, PROTOCOL_ERROR = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
ALIAS_INVALID = ReasonCode.TOPIC_ALIAS_INVALID
CONNECT = "00044d515454 05"


def of(*packets: Packet) -> bytes:
    return b"".join(encode(packet, "big", 5) for packet in packets)


#: The broken rule, the bytes, and the reason code of DISCONNECT (MQTT-4.13.1-1). More byte strings
#: that the decoder rejects are in tests/unit/wire/mqtt/test_mqtt_5_statements.py.
VIOLATIONS = [
    ("MQTT-3.1.0-2 a second CONNECT", of(Connect("c", "MQTT", 5)), PROTOCOL_ERROR),
    ("MQTT-1.5.4-1 not UTF-8", bytes.fromhex("30 04 0001ff 00"), MALFORMED),
    ("section 2.1.2 CONNACK", bytes.fromhex("20 03 00 00 00"), PROTOCOL_ERROR),
    ("MQTT-3.6.2-1 PUBREL", bytes.fromhex("62 04 000a ff 00"), PROTOCOL_ERROR),
    ("MQTT-3.3.2-9 alias 65", of(Publish("a", b"", properties=PublishProperties(topic_alias=65))), ALIAS_INVALID),
    ("MQTT-4.7.1-2 SUBSCRIBE", of(Subscribe(10, (("a", 0), ("a/+b", 0)))), MALFORMED),
    ("MQTT-4.8.2-1 empty share name", of(Subscribe(10, (("$share//t", 0),))), MALFORMED),
    ("MQTT-4.12.0-7 AUTH", bytes.fromhex("f0 06 18 04 1500016d"), PROTOCOL_ERROR),
]  # fmt: skip


@pytest.mark.parametrize(("violation", "code"), [case[1:] for case in VIOLATIONS], ids=[case[0] for case in VIOLATIONS])
def test_a_violation(bridge: BridgeProcess, unique: str, violation: bytes, code: ReasonCode) -> None:
    """MQTT-3.1.2-8, MQTT-4.13.1-1, MQTT-3.14.2-2: earlier packets are processed, later ones are not."""
    with client_of(bridge, f"{unique}-w") as witness:
        subscribe(witness, f"{unique}/#", 0)
        with client_of(bridge, unique, will=Will(f"{unique}/will", b"will")) as client:
            client.send_bytes(of(Publish(f"{unique}/before", b"")) + violation + of(Publish(f"{unique}/behind", b"")))
            disconnect = ended(client)
        assert disconnect.reason_code == code
        assert disconnect.properties is None or disconnect.properties.session_expiry_interval is None
        assert [witness.receive().topic for _ in range(2)] == [f"{unique}/before", f"{unique}/will"]
        witness.ping()
        assert not witness.inbox


#: The violation, and its CONNECT, with the reason code of CONNACK.
CONNECTS = [
    ("MQTT-2.1.3-1", f"11 0e {CONNECT} 02 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-1", "10 0e 00044d515458 05 02 0000 00 000163", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.3-8", f"10 3e {CONNECT} 02 0000 00 0031 {'63' * 49}", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ("section 3.1.2.11.3", f"10 11 {CONNECT} 02 0000 03 210000 000163", PROTOCOL_ERROR),
    ("MQTT-4.12.0-1", f"10 12 {CONNECT} 02 0000 04 1500016d 000163", ReasonCode.BAD_AUTHENTICATION_METHOD),
    ("MQTT-3.1.2-24", f"10 13 {CONNECT} 02 0000 05 270000000a 000163", ReasonCode.PACKET_TOO_LARGE),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "code"), [case[1:] for case in CONNECTS], ids=[case[0] for case in CONNECTS])
def test_a_rejected_connect(bridge: BridgeProcess, unique: str, wire: str, code: ReasonCode) -> None:
    """MQTT-3.1.4-1, -2, -6, MQTT-3.2.0-2, MQTT-3.2.2-6, -7, -8, MQTT-3.14.0-1: CONNACK, and later packets are ignored."""
    with client_of(bridge, f"{unique}-w") as witness, RawClient(bridge.port, "", level=5) as client:
        subscribe(witness, f"{unique}/#", 0)
        client.send_bytes(bytes.fromhex(wire) + of(Publish(f"{unique}/behind", b"")))
        refusal = client.expect(Connack)
        assert (refusal.return_code, refusal.session_present) == (code, False)
        client.expect_closed()
        witness.publish(f"{unique}/end", b"")
        assert witness.take().topic == f"{unique}/end"


@pytest.mark.parametrize("wire", ["30 04 000161 00", "c0 00", "e0 00", "f0 00", "82 07 000a 00 000161 00", "00 00"])
def test_a_first_packet_other_than_connect_is_not_answered(bridge: BridgeProcess, wire: str) -> None:
    """MQTT-3.1.0-1, MQTT-3.14.0-1."""
    with RawClient(bridge.port, "", level=5) as client:
        client.send_bytes(bytes.fromhex(wire))
        client.expect_closed()
