"""MQTT 3.1 and MQTT 3.1.1: bits that one does not use and the other reserves, and unknown protocols."""

from __future__ import annotations

import pytest

from bridge.mqtt.packets import (
    Connack,
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

CONNECT_3_1 = encode(Connect("c", "MQIsdp", 3))
CONNECT_3_1_1 = encode(Connect("c"))

# Bytes, and their meaning in MQTT 3.1. Each is malformed in MQTT 3.1.1.
UNUSED_BITS_TO_SERVER = [
    ("6a 02 000a", Pubrel(10, True)),
    ("63 02 000a", Pubrel(10)),
    ("8a 06 000a 000161 00", Subscribe(10, (("a", 0),), True)),
    ("83 06 000a 000161 00", Subscribe(10, (("a", 0),))),
    ("82 06 000a 000161 fd", Subscribe(10, (("a", 1),))),
    ("aa 0c 000a 0003612f62 0003632f64", Unsubscribe(10, ("a/b", "c/d"), True)),
    ("a3 0c 000a 0003612f62 0003632f64", Unsubscribe(10, ("a/b", "c/d"))),
    ("4f 02 000a", Puback(10)),
    ("51 02 000a", Pubrec(10)),
    ("72 02 000a", Pubcomp(10)),
    ("c8 00", Pingreq()),
    ("e1 00", Disconnect()),
    ("38 05 0003612f62", Publish("a/b", b"")),
    ("39 06 0003612f62 00", Publish("a/b", b"\0", 0, True)),
]
UNUSED_BITS_TO_CLIENT = [
    ("2f 02 00 00", Connack()),
    ("20 02 ff 00", Connack()),
    ("20 02 01 05", Connack(5)),
    ("98 03 000a 01", Suback(10, (1,))),
    ("b2 02 000a", Unsuback(10)),
    ("d1 00", Pingresp()),
    ("6a 02 000a", Pubrel(10, True)),
]


def test_a_server_learns_from_connect_whether_unused_bits_are_checked(subtests: pytest.Subtests) -> None:
    for wire, packet in UNUSED_BITS_TO_SERVER:
        with subtests.test(wire=wire, packet=packet):
            data = bytes.fromhex(wire)
            old = Decoder()
            assert old.feed(CONNECT_3_1 + data)[1:] == [packet]
            assert (old.error, old.protocol_level) == (None, 3)
            new = Decoder()
            assert new.feed(CONNECT_3_1_1 + data)[1:] == []
            assert new.error is not None
            assert new.protocol_level == 4
            unknown = Decoder()
            assert unknown.feed(data) == []
            assert unknown.error is not None


@pytest.mark.parametrize(
    ("wire", "packet"),
    [
        ("82 09 000a 0004612f2362 00", Subscribe(10, (("a/#b", 0),))),
        ("82 0a 000a 0005612f232f62 00", Subscribe(10, (("a/#/b", 0),))),
        ("82 07 000a 0002612b 00", Subscribe(10, (("a+", 0),))),
        ("a2 08 000a 0004612f2b62", Unsubscribe(10, ("a/+b",))),
    ],
)
def test_a_misplaced_wildcard_closes_connections_since_mqtt_3_1_1(wire: str, packet: Packet) -> None:
    """MQTT 3.1.1 section 4.8: a server closes the connection over a violation. MQTT 3.1 has no such rule."""
    old = Decoder()
    assert old.feed(CONNECT_3_1 + bytes.fromhex(wire))[1:] == [packet]
    assert old.error is None
    new = Decoder()
    assert new.feed(CONNECT_3_1_1 + bytes.fromhex(wire))[1:] == []
    assert new.error is not None and "section 4.7.1" in new.error.rule


def test_only_mqtt_5_closes_connections_over_a_malformed_share() -> None:
    """MQTT 5 section 4.8.2. Shared subscriptions are not part of MQTT 3.1.1, where $share/ is the beginning of a topic."""
    subscribe = Subscribe(10, (("$share/", 1), ("$share/g", 1), ("$share//t", 1)))
    decoder = Decoder()
    assert decoder.feed(CONNECT_3_1_1 + encode(subscribe))[1:] == [subscribe]


@pytest.mark.parametrize(("wire", "packet"), UNUSED_BITS_TO_CLIENT)
def test_a_client_is_told_whether_unused_bits_are_checked(wire: str, packet: Packet) -> None:
    data = bytes.fromhex(wire)
    old = Decoder(server=False, protocol_level=3)
    assert old.feed(data) == [packet]
    assert old.error is None
    new = Decoder(server=False, protocol_level=4)
    assert new.feed(data) == []
    assert new.error is not None


def test_rules_of_mqtt_3_1(subtests: pytest.Subtests) -> None:
    for wire, packet, offset, rule in [
        ("60 02 000a", "PUBREL", 0, "MQTT 3.1 section 3.10"),
        ("80 06 000a 000161 00", "SUBSCRIBE", 0, "MQTT 3.1 section 3.10"),
        ("a4 0c 000a 0003612f62 0003632f64", "UNSUBSCRIBE", 0, "MQTT 3.1 section 3.10"),
        ("8e 06 000a 000161 00", "SUBSCRIBE", 0, "MQTT 3.1 section 3.10"),
        ("36 07 0003612f62 000a", "PUBLISH", 0, "MQTT-3.3.1-4"),
        ("3e 07 0003612f62 000a", "PUBLISH", 0, "MQTT-3.3.1-4"),
        ("82 06 000a 000161 03", "SUBSCRIBE", 7, "MQTT-3.8.3-4"),
        ("a2 05 0000 000161", "UNSUBSCRIBE", 2, "MQTT-2.3.1-1"),
        ("40 03 000a 00", "PUBACK", 4, "MQTT 3.1.1 section 2.2.3"),
    ]:
        with subtests.test(wire=wire, packet=packet, offset=offset, rule=rule):
            decoder = Decoder()
            assert len(decoder.feed(CONNECT_3_1 + bytes.fromhex(wire))) == 1
            assert decoder.error is not None
            assert (decoder.error.packet, decoder.error.offset) == (packet, offset)
            assert decoder.error.rule.startswith(rule)


MQISDP_3 = "00064d5149736470 03"


@pytest.mark.parametrize(
    ("wire", "connect"),
    [
        pytest.param(f"1f 0f {MQISDP_3} 02 0000 000163", Connect("c", "MQIsdp", 3), id="flags of the header"),
        pytest.param(f"10 0f {MQISDP_3} 03 0000 000163", Connect("c", "MQIsdp", 3), id="reserved connect flag"),
        pytest.param(f"10 0f {MQISDP_3} 3a 0000 000163", Connect("c", "MQIsdp", 3), id="flags of a will not there"),
        pytest.param(f"10 0f {MQISDP_3} c2 0000 000163", Connect("c", "MQIsdp", 3), id="user name flag, no field"),
        pytest.param(
            f"10 12 {MQISDP_3} c2 0000 000163 000175",
            Connect("c", "MQIsdp", 3, user_name="u"),
            id="password flag, no field",
        ),
    ],
)
def test_connect_of_mqtt_3_1_may_have_any_unused_bits(wire: str, connect: Connect) -> None:
    decoder = Decoder()
    assert decoder.feed(bytes.fromhex(wire)) == [connect]
    assert decoder.error is None


@pytest.mark.parametrize(("flags", "rule"), [("1e", "MQTT-3.1.2-14"), ("42", "MQTT-3.1.2-22")])
def test_connect_of_mqtt_3_1_can_be_malformed(flags: str, rule: str) -> None:
    decoder = Decoder()
    assert decoder.feed(bytes.fromhex(f"10 14 {MQISDP_3} {flags} 0000 000163 000177 0000")) == []
    assert decoder.error is not None
    assert decoder.error.offset == 11
    assert decoder.error.rule.startswith(rule)


@pytest.mark.parametrize(("name", "level"), [("MQIsdp", 4), ("MQTT", 3)])
def test_the_server_decides_about_mixed_name_and_level(name: str, level: int) -> None:
    decoder = Decoder()
    connect = Connect("c", name, level)
    assert decoder.feed(encode(connect)) == [connect]
    assert decoder.error is None


@pytest.mark.parametrize(("name", "level"), [("MQIsdp", 3), ("MQTT", 4), ("MQTT", 3)])
def test_bit_7_of_the_level_is_a_bridge(name: str, level: int) -> None:
    """mosquitto's `bridge_protocol_version` mqttv31 and mqttv311 with `try_private`. The rules are those of the level."""
    connect = Connect("c", name, level, bridge=True)
    wire = encode(connect)
    assert wire[2 + 2 + len(name)] == 0x80 | level
    decoder = Decoder()
    assert decoder.feed(wire) == [connect]
    assert (decoder.error, decoder.protocol_level) == (None, level)


def test_an_unknown_protocol_is_read_like_mqtt_3_1_1(subtests: pytest.Subtests) -> None:
    for name, level in [
        ("MQTT", 0),
        ("MQTT", 2),
        ("MQIsdp", 5),
        ("MQTT", 6),
        ("MQTT", 255),
        ("MQTT", 0x85),
        ("MQTT", 0x82),
        ("mqtt", 4),
        ("mqtt", 5),
        ("", 3),
    ]:
        with subtests.test(name=name, level=level):
            decoder = Decoder()
            connect = Connect("c", name, level, False, 10, Will("w", b"bye", 1, True), "u", b"p")
            assert decoder.feed(encode(connect) + b"\xc0\x00") == [connect, Pingreq()]
            assert (decoder.error, decoder.protocol_level) == (None, None)


@pytest.mark.parametrize(
    ("wire", "name", "level"),
    [
        pytest.param("10 07 00044d515454 06", "MQTT", 6, id="nothing behind the level"),
        pytest.param("10 10 00044d515454 06 02 003c 00 000361 6263", "MQTT", 6, id="laid out as in MQTT 5"),
        pytest.param(
            "10 15 00044d515454 06 02 003c 05 1100000064 000361 6263", "MQTT", 6, id="as in MQTT 5 with a property"
        ),
        pytest.param("11 0d 00044d515454 06 02 0000 000163", "MQTT", 6, id="flags of the header"),
        pytest.param("10 0d 00044d515454 85 03 0000 000163", "MQTT", 0x85, id="reserved connect flag"),
        pytest.param("10 0e 00044d515455 04 02 0000 000163 00", "MQTU", 4, id="something behind"),
    ],
)
def test_an_unreadable_unknown_protocol_keeps_name_and_level(wire: str, name: str, level: int) -> None:
    decoder = Decoder()
    assert decoder.feed(bytes.fromhex(wire)) == [Connect("", name, level)]
    assert decoder.error is None
