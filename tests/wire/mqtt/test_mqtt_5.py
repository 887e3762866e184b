"""Publications and acknowledgements of MQTT 5, and the packets beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.wire.mqtt import (
    AcknowledgementProperties,
    Connack,
    Decoder,
    MalformedPacket,
    OtherPacket,
    Packet,
    PacketType,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    ReasonCode,
    encode,
    reason_name,
)

WHY = AcknowledgementProperties("why")
PACKETS = [
    (Publish("a/b", b"hi"), "30 08 0003612f62 00 6869"),
    (Publish("a/b", b"", 1, True, True, 10), "3b 08 0003612f62 000a 00"),
    (Publish("a/b", b"\0", 2, message_id=65535), "34 09 0003612f62 ffff 00 00"),
    (Publish("a", b"", 0, properties=PublishProperties(1)), "30 06 000161 02 0101"),
    (Publish("a", b"x", 1, False, False, 7, PublishProperties(topic_alias=2)), "32 0a 000161 0007 03 230002 78"),
    (Publish("", b"x", properties=PublishProperties(topic_alias=2)), "30 07 0000 03 230002 78"),
    (Publish("a", b"", properties=PublishProperties(user_property=(("n", "v"),))), "30 0b 000161 07 26 00016e 000176"),
    (Puback(10), "40 02 000a"),
    (Puback(10, 0x10), "40 03 000a 10"),
    (Puback(10, 0x87, WHY), "40 0a 000a 87 06 1f 0003776879"),
    (Puback(10, 0, WHY), "40 0a 000a 00 06 1f 0003776879"),
    (Pubrec(10), "50 02 000a"),
    (Pubrec(10, 0x97), "50 03 000a 97"),
    (Pubrel(10), "62 02 000a"),
    (Pubrel(10, False, 0x92), "62 03 000a 92"),
    (Pubrel(10, False, 0x92, WHY), "62 0a 000a 92 06 1f 0003776879"),
    (Pubcomp(10), "70 02 000a"),
    (Pubcomp(10, 0x92, WHY), "70 0a 000a 92 06 1f 0003776879"),
]


def of_level_5(**options: bool) -> Decoder:
    return Decoder(server=False, protocol_level=5, **options)


@pytest.mark.parametrize(("packet", "wire"), PACKETS)
def test_packets_on_the_wire(packet: Packet, wire: str) -> None:
    data = bytes.fromhex(wire)
    assert encode(packet, protocol_level=5) == data
    decoder = of_level_5()
    # Twice: the second time the topic is known.
    assert decoder.feed(data * 2) == [packet, packet]
    assert decoder.error is None


@given(st.lists(st.integers(1, 20), min_size=1))
def test_however_the_stream_is_cut(pieces: list[int]) -> None:
    data = b"".join(bytes.fromhex(wire) for _, wire in PACKETS)
    decoder = of_level_5()
    packets: list[Packet] = []
    position = 0
    while position < len(data):
        for size in pieces:
            packets += decoder.feed(data[position : position + size])
            position += size
    assert packets == [packet for packet, _ in PACKETS]
    assert (decoder.error, decoder.missing) == (None, 0)


def test_properties_of_no_length_behind_a_reason_code() -> None:
    assert of_level_5().feed(bytes.fromhex("40 04 000a 10 00 62 04 000b 00 00")) == [Puback(10, 0x10), Pubrel(11)]


@pytest.mark.parametrize(
    ("wire", "packet", "offset", "rule"),
    [
        ("36 07 000161 000a 00 00", "PUBLISH", 0, "MQTT-3.3.1-4"),
        ("38 05 000161 00 00", "PUBLISH", 0, "MQTT-3.3.1-2"),
        ("32 06 000161 0000 00", "PUBLISH", 5, "MQTT-2.3.1-1"),
        ("30 05 000123 00 00", "PUBLISH", 2, "MQTT-3.3.2-2"),
        ("30 03 0000 00", "PUBLISH", 5, "MQTT 5 section 3.3.2.1"),
        ("30 05 0000 02 0101", "PUBLISH", 7, "MQTT 5 section 3.3.2.1"),
        ("30 03 000161", "PUBLISH", 5, "MQTT 5 section 1.5.5"),
        ("32 05 000161 000a", "PUBLISH", 7, "MQTT 5 section 1.5.5"),
        ("32 04 000161 00", "PUBLISH", 5, "MQTT 3.1.1 section 2.2.3"),
        ("30 04 000161 01", "PUBLISH", 5, "MQTT 5 section 2.2.2.1"),
        ("30 07 000161 03 110000", "PUBLISH", 6, "MQTT 5 table 2-4"),
        ("40 03 0000 00", "PUBACK", 2, "MQTT-2.3.1-1"),
        ("41 03 000a 00", "PUBACK", 0, "MQTT-2.2.2-2"),
        ("60 03 000a 00", "PUBREL", 0, "MQTT-3.6.1-1"),
        ("40 05 000a 00 00 00", "PUBACK", 6, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
        ("40 04 000a 00 01", "PUBACK", 5, "MQTT 5 section 2.2.2.1"),
        ("50 06 000a 00 02 0101", "PUBREC", 6, "MQTT 5 table 2-4"),
        ("00 00", "fixed header", 0, "MQTT 3.1 section 2.1: message type 0"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_malformed(wire: str, packet: str, offset: int, rule: str, known: bool) -> None:
    """On either way of the decoder: to a topic that is known, or not."""
    decoder = of_level_5()
    before = decoder.feed(bytes.fromhex("30 04 000161 00")) if known else []
    assert decoder.feed(bytes.fromhex(wire)) == []
    assert before == [Publish("a", b"")] * known
    assert decoder.error is not None
    assert (decoder.error.packet, decoder.error.offset) == (packet, offset)
    assert decoder.error.rule.startswith(rule)


OTHERS = ["20 03 00 00 00", "90 04 000a 00 00", "b0 04 000a 00 00", "d0 00", "e0 02 8b 00", "f0 02 18 00", "c0 00"]


@pytest.mark.parametrize("wire", OTHERS)
def test_other_packets_are_left_as_they_are(wire: str) -> None:
    data = bytes.fromhex(wire)
    assert of_level_5().feed(data + bytes.fromhex("40 02 000a") + data) == [OtherPacket(data), Puback(10), OtherPacket(data)]


def test_messages_only_before_mqtt_5() -> None:
    decoder = Decoder(server=False, protocol_level=4, messages_only=True)
    assert decoder.feed(bytes.fromhex("20 02 01 00 c0 00 40 02 000a 30 03 000161")) == [
        OtherPacket(b"\x20\x02\x01\x00"), OtherPacket(b"\xc0\x00"), Puback(10), Publish("a", b""),
    ]  # fmt: skip
    assert decoder.feed(b"\xf0\x00") == []
    assert decoder.error is not None
    assert "message type 15 is reserved" in decoder.error.rule


def test_what_a_large_packet_lacks() -> None:
    decoder = of_level_5()
    whole = encode(Publish("a", bytes(1000)), protocol_level=5)
    for size in (1, 2):
        decoder.feed(whole[size - 1 : size])
        assert decoder.missing == 0
    assert decoder.feed(whole[2:100]) == []
    assert decoder.missing == len(whole) - 100
    assert len(decoder.feed(whole[100:])) == 1
    assert decoder.missing == 0


# Tables of the sections 3.4.2.1, 3.5.2.1, 3.6.2.1 and 3.7.2.1.
OF_PUBLISH = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
OF_RELEASE = {0x00, 0x92}


@pytest.mark.parametrize(
    ("packet_class", "codes"), [(Puback, OF_PUBLISH), (Pubrec, OF_PUBLISH), (Pubrel, OF_RELEASE), (Pubcomp, OF_RELEASE)]
)
def test_each_reason_code_in_each_acknowledgement(
    packet_class: type[Puback | Pubrec | Pubrel | Pubcomp], codes: set[int]
) -> None:
    for code in range(-1, 257):
        packet = packet_class(10, reason_code=code)
        if code in codes:
            encode(packet, protocol_level=5)
        else:
            with pytest.raises(MalformedPacket, match=rf"MQTT-3\.{PacketType[packet_class.__name__.upper()]:d}\.2-1"):
                encode(packet, protocol_level=5)
    # Whoever receives one of another packet knows what it means.
    first = encode(packet_class(10))[:1]
    for code in range(256):
        assert of_level_5().feed(first + bytes((3, 0, 10, code))) == [packet_class(10, reason_code=code)]


def test_names_of_reason_codes() -> None:
    assert len(ReasonCode) == 43
    assert [reason_name(code) for code in (0x00, 0x10, 0x87, 0x90, 0x9B, 0xA2, 0xFF)] == [
        "Success", "No matching subscribers", "Not authorized", "Topic Name invalid", "QoS not supported",
        "Wildcard Subscriptions not supported", "reason code 0xff",
    ]  # fmt: skip


def test_packets_that_are_not_written_yet() -> None:
    assert encode(Pingreq(), protocol_level=5) == b"\xc0\x00"
    with pytest.raises(KeyError):
        encode(Connack(), protocol_level=5)
