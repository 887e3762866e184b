"""Packets that the encoder rejects, and its fast paths compared with the general one."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import (
    ByteOrder,
    Connack,
    Connect,
    Packet,
    PacketType,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import MalformedPacket
from bridge.mqtt.writer import encode, encode_acknowledgement, encode_publish, encode_topic

LONG = "x" * 65_536


#: Makes the largest packet one byte too long. The zeros use no memory.
HUGE_PAYLOAD = bytes(268_435_455 - 5 + 1)


def test_a_packet_is_rejected(subtests: pytest.Subtests) -> None:
    for packet, rule in [
        (Publish("", b""), "MQTT-4.7.3-1"),
        (Publish("a/+", b""), "MQTT-3.3.2-2"),
        (Publish("#", b""), "MQTT-3.3.2-2"),
        (Publish("a\0", b""), "MQTT-1.5.3-2"),
        (Publish("\ud800", b""), "MQTT-1.5.3-1"),
        (Publish(LONG, b""), "MQTT 3.1.1 section 1.5.3"),
        (Publish("a", b"", 3, packet_id=1), "MQTT-3.3.1-4"),
        (Publish("a", b"", -1, packet_id=1), "MQTT-3.3.1-4"),
        (Publish("a", b"", 0, dup=True), "MQTT-3.3.1-2"),
        (Publish("a", b"", 0, packet_id=1), "MQTT-2.3.1-5"),
        (Publish("a", b"", 1), "MQTT-2.3.1-1"),
        (Publish("a", b"", 2, packet_id=65_536), "MQTT-2.3.1-1"),
        (Publish("abc", HUGE_PAYLOAD), "MQTT 3.1 section 2.1"),
        (Puback(0), "MQTT-2.3.1-1"),
        (Pubrec(65_536), "MQTT-2.3.1-1"),
        (Pubrel(-1), "MQTT-2.3.1-1"),
        (Pubrel(0, True), "MQTT-2.3.1-1"),
        (Pubcomp(0), "MQTT-2.3.1-1"),
        (Unsuback(0), "MQTT-2.3.1-1"),
        (Subscribe(0, (("a", 0),)), "MQTT-2.3.1-1"),
        (Subscribe(65_536, (("a", 0),)), "MQTT 3.1.1 section 1.5.2"),
        (Subscribe(1, ()), "MQTT-3.8.3-3"),
        (Subscribe(1, (("a", 3),)), "MQTT-3.8.3-4"),
        (Subscribe(1, (("", 0),)), "MQTT-4.7.3-1"),
        (Unsubscribe(1, ()), "MQTT-3.10.3-2"),
        (Unsubscribe(1, ("",)), "MQTT-4.7.3-1"),
        (Suback(1, ()), "MQTT 3.1.1 section 3.9.3"),
        (Suback(1, (3,)), "MQTT-3.9.3-2"),
        (Suback(0, (0,)), "MQTT-2.3.1-1"),
        (Connack(6), "MQTT 3.1.1 table 3.1"),
        (Connack(5, True), "MQTT-3.2.2-4"),
        (Connect(LONG), "MQTT 3.1.1 section 1.5.3"),
        (Connect("c", keep_alive=65_536), "MQTT 3.1.1 section 1.5.2"),
        (Connect("c", protocol_level=256), "MQTT 3.1.1 section 3.1.2.2"),
        (Connect("c", password=b""), "MQTT-3.1.2-22"),
        (Connect("c", user_name="u", password=bytes(65_536)), "MQTT 3.1.1 section 1.5.3"),
        (Connect("c", will=Will("w", b"", 3)), "MQTT-3.1.2-14"),
        (Connect("c", will=Will("", b"")), "MQTT-4.7.3-1"),
        (Connect("c", will=Will("w/#", b"")), "MQTT-3.3.2-2"),
        (Connect("c", will=Will("w", bytes(65_536))), "MQTT 3.1.1 section 1.5.3"),
    ]:
        with subtests.test(packet=type(packet).__name__, rule=rule):
            with pytest.raises(MalformedPacket) as error:
                encode(packet)
            assert error.value.packet == type(packet).__name__.upper()
            assert error.value.offset == 0
            assert error.value.rule.startswith(rule)


@pytest.mark.parametrize(
    ("packet", "wire"),
    [
        (Pubrel(10, True), "6a 02 000a"),
        (Subscribe(10, (("a", 0),), True), "8a 06 000a 000161 00"),
        (Unsubscribe(10, ("a/b", "c/d"), True), "aa 0c 000a 0003612f62 0003632f64"),
    ],
)
def test_dup_of_mqtt_3_1(packet: Packet, wire: str) -> None:
    # MQTT 3.1 section 3.10: DUP is set if the packet is sent again.
    data = encode(packet)
    assert data == bytes.fromhex(wire)
    assert Decoder(protocol_level=3).feed(data) == [packet]


@pytest.mark.parametrize("byte_order", ["big", "little"])
@pytest.mark.parametrize("size", [0, 100, 120, 200, 17_000])
@pytest.mark.parametrize(
    ("qos", "retain", "dup", "packet_id"),
    [(0, False, False, 0), (0, True, False, 0), (1, False, True, 258), (2, True, False, 1), (2, True, True, 65_535)],
)
def test_encode_publish(qos: int, retain: bool, dup: bool, packet_id: int, size: int, byte_order: ByteOrder) -> None:
    data = encode_publish(encode_topic("a/ü"), b"p" * size, qos, retain, dup, packet_id, byte_order)
    packet = Publish("a/ü", b"p" * size, qos, retain, dup, packet_id)
    assert data == encode(packet, byte_order)
    assert Decoder(byte_order=byte_order).feed(data) == [packet]


def test_encode_topic() -> None:
    assert encode_topic("a/ü") == b"\x00\x04a/\xc3\xbc"
    assert encode_topic("x" * 65_535)[:2] == b"\xff\xff"
    with pytest.raises(MalformedPacket, match=r"MQTT-3\.3\.2-2"):
        encode_topic("a/#")


@pytest.mark.parametrize(
    ("packet_type", "big", "little"),
    [
        (PacketType.PUBACK, "40020102", "40020201"),
        (PacketType.PUBREC, "50020102", "50020201"),
        (PacketType.PUBREL, "62020102", "62020201"),
        (PacketType.PUBCOMP, "70020102", "70020201"),
        (PacketType.UNSUBACK, "b0020102", "b0020201"),
    ],
)
def test_encode_acknowledgement(packet_type: PacketType, big: str, little: str) -> None:
    assert encode_acknowledgement(packet_type, 258).hex() == big
    assert encode_acknowledgement(packet_type, 258, "little").hex() == little
    with pytest.raises(MalformedPacket, match=packet_type.name):
        encode_acknowledgement(packet_type, 0)


def test_encode_acknowledgement_of_another_packet() -> None:
    with pytest.raises(KeyError):
        encode_acknowledgement(PacketType.PUBLISH, 1)
