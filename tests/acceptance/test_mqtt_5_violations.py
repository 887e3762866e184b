"""What no client of MQTT 5 may send, byte by byte: the reason code that it is told, the end, and its will."""

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

MALFORMED, PROTOCOL_ERROR = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
ALIAS_INVALID = ReasonCode.TOPIC_ALIAS_INVALID
CONNECT = "00044d515454 05"


def of(*packets: Packet) -> bytes:
    return b"".join(encode(packet, "big", 5) for packet in packets)


#: What breaks it, the bytes, and the reason code of DISCONNECT (MQTT-4.13.1-1).
VIOLATIONS = [
    ("MQTT-3.1.0-2 a second CONNECT", of(Connect("c", "MQTT", 5)), PROTOCOL_ERROR),
    ("MQTT-1.5.4-1 surrogate", bytes.fromhex("30 06 0003eda080 00"), MALFORMED),
    ("MQTT-1.5.4-1 not UTF-8", bytes.fromhex("30 04 0001ff 00"), MALFORMED),
    ("MQTT-1.5.4-2 U+0000", bytes.fromhex("30 04 000100 00"), MALFORMED),
    ("MQTT-1.5.7-1 a pair", bytes.fromhex("30 0a 000161 06 26 0001ff 0000"), MALFORMED),
    ("MQTT-1.5.5-1 more bytes than needed", bytes.fromhex("c0 80 00"), MALFORMED),
    ("section 1.5.5 five bytes", bytes.fromhex("30 ff ff ff ff 01"), MALFORMED),
    ("section 2.1.2 type 0", bytes.fromhex("00 00"), MALFORMED),
    ("section 2.1.2 CONNACK", bytes.fromhex("20 03 00 00 00"), PROTOCOL_ERROR),
    ("section 2.1.2 SUBACK", bytes.fromhex("90 04 000a 00 00"), PROTOCOL_ERROR),
    ("section 2.1.2 UNSUBACK", bytes.fromhex("b0 04 000a 00 00"), PROTOCOL_ERROR),
    ("section 2.1.2 PINGRESP", bytes.fromhex("d0 00"), PROTOCOL_ERROR),
    ("MQTT-2.1.3-1 PUBACK", bytes.fromhex("41 02 000a"), MALFORMED),
    ("MQTT-2.1.3-1 PUBREC", bytes.fromhex("51 02 000a"), MALFORMED),
    ("MQTT-3.6.1-1 PUBREL", bytes.fromhex("60 02 000a"), MALFORMED),
    ("MQTT-2.1.3-1 PUBCOMP", bytes.fromhex("71 02 000a"), MALFORMED),
    ("MQTT-3.8.1-1 SUBSCRIBE", bytes.fromhex("80 07 000a 00 000161 00"), MALFORMED),
    ("MQTT-3.10.1-1 UNSUBSCRIBE", bytes.fromhex("a0 06 000a 00 000161"), MALFORMED),
    ("MQTT-2.1.3-1 PINGREQ", bytes.fromhex("c1 00"), MALFORMED),
    ("MQTT-3.14.1-1 DISCONNECT", bytes.fromhex("e1 00"), MALFORMED),
    ("MQTT-2.2.1-3 PUBLISH", bytes.fromhex("32 06 000161 0000 00"), PROTOCOL_ERROR),
    ("MQTT-2.2.1-3 SUBSCRIBE", bytes.fromhex("82 07 0000 00 000161 00"), PROTOCOL_ERROR),
    ("MQTT-2.2.1-3 UNSUBSCRIBE", bytes.fromhex("a2 06 0000 00 000161"), PROTOCOL_ERROR),
    ("section 2.2.2.2 no such property", bytes.fromhex("30 06 000161 02 7f00"), MALFORMED),
    ("section 2.2.2.2 a property of CONNECT", bytes.fromhex("30 09 000161 05 1100000000"), MALFORMED),
    ("section 2.2.2.1 beyond the packet", bytes.fromhex("30 05 000161 02 01"), MALFORMED),
    ("section 3.3.2.3.2 twice", bytes.fromhex("30 08 000161 04 01000101"), PROTOCOL_ERROR),
    ("MQTT-3.3.1-2 DUP", bytes.fromhex("38 04 000161 00"), MALFORMED),
    ("MQTT-3.3.1-4 QoS 3", bytes.fromhex("36 06 000161 000a 00"), MALFORMED),
    ("MQTT-3.3.2-2 MQTT-4.7.0-1 #", of(Publish("a/b", b"")).replace(b"b", b"#"), MALFORMED),
    ("MQTT-3.3.2-2 MQTT-4.7.0-1 +", of(Publish("a/b", b"", 2, False, False, 1)).replace(b"b", b"+"), MALFORMED),
    ("MQTT-4.7.3-1 no topic", bytes.fromhex("30 03 0000 00"), PROTOCOL_ERROR),
    ("MQTT-3.3.2-13 Response Topic", bytes.fromhex("30 08 000161 04 080001ff"), MALFORMED),
    ("MQTT-3.3.2-14 Response Topic", bytes.fromhex("30 08 000161 04 0800012b"), PROTOCOL_ERROR),
    ("MQTT-4.7.3-1 empty Response Topic", bytes.fromhex("30 07 000161 03 080000"), PROTOCOL_ERROR),
    ("MQTT-3.4.2-1 PUBACK", bytes.fromhex("40 04 000a ff 00"), PROTOCOL_ERROR),
    ("MQTT-3.5.2-1 PUBREC", bytes.fromhex("50 04 000a ff 00"), PROTOCOL_ERROR),
    ("MQTT-3.6.2-1 PUBREL", bytes.fromhex("62 04 000a ff 00"), PROTOCOL_ERROR),
    ("MQTT-3.7.2-1 PUBCOMP", bytes.fromhex("70 03 000a 80"), PROTOCOL_ERROR),
    ("MQTT-3.3.2-19 Content Type", bytes.fromhex("30 08 000161 04 030001ff"), MALFORMED),
    ("section 3.3.2.3.2 Payload Format Indicator", bytes.fromhex("30 06 000161 02 0102"), PROTOCOL_ERROR),
    ("MQTT-3.3.2-8 alias 0", bytes.fromhex("30 07 000161 03 230000"), ALIAS_INVALID),
    ("MQTT-3.3.2-9 alias 65", of(Publish("a", b"", properties=PublishProperties(topic_alias=65))), ALIAS_INVALID),
    ("section 3.3.2.3.4 unknown", of(Publish("", b"", properties=PublishProperties(topic_alias=1))), PROTOCOL_ERROR),
    ("MQTT-3.3.4-6 Subscription Identifier", bytes.fromhex("30 06 000161 02 0b01"), PROTOCOL_ERROR),
    ("section 3.8.2.1.2 identifier 0", bytes.fromhex("82 09 000a 02 0b00 000161 00"), PROTOCOL_ERROR),
    ("section 3.8.2.1.2 two identifiers", bytes.fromhex("82 0b 000a 04 0b010b02 000161 00"), PROTOCOL_ERROR),
    ("MQTT-3.8.3-1", bytes.fromhex("82 07 000a 00 0001ff 00"), MALFORMED),
    ("MQTT-3.8.3-2", bytes.fromhex("82 03 000a 00"), PROTOCOL_ERROR),
    ("MQTT-3.8.3-4", bytes.fromhex("82 10 000a 00 000a2473686172652f672f61 04"), PROTOCOL_ERROR),
    ("MQTT-3.8.3-5 bit 6", bytes.fromhex("82 07 000a 00 000161 40"), MALFORMED),
    ("MQTT-3.8.3-5 bit 7", bytes.fromhex("82 07 000a 00 000161 80"), MALFORMED),
    ("section 3.8.3.1 QoS 3", bytes.fromhex("82 07 000a 00 000161 03"), PROTOCOL_ERROR),
    ("section 3.8.3.1 Retain Handling 3", bytes.fromhex("82 07 000a 00 000161 30"), PROTOCOL_ERROR),
    ("MQTT-4.7.3-1 no filter", bytes.fromhex("82 06 000a 00 0000 00"), MALFORMED),
    ("MQTT-4.7.1-1 SUBSCRIBE", of(Subscribe(10, (("a/#/b", 0),))), MALFORMED),
    ("MQTT-4.7.1-2 SUBSCRIBE", of(Subscribe(10, (("a", 0), ("a/+b", 0)))), MALFORMED),
    ("MQTT-4.7.1-1 UNSUBSCRIBE", of(Unsubscribe(10, ("a/b#",))), MALFORMED),
    ("MQTT-4.8.2-1 no share name", of(Subscribe(10, (("$share/", 0),))), MALFORMED),
    ("MQTT-4.8.2-1 empty share name", of(Subscribe(10, (("$share//t", 0),))), MALFORMED),
    ("MQTT-4.8.2-2 share name alone", of(Subscribe(10, (("$share/g", 0),))), MALFORMED),
    ("MQTT-4.8.2-2 share without a filter", of(Subscribe(10, (("$share/g/", 0),))), MALFORMED),
    ("MQTT-4.8.2-2 wildcard in a share name", of(Subscribe(10, (("$share/a+/t", 0),))), MALFORMED),
    ("MQTT-4.7.1-1 filter of a share", of(Subscribe(10, (("$share/g/a#", 0),))), MALFORMED),
    ("MQTT-4.8.2-2 UNSUBSCRIBE", of(Unsubscribe(10, ("$share/g",))), MALFORMED),
    ("MQTT-3.10.3-1", bytes.fromhex("a2 06 000a 00 0001ff"), MALFORMED),
    ("MQTT-3.10.3-2", bytes.fromhex("a2 03 000a 00"), PROTOCOL_ERROR),
    ("MQTT-3.14.2-1", bytes.fromhex("e0 01 8b"), PROTOCOL_ERROR),
    ("MQTT-4.12.0-7 AUTH", bytes.fromhex("f0 06 18 04 1500016d"), PROTOCOL_ERROR),
]  # fmt: skip


