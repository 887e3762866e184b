"""Violations of MQTT 5, byte by byte: the reason code, the end of the connection, and the will."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.mqtt.packets import (
    Connack,
    Connect,
    ConnectProperties,
    Disconnect,
    Packet,
    Publish,
    PublishProperties,
    Subscribe,
    Unsubscribe,
    Will,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import client_of, ended, subscribe
from tests.helpers.raw_client import ConnectionClosed, RawClient

# The bridge decides this before it asks the queue manager: tests/contract/backend covers what it asks.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

MALFORMED, PROTOCOL_ERROR = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
ALIAS_INVALID = ReasonCode.TOPIC_ALIAS_INVALID
CONNECT = "00044d515454 05"


def of(*packets: Packet) -> bytes:
    return b"".join(encode(packet, "big", 5) for packet in packets)


#: The broken rule, the bytes, and the reason code of DISCONNECT (MQTT-4.13.1-1). More byte strings
#: that the decoder rejects are in tests/unit/wire/mqtt/test_mqtt_5_statements.py.
VIOLATIONS = [
    ("MQTT-3.1.0-2 a second CONNECT", of(Connect("c", "MQTT", 5)), PROTOCOL_ERROR),
    ("MQTT-1.5.4-1 surrogate", bytes.fromhex("30 06 0003eda080 00"), MALFORMED),
    ("MQTT-1.5.4-1 not UTF-8", bytes.fromhex("30 04 0001ff 00"), MALFORMED),
    ("MQTT-1.5.4-2 U+0000", bytes.fromhex("30 04 000100 00"), MALFORMED),
    ("MQTT-1.5.7-1 a pair", bytes.fromhex("30 0a 000161 06 26 0001ff 0000"), MALFORMED),
    ("MQTT-1.5.5-1 more bytes than needed", bytes.fromhex("c0 80 00"), MALFORMED),
    ("section 2.1.2 CONNACK", bytes.fromhex("20 03 00 00 00"), PROTOCOL_ERROR),
    ("section 2.1.2 SUBACK", bytes.fromhex("90 04 000a 00 00"), PROTOCOL_ERROR),
    ("section 2.1.2 UNSUBACK", bytes.fromhex("b0 04 000a 00 00"), PROTOCOL_ERROR),
    ("MQTT-2.1.3-1 PUBREC", bytes.fromhex("51 02 000a"), MALFORMED),
    ("MQTT-2.1.3-1 PUBCOMP", bytes.fromhex("71 02 000a"), MALFORMED),
    ("MQTT-2.2.1-3 PUBLISH", bytes.fromhex("32 06 000161 0000 00"), PROTOCOL_ERROR),
    ("section 2.2.2.2 no such property", bytes.fromhex("30 06 000161 02 7f00"), MALFORMED),
    ("section 3.3.2.3.2 twice", bytes.fromhex("30 08 000161 04 01000101"), PROTOCOL_ERROR),
    ("MQTT-3.3.2-2 MQTT-4.7.0-1 +", of(Publish("a/b", b"", 2, False, False, 1)).replace(b"b", b"+"), MALFORMED),
    ("MQTT-3.3.2-13 Response Topic", bytes.fromhex("30 08 000161 04 080001ff"), MALFORMED),
    ("MQTT-3.4.2-1 PUBACK", bytes.fromhex("40 04 000a ff 00"), PROTOCOL_ERROR),
    ("MQTT-3.6.2-1 PUBREL", bytes.fromhex("62 04 000a ff 00"), PROTOCOL_ERROR),
    ("MQTT-3.3.2-8 alias 0", bytes.fromhex("30 07 000161 03 230000"), ALIAS_INVALID),
    ("MQTT-3.3.2-9 alias 65", of(Publish("a", b"", properties=PublishProperties(topic_alias=65))), ALIAS_INVALID),
    ("section 3.3.2.3.4 unknown", of(Publish("", b"", properties=PublishProperties(topic_alias=1))), PROTOCOL_ERROR),
    ("MQTT-4.7.1-2 SUBSCRIBE", of(Subscribe(10, (("a", 0), ("a/+b", 0)))), MALFORMED),
    ("MQTT-4.7.1-1 UNSUBSCRIBE", of(Unsubscribe(10, ("a/b#",))), MALFORMED),
    ("MQTT-4.8.2-1 empty share name", of(Subscribe(10, (("$share//t", 0),))), MALFORMED),
    ("MQTT-4.8.2-2 wildcard in a share name", of(Subscribe(10, (("$share/a+/t", 0),))), MALFORMED),
    ("MQTT-4.12.0-7 AUTH", bytes.fromhex("f0 06 18 04 1500016d"), PROTOCOL_ERROR),
]  # fmt: skip


# The channel rejects the bytes before they reach a queue manager.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize(("data", "code"), [case[1:] for case in VIOLATIONS], ids=[case[0] for case in VIOLATIONS])
def test_a_violation(bridge: BridgeProcess, unique: str, data: bytes, code: ReasonCode) -> None:
    """MQTT-3.1.2-8, MQTT-4.13.1-1, MQTT-3.14.2-2: earlier packets are processed, later ones are not."""
    with client_of(bridge, f"{unique}-w") as witness:
        subscribe(witness, f"{unique}/#", 0)
        with client_of(bridge, unique, will=Will(f"{unique}/will", b"will")) as client:
            client.send_bytes(of(Publish(f"{unique}/before", b"")) + data + of(Publish(f"{unique}/behind", b"")))
            said = ended(client)
        assert said.reason_code == code
        assert said.properties is None or said.properties.session_expiry_interval is None
        assert [witness.receive().topic for _ in range(2)] == [f"{unique}/before", f"{unique}/will"]
        witness.ping()
        assert not witness.inbox


#: What breaks it, and the CONNECT that does, with the reason code of CONNACK.
CONNECTS = [
    ("MQTT-2.1.3-1", f"11 0e {CONNECT} 02 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-1", "10 0e 00044d515458 05 02 0000 00 000163", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.2-3", f"10 0e {CONNECT} 03 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-18", f"10 14 {CONNECT} 82 0000 00 000163 000175 000170", MALFORMED),
    ("MQTT-3.1.3-8", f"10 3e {CONNECT} 02 0000 00 0031 {'63' * 49}", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ("MQTT-4.7.3-1 will topic", f"10 13 {CONNECT} 06 0000 00 000163 00 0000 0000", MALFORMED),
    ("MQTT-4.7.0-1 will topic", f"10 14 {CONNECT} 06 0000 00 000163 00 000123 0000", MALFORMED),
    ("section 3.1.2.11.2", f"10 18 {CONNECT} 02 0000 0a 11000000011100000001 000163", PROTOCOL_ERROR),
    ("section 3.1.2.11.3", f"10 11 {CONNECT} 02 0000 03 210000 000163", PROTOCOL_ERROR),
    ("section 3.1.3.2 Session Expiry", f"10 19 {CONNECT} 06 0000 00 000163 05 1100000001 000177 0000", MALFORMED),
    ("MQTT-4.12.0-1", f"10 12 {CONNECT} 02 0000 04 1500016d 000163", ReasonCode.BAD_AUTHENTICATION_METHOD),
    ("MQTT-3.1.2-24", f"10 13 {CONNECT} 02 0000 05 270000000a 000163", ReasonCode.PACKET_TOO_LARGE),
]  # fmt: skip


# The channel rejects the bytes before they reach a queue manager.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize(("wire", "code"), [case[1:] for case in CONNECTS], ids=[case[0] for case in CONNECTS])
def test_a_connect_that_is_refused(bridge: BridgeProcess, unique: str, wire: str, code: ReasonCode) -> None:
    """MQTT-3.1.4-1, -2, -6, MQTT-3.2.0-2, MQTT-3.2.2-6, -7, -8, MQTT-3.14.0-1: CONNACK, and nothing behind it is done."""
    with client_of(bridge, f"{unique}-w") as witness, RawClient(bridge.port, "", level=5) as client:
        subscribe(witness, f"{unique}/#", 0)
        client.send_bytes(bytes.fromhex(wire) + of(Publish(f"{unique}/behind", b"")))
        refusal = client.expect(Connack)
        assert (refusal.return_code, refusal.session_present) == (code, False)
        client.expect_closed()
        witness.publish(f"{unique}/end", b"")
        assert witness.take().topic == f"{unique}/end"


# The channel rejects the bytes before they reach a queue manager.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize("wire", ["30 04 000161 00", "c0 00", "e0 00", "f0 00", "82 07 000a 00 000161 00", "00 00"])
def test_a_first_packet_other_than_connect_is_not_answered(bridge: BridgeProcess, wire: str) -> None:
    """MQTT-3.1.0-1, MQTT-3.14.0-1."""
    with RawClient(bridge.port, "", level=5) as client:
        client.send_bytes(bytes.fromhex(wire))
        client.expect_closed()


def test_last_words_that_are_too_long_are_left_unsaid(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-24, MQTT-3.2.2-19: a CONNACK of 5 bytes for a client that takes 4; MQTT-3.14.2-3: no Reason String."""
    with RawClient(bridge.port, unique, level=5, properties=ConnectProperties(maximum_packet_size=4)) as client:
        client.send(client.packet)
        client.expect_closed()
    with client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=20)) as client:
        client.send_bytes(b"\xd0\0")
        assert ended(client) == Disconnect(PROTOCOL_ERROR)


@pytest.mark.parametrize("level", [3, 4])
def test_another_version_in_the_middle(bridge: BridgeProcess, unique: str, level: int) -> None:
    """A CONNECT of another version is a second CONNECT all the same."""
    with client_of(bridge, unique) as client:
        client.send_bytes(encode(Connect("c", "MQIsdp" if level == 3 else "MQTT", level), "big", level))
        assert ended(client).reason_code == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "message",
    [lambda message_id: b"\x40\x02" + message_id, lambda message_id: b"\x70\x02" + message_id],
    ids=["PUBACK", "PUBCOMP"],
)
def test_an_acknowledgement_of_the_wrong_kind(bridge: BridgeProcess, unique: str, message: Callable[[bytes], bytes]) -> None:
    """Section 4.3.3: a PUBLISH with QoS 2 that PUBACK or PUBCOMP answers."""
    with client_of(bridge, unique) as client:
        subscribe(client, unique)
        client.publish(unique, b"x", 2)
        client.send_bytes(message(client.wait_for(Publish).message_id.to_bytes(2, "big")))
        with pytest.raises(ConnectionClosed):
            while True:
                packet = client.receive()
        assert isinstance(packet, Disconnect) and packet.reason_code == PROTOCOL_ERROR
