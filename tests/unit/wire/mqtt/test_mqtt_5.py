"""The packets of MQTT 5 and their bytes."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.packets import (
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    Connack,
    ConnackProperties,
    Connect,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    OtherPacket,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscribeProperties,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    UnsubscribeProperties,
    Will,
    WillProperties,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import MalformedPacket
from bridge.mqtt.writer import encode

WHY = AcknowledgementProperties("why")
PACKETS = [
    (Publish("a/b", b"hi"), "30 08 0003612f62 00 6869"),
    (Publish("a/b", b"", 1, True, True, 10), "3b 08 0003612f62 000a 00"),
    (Publish("a/b", b"\0", 2, packet_id=65535), "34 09 0003612f62 ffff 00 00"),
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
TO_SERVER = [
    (Connect("c", protocol_level=5), "10 0e 00044d515454 05 02 0000 00 000163"),
    # A password without a user name, which earlier versions do not allow.
    (Connect("", "MQTT", 5, False, 10, password=b"p"), "10 10 00044d515454 05 40 000a 00 0000 000170"),
    (
        Connect(
            "c", "MQTT", 5, True, 10,
            Will("w", b"bye", 2, True, WillProperties(5, 1, content_type="t")), "u", b"\0",
            ConnectProperties(0xFFFFFFFF, 20, 1000, 3, 1, 0, "m", b"\xff", (("n", "v"),)),
        ),
        "10 4b 00044d515454 05 f6 000a 23 11ffffffff 210014 27000003e8 220003 1901 1700 1500016d 160001ff 2600016e000176"
        "000163 0b 1800000005 0101 03000174 000177 0003627965 000175 000100",
    ),
    (Subscribe(10, (("a", 1),), options=(SubscriptionOptions(),)), "82 07 000a 00 000161 01"),
    (
        Subscribe(
            10, (("a", 1), ("$share/g/b", 2)), False,
            (SubscriptionOptions(True, True, 2), SubscriptionOptions(False, False, 1)), SubscribeProperties(128),
        ),
        "82 17 000a 03 0b8001 000161 2d 000a2473686172652f672f62 12",
    ),
    (Unsubscribe(10, ("a",)), "a2 06 000a 00 000161"),
    (Unsubscribe(10, ("a",), properties=UnsubscribeProperties((("n", "v"),))), "a2 0d 000a 07 2600016e000176 000161"),
    (Pingreq(), "c0 00"),
    (Disconnect(), "e0 00"),
    (Disconnect(4), "e0 01 04"),
    (Disconnect(0, DisconnectProperties(7)), "e0 07 00 05 1100000007"),
    (Auth(0x18, AuthProperties("m", b"\xff")), "f0 0a 18 08 1500016d 160001ff"),
    (Auth(0x19, AuthProperties("m")), "f0 06 19 04 1500016d"),
]  # fmt: skip
TO_CLIENT = [
    (Connack(), "20 03 00 00 00"),
    (Connack(0, True), "20 03 01 00 00"),
    (Connack(0x87, False, ConnackProperties(reason_string="why")), "20 09 00 87 06 1f0003776879"),
    (
        Connack(0, False, ConnackProperties(
            9, 20, 1, 1, 1000, "c", 3, None, 1, 1, 1, 60, "i", "s", "m", b"\xff", (("n", "v"),)
        )),
        "20 3b 00 00 38 1100000009 210014 2401 2501 27000003e8 12000163 220003 2801 2901 2a01 13003c 1a000169 1c000173"
        "1500016d 160001ff 2600016e000176",
    ),
    (Suback(10, (0, 1, 2, 0x87)), "90 07 000a 00 00010287"),
    (Suback(10, (0xA2,), WHY), "90 0a 000a 06 1f0003776879 a2"),
    (Unsuback(10, (0, 0x11)), "b0 05 000a 00 0011"),
    (Unsuback(10, (0x8F,), WHY), "b0 0a 000a 06 1f0003776879 8f"),
    (Pingresp(), "d0 00"),
    (Disconnect(), "e0 00"),
    (Disconnect(0x8B), "e0 01 8b"),
    (Disconnect(0x9C, DisconnectProperties(None, "why", "s")), "e0 0c 9c 0a 1f0003776879 1c000173"),
    (Auth(), "f0 00"),
    (Auth(0, AuthProperties("m")), "f0 06 00 04 1500016d"),
]  # fmt: skip


def of_level_5(**options: bool) -> Decoder:
    return Decoder(server=False, protocol_level=5, **options)


def test_packets_on_the_wire(subtests: pytest.Subtests) -> None:
    for cases, servers in ((PACKETS, (False, True)), (TO_SERVER, (True,)), (TO_CLIENT, (False,))):
        for (packet, wire), server in product(cases, servers):
            with subtests.test(packet=packet, wire=wire, server=server):
                data = bytes.fromhex(wire)
                assert encode(packet, protocol_level=5) == data
                decoder = Decoder(server=server, protocol_level=5)
                # Twice: at the second packet, the topic is known.
                assert decoder.feed(data * 2) == [packet, packet]
                assert decoder.error is None


@given(st.lists(st.integers(1, 20), min_size=1))
def test_a_stream_can_be_divided_anywhere(pieces: list[int]) -> None:
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


def test_empty_properties_after_a_reason_code() -> None:
    assert of_level_5().feed(bytes.fromhex("40 04 000a 10 00 62 04 000b 00 00")) == [Puback(10, 0x10), Pubrel(11)]


def test_malformed(subtests: pytest.Subtests) -> None:
    """With both paths of the decoder: a known topic, and an unknown one."""
    for wire, packet, offset, rule in [
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
        ("41 03 000a 00", "PUBACK", 0, "MQTT-2.1.3-1"),
        ("60 03 000a 00", "PUBREL", 0, "MQTT-3.6.1-1"),
        ("40 05 000a 00 00 00", "PUBACK", 6, "MQTT 3.1.1 section 2.2.3: 1 bytes behind"),
        ("40 04 000a 00 01", "PUBACK", 5, "MQTT 5 section 2.2.2.1"),
        ("50 06 000a 00 02 0101", "PUBREC", 6, "MQTT 5 table 2-4"),
        ("00 00", "fixed header", 0, "MQTT 3.1 section 2.1: message type 0"),
    ]:
        for known in [False, True]:
            with subtests.test(wire=wire, packet=packet, offset=offset, rule=rule, known=known):
                decoder = of_level_5()
                before = decoder.feed(bytes.fromhex("30 04 000161 00")) if known else []
                assert decoder.feed(bytes.fromhex(wire)) == []
                assert before == [Publish("a", b"")] * known
                assert decoder.error is not None
                assert (decoder.error.packet, decoder.error.offset) == (packet, offset)
                assert decoder.error.rule.startswith(rule)


@pytest.mark.parametrize(
    ("wire", "packet", "server"),
    [
        ("e0 01 00", Disconnect(), True),
        ("e0 02 04 00", Disconnect(4), True),
        ("e0 01 8b", Disconnect(0x8B), False),
        ("f0 02 00 00", Auth(), False),
    ],
)
def test_more_bytes_than_needed(wire: str, packet: Packet, server: bool) -> None:
    decoder = Decoder(server=server, protocol_level=5)
    assert decoder.feed(bytes.fromhex(wire)) == [packet]
    assert decoder.error is None


def test_a_server_learns_the_version_from_connect() -> None:
    decoder = Decoder()
    packets = [Connect("c", protocol_level=5), Publish("learnt", b"hi", 1, packet_id=1), Disconnect(4)]
    assert decoder.feed(b"".join(encode(packet, protocol_level=5) for packet in packets) * 2) == packets * 2
    assert (decoder.error, decoder.protocol_level) == (None, 5)


@pytest.mark.parametrize("level", [None, 3, 4])
def test_auth_is_reserved_before_mqtt_5(level: int | None) -> None:
    for server in (True, False):
        decoder = Decoder(server=server, protocol_level=level)
        assert decoder.feed(b"\xf0\x00") == []
        assert decoder.error is not None
        assert "message type 15 is reserved" in decoder.error.rule
    with pytest.raises(MalformedPacket, match="message type 15 is reserved"):
        encode(Auth())


def test_missing_options_have_their_defaults() -> None:
    packet = Subscribe(10, (("a", 1), ("b", 2)), options=(SubscriptionOptions(),) * 2)
    assert encode(Subscribe(10, packet.topics), protocol_level=5) == encode(packet, protocol_level=5)


OTHERS = ["20 03 00 00 00", "90 04 000a 00 00", "b0 04 000a 00 00", "d0 00", "e0 02 8b 00", "f0 02 18 00", "c0 00"]


@pytest.mark.parametrize("wire", OTHERS)
def test_other_packets_are_unchanged(wire: str) -> None:
    data = bytes.fromhex(wire)
    decoder = of_level_5(messages_only=True)
    assert decoder.feed(data + bytes.fromhex("40 02 000a") + data) == [OtherPacket(data), Puback(10), OtherPacket(data)]


def test_messages_only_before_mqtt_5() -> None:
    decoder = Decoder(server=False, protocol_level=4, messages_only=True)
    assert decoder.feed(bytes.fromhex("20 02 01 00 c0 00 40 02 000a 30 03 000161")) == [
        OtherPacket(b"\x20\x02\x01\x00"),
        OtherPacket(b"\xc0\x00"),
        Puback(10),
        Publish("a", b""),
    ]
    assert decoder.feed(b"\xf0\x00") == []
    assert decoder.error is not None
    assert "message type 15 is reserved" in decoder.error.rule


def test_the_missing_part_of_a_large_packet() -> None:
    decoder = of_level_5()
    whole = encode(Publish("a", bytes(1000)), protocol_level=5)
    for size in (1, 2):
        decoder.feed(whole[size - 1 : size])
        assert decoder.missing == 0
    assert decoder.feed(whole[2:100]) == []
    assert decoder.missing == len(whole) - 100
    assert len(decoder.feed(whole[100:])) == 1
    assert decoder.missing == 0