# The channel rejects the bytes before they reach a queue manager.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize(("data", "code"), [case[1:] for case in VIOLATIONS], ids=[case[0] for case in VIOLATIONS])
def test_a_violation(bridge: BridgeProcess, unique: str, data: bytes, code: ReasonCode) -> None:
    """MQTT-3.1.2-8, MQTT-4.13.1-1, MQTT-3.14.2-2: what came before it counts, what comes behind it does not."""
    with client_of(bridge, f"{unique}-w") as witness:
        subscribe(witness, f"{unique}/#", 0)
        with client_of(bridge, unique, will=Will(f"{unique}/will", b"will")) as client:
            client.send_bytes(of(Publish(f"{unique}/before", b"")) + data + of(Publish(f"{unique}/behind", b"")))
            said = ended(client)
        assert said.reason_code == code
        assert said.properties is None or said.properties.session_expiry_interval is None
        assert [witness.receive().topic for _ in range(2)] == [f"{unique}/before", f"{unique}/will"]  # type: ignore[union-attr]
        witness.ping()
        assert not witness.inbox


#: What breaks it, and the CONNECT that does, with the reason code of CONNACK.
CONNECTS = [
    ("MQTT-2.1.3-1", f"11 0e {CONNECT} 02 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-1", "10 0e 00044d515458 05 02 0000 00 000163", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.2-3", f"10 0e {CONNECT} 03 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-9", f"10 0e {CONNECT} 06 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-11", f"10 0e {CONNECT} 0a 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-12", f"10 14 {CONNECT} 1e 0000 00 000163 00 000177 0000", MALFORMED),
    ("MQTT-3.1.2-13", f"10 0e {CONNECT} 22 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-16", f"10 11 {CONNECT} 02 0000 00 000163 000175", MALFORMED),
    ("MQTT-3.1.2-17", f"10 0e {CONNECT} 82 0000 00 000163", MALFORMED),
    ("MQTT-3.1.2-18", f"10 14 {CONNECT} 82 0000 00 000163 000175 000170", MALFORMED),
    ("MQTT-3.1.2-19", f"10 0e {CONNECT} 42 0000 00 000163", MALFORMED),
    ("MQTT-3.1.3-3", f"10 0b {CONNECT} 02 0000 00", MALFORMED),
    ("MQTT-3.1.3-4", f"10 0e {CONNECT} 02 0000 00 0001ff", MALFORMED),
    ("MQTT-1.5.4-2", f"10 0e {CONNECT} 02 0000 00 000100", MALFORMED),
    ("MQTT-3.1.3-8", f"10 3e {CONNECT} 02 0000 00 0031 {'63' * 49}", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    ("MQTT-3.1.3-11", f"10 14 {CONNECT} 06 0000 00 000163 00 0001ff 0000", MALFORMED),
    ("MQTT-4.7.3-1 will topic", f"10 13 {CONNECT} 06 0000 00 000163 00 0000 0000", MALFORMED),
    ("MQTT-4.7.0-1 will topic", f"10 14 {CONNECT} 06 0000 00 000163 00 000123 0000", MALFORMED),
    ("MQTT-3.1.3-12", f"10 11 {CONNECT} 82 0000 00 000163 0001ff", MALFORMED),
    ("section 3.1.2.11.2", f"10 18 {CONNECT} 02 0000 0a 11000000011100000001 000163", PROTOCOL_ERROR),
    ("section 3.1.2.11.3", f"10 11 {CONNECT} 02 0000 03 210000 000163", PROTOCOL_ERROR),
    ("section 3.1.2.11.4", f"10 13 {CONNECT} 02 0000 05 2700000000 000163", PROTOCOL_ERROR),
    ("section 3.1.2.11.6", f"10 10 {CONNECT} 02 0000 02 1902 000163", PROTOCOL_ERROR),
    ("section 3.1.2.11.7", f"10 10 {CONNECT} 02 0000 02 1702 000163", PROTOCOL_ERROR),
    ("section 3.1.2.11.10", f"10 12 {CONNECT} 02 0000 04 160001ff 000163", PROTOCOL_ERROR),
    ("section 3.1.3.2", f"10 18 {CONNECT} 06 0000 00 000163 04 01010101 000177 0000", PROTOCOL_ERROR),
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
def test_what_is_no_connect_is_not_answered(bridge: BridgeProcess, wire: str) -> None:
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
