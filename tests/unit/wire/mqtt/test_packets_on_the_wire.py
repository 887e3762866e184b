"""Packets and their bytes: examples of MQTT 3.1 and 3.1.1, written and read."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import (
    ByteOrder,
    Connack,
    ConnackCode,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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
from bridge.mqtt.writer import encode

TO_SERVER = [
    pytest.param(Unsubscribe(10, ("a/b", "c/d")), "a2 0c 000a 0003612f62 0003632f64", id="3.10: UNSUBSCRIBE"),
    pytest.param(Subscribe(10, (("a/b", 1), ("c/d", 2))), "82 0e 000a 0003612f62 01 0003632f64 02", id="SUBSCRIBE"),
    pytest.param(Connect("c"), "10 0d 00044d515454 04 02 0000 000163", id="CONNECT of MQTT 3.1.1"),
    pytest.param(
        Connect("c", "MQIsdp", 3, False, 10), "10 0f 00064d5149736470 03 00 000a 000163", id="CONNECT of MQTT 3.1"
    ),
    pytest.param(
        Connect("c", keep_alive=0x0102, will=Will("w", b"bye", 2, True), user_name="u", password=b"\x00\xff"),
        "10 1c 00044d515454 04 f6 0102 000163 000177 0003627965 000175 000200ff",
        id="CONNECT with everything",
    ),
    pytest.param(
        Connect("", will=Will("w", b""), user_name=""),
        "10 13 00044d515454 04 86 0000 0000 000177 0000 0000",
        id="CONNECT with everything empty",
    ),
    pytest.param(Connect("é", clean_session=False), "10 0e 00044d515454 04 00 0000 0002c3a9", id="CONNECT, UTF-8"),
    pytest.param(Pingreq(), "c0 00", id="PINGREQ"),
    pytest.param(Disconnect(), "e0 00", id="DISCONNECT"),
]
TO_CLIENT = [
    pytest.param(Connack(), "20 02 00 00", id="CONNACK"),
    pytest.param(Connack(0, True), "20 02 01 00", id="CONNACK, session present"),
    *(pytest.param(Connack(code), f"20 02 00 {code:02x}", id=f"CONNACK {code.name}") for code in ConnackCode),
    pytest.param(Suback(10, (0, 1, 2, 0x80)), "90 06 000a 00 01 02 80", id="SUBACK"),
    pytest.param(Unsuback(10), "b0 02 000a", id="UNSUBACK"),
    pytest.param(Pingresp(), "d0 00", id="PINGRESP"),
]
EITHER_WAY = [
    pytest.param(Publish("a/b", b"hi"), "30 07 0003612f62 6869", id="PUBLISH, QoS 0"),
    pytest.param(Publish("a/b", b"", 0, True), "31 05 0003612f62", id="PUBLISH, QoS 0, RETAIN, no payload"),
    pytest.param(Publish("a/b", b"hi", 1, False, False, 10), "32 09 0003612f62 000a 6869", id="PUBLISH, QoS 1"),
    pytest.param(Publish("a/b", b"", 1, True, True, 10), "3b 07 0003612f62 000a", id="PUBLISH, QoS 1, DUP, RETAIN"),
    pytest.param(Publish("a/b", b"\0", 2, False, False, 65535), "34 08 0003612f62 ffff 00", id="PUBLISH, QoS 2"),
    pytest.param(Publish("a/b", b"", 2, False, True, 10), "3c 07 0003612f62 000a", id="PUBLISH, QoS 2, DUP"),
    pytest.param(Puback(10), "40 02 000a", id="PUBACK"),
    pytest.param(Pubrec(0x1234), "50 02 1234", id="PUBREC"),
    pytest.param(Pubrel(10), "62 02 000a", id="PUBREL"),
    pytest.param(Pubcomp(10), "70 02 000a", id="PUBCOMP"),
]


def decode(data: bytes, server: bool, level: int | None = None, byte_order: ByteOrder = "big") -> list[Packet]:
    decoder = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    packets = decoder.feed(data)
    assert decoder.error is None, str(decoder.error)
    return packets


@pytest.mark.parametrize(("packet", "wire"), TO_SERVER + EITHER_WAY)
def test_packet_to_server(packet: Packet, wire: str) -> None:
    assert encode(packet) == bytes.fromhex(wire)
    assert decode(bytes.fromhex(wire), server=True) == [packet]


@pytest.mark.parametrize(("packet", "wire"), TO_CLIENT + EITHER_WAY)
def test_packet_to_client(packet: Packet, wire: str) -> None:
    assert encode(packet) == bytes.fromhex(wire)
    assert decode(bytes.fromhex(wire), server=False) == [packet]


LITTLE_ENDIAN = [
    pytest.param(Unsubscribe(10, ("a/b", "c/d")), "a2 0c 0a00 0003612f62 0003632f64", True, id="UNSUBSCRIBE"),
    pytest.param(Subscribe(0x0102, (("a", 0),)), "82 06 0201 000161 00", True, id="SUBSCRIBE"),
    pytest.param(
        Connect("c", "MQIsdp", 3, keep_alive=10, will=Will("w", b"bye", 1), user_name="u", password=b"p"),
        "10 1d 00064d5149736470 03 ce 0a00 000163 000177 0003627965 000175 000170",
        True,
        id="CONNECT: keep-alive little, all lengths big",
    ),
    pytest.param(Publish("a/b", b"hi", 1, False, False, 10), "32 09 0003612f62 0a00 6869", True, id="PUBLISH"),
    pytest.param(Puback(0x0100), "40 02 0001", True, id="PUBACK"),
    pytest.param(Pubrec(10), "50 02 0a00", True, id="PUBREC"),
    pytest.param(Pubrel(10), "62 02 0a00", True, id="PUBREL"),
    pytest.param(Pubcomp(10), "70 02 0a00", True, id="PUBCOMP"),
    pytest.param(Suback(10, (1,)), "90 03 0a00 01", False, id="SUBACK"),
    pytest.param(Unsuback(10), "b0 02 0a00", False, id="UNSUBACK"),
]


@pytest.mark.parametrize(("packet", "wire", "server"), LITTLE_ENDIAN)
def test_words_of_the_little_endian_dialect_are_little_endian_and_string_lengths_big_endian(
    packet: Packet, wire: str, server: bool
) -> None:
    data = bytes.fromhex(wire)
    assert encode(packet, "little") == data
    # Twice: the topic of the second PUBLISH is known, so the decoder uses the fast path.
    assert decode(data * 2, server, byte_order="little") == [packet, packet]


@pytest.mark.parametrize("payload_size", [0, 122, 123, 16_378, 16_379, 2_097_146, 2_097_147])
def test_publish_below_and_above_the_limits_of_the_length_field(payload_size: int) -> None:
    # Sizes at which Remaining Length (payload and 5 bytes of topic) needs one more byte.
    packet = Publish("a/b", bytes(payload_size))
    data = encode(packet)
    length = payload_size + 5
    assert len(data) == 1 + (1 + (length > 127) + (length > 16_383) + (length > 2_097_151)) + length
    assert decode(data * 2, server=True) == [packet, packet]
