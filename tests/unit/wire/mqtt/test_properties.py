"""The properties of MQTT 5: the table of the specification, and a codec that agrees with paho."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.mqtt.packets import PacketType, PublishProperties
from bridge.mqtt.properties import STRUCTS, decode_properties, encode_properties
from bridge.mqtt.property_table import PROPERTIES, PropertyKind
from bridge.mqtt.reason_codes import MalformedPacket, ReasonCode
from tests.helpers.mqtt_property_strategies import of_place, of_publish

BYTE, TWO, FOUR, VARIABLE = (
    PropertyKind.BYTE,
    PropertyKind.TWO_BYTE_INTEGER,
    PropertyKind.FOUR_BYTE_INTEGER,
    PropertyKind.VARIABLE_BYTE_INTEGER,
)
STRING, BINARY, PAIR = PropertyKind.STRING, PropertyKind.BINARY, PropertyKind.STRING_PAIR
READ = list(STRUCTS)

# One value of each kind that all properties of the kind can have.
VALUES: dict[PropertyKind, tuple[bytes, Any]] = {
    BYTE: (b"\x01", 1),
    TWO: (b"\x00\x01", 1),
    FOUR: (b"\x00\x00\x00\x01", 1),
    VARIABLE: (b"\x80\x01", 128),
    STRING: (b"\x00\x01a", "a"),
    BINARY: (b"\x00\x02\x00\xff", b"\x00\xff"),
    PAIR: (b"\x00\x01a\x00\x02bc", ("a", "bc")),
}


def place_name(place: object) -> str:
    return place.name if isinstance(place, PacketType) else str(place)


def decode(encoded: bytes, packet_type: Any = PacketType.PUBLISH) -> Any:
    """Return the properties between one byte and another one, which must not be read."""
    properties, behind = decode_properties(packet_type, b"\x30" + encoded + b"\xff", 1, len(encoded) + 1, 0)
    assert behind == len(encoded) + 1
    return properties


def with_length(*fields: bytes) -> bytes:
    body = b"".join(fields)
    return bytes((len(body),)) + body


def test_the_table_agrees_with_paho() -> None:
    paho: Any = Properties(PacketTypes.PUBLISH)
    names = {identifier: name for name, identifier in paho.names.items()}
    will = {PacketTypes.WILLMESSAGE: "WILL"}
    assert {
        (
            identifier,
            names[identifier],
            paho.types[kind],
            frozenset(will.get(place) or PacketType(place).name for place in places),
        )
        for identifier, (kind, places) in paho.properties.items()
    } == {(row.identifier, row.name, row.kind.value, frozenset(map(place_name, row.places))) for row in PROPERTIES}
    # MQTT 5 sections 3.3.2.3.7 and 3.3.2.3.8: several User Properties anywhere, Subscription Identifiers of a PUBLISH
    several, everywhere = (row for row in PROPERTIES if row.repeated)
    assert (several.name, everywhere.name) == ("Subscription Identifier", "User Property")
    assert several.repeated == {PacketType.PUBLISH} and everywhere.repeated == everywhere.places


def test_a_packet_has_a_field_for_each_of_its_properties(subtests: pytest.Subtests) -> None:
    for packet_type in READ:
        with subtests.test(packet_type=packet_type):
            fields = STRUCTS[packet_type].__struct_fields__
            assert sorted(fields) == sorted(row.field for row in PROPERTIES if packet_type in row.places)
            assert fields[-1] == "user_property"


def test_each_property_in_each_packet(subtests: pytest.Subtests) -> None:
    for packet_type, row in itertools.product(READ, PROPERTIES):
        with subtests.test(packet_type=packet_type, row=row.name):
            raw, value = VALUES[row.kind]
            packet_name = "CONNECT" if packet_type == "WILL" else packet_type.name
            encoded = with_length(bytes((row.identifier,)), raw)
            if packet_type not in row.places:
                rule = f"MQTT 5 table 2-4: property 0x.. is none of {packet_name}"
                with pytest.raises(MalformedPacket, match=rule) as refused:
                    decode(encoded, packet_type)
                assert (refused.value.packet, refused.value.offset) == (packet_name, 2)
                continue
            repeated = packet_type in row.repeated
            properties = STRUCTS[packet_type](**{row.field: (value,) if repeated else value})
            assert decode(encoded, packet_type) == properties
            assert encode_properties(packet_type, properties) == encoded
            twice = with_length(*(bytes((row.identifier,)), raw) * 2)
            if repeated:
                assert getattr(decode(twice, packet_type), row.field) == (value, value)
            else:
                with pytest.raises(
                    MalformedPacket, match=r"MQTT 5 section 3\.(\d+\.|1\.3\.)2: .* more than once"
                ) as refused:
                    decode(twice, packet_type)
                assert refused.value.reason_code is ReasonCode.PROTOCOL_ERROR


# The sections of each limit: 3.3.2.3.2, 3.8.2.1.2, 3.1.2.11.7 and .6, 3.1.2.11.3, 3.3.2.3.4, 3.2.2.3.4 and .5, 3.1.2.11.4,
# 3.2.2.3.11 to .13.
LIMITS = {
    "Payload Format Indicator": (0, 1),
    "Subscription Identifier": (1, 268_435_455),
    "Request Problem Information": (0, 1),
    "Request Response Information": (0, 1),
    "Receive Maximum": (1, 0xFFFF),
    "Topic Alias": (1, 0xFFFF),
    "Maximum QoS": (0, 1),
    "Retain Available": (0, 1),
    "Maximum Packet Size": (1, 0xFFFFFFFF),
    "Wildcard Subscription Available": (0, 1),
    "Subscription Identifier Available": (0, 1),
    "Shared Subscription Available": (0, 1),
}
SIZES = {BYTE: 1, TWO: 2, FOUR: 4}


@pytest.mark.parametrize("row", [row for row in PROPERTIES if row.kind in SIZES], ids=lambda row: row.name)
def test_the_limits_of_each_number(row: Any) -> None:
    size = SIZES[row.kind]
    largest = (1 << 8 * size) - 1
    least, most = LIMITS.get(row.name, (0, largest))
    code = ReasonCode.TOPIC_ALIAS_INVALID if row.name == "Topic Alias" else ReasonCode.PROTOCOL_ERROR
    for place in row.places:
        for value in {0, 1, 2, least, most, largest}:
            encoded = with_length(bytes((row.identifier,)), value.to_bytes(size, "big"))
            properties = STRUCTS[place](**{row.field: value})
            if least <= value <= most:
                assert decode(encoded, place) == properties
                assert encode_properties(place, properties) == encoded
                continue
            for broken in (lambda: decode(encoded, place), lambda: encode_properties(place, properties)):  # noqa: B023
                with pytest.raises(MalformedPacket, match=f"{row.name} is {value}") as refused:
                    broken()
                assert refused.value.reason_code is code


def test_no_other_properties_exist(subtests: pytest.Subtests) -> None:
    for identifier in sorted(set(range(256)) - {row.identifier for row in PROPERTIES}):
        with subtests.test(identifier=identifier), pytest.raises(MalformedPacket, match="does not exist"):
            decode(with_length(bytes((identifier, 0, 0, 0, 0))))


@given(of_publish)
def test_paho_reads_written_properties(properties: PublishProperties) -> None:
    encoded = encode_properties(PacketType.PUBLISH, properties)
    read: Any = Properties(PacketTypes.PUBLISH)
    assert read.unpack(encoded)[1] == len(encoded)
    assert getattr(read, "PayloadFormatIndicator", None) == properties.payload_format_indicator
    assert getattr(read, "MessageExpiryInterval", None) == properties.message_expiry_interval
    assert getattr(read, "ContentType", None) == properties.content_type
    assert getattr(read, "ResponseTopic", None) == properties.response_topic
    assert getattr(read, "CorrelationData", None) == properties.correlation_data
    assert tuple(getattr(read, "SubscriptionIdentifier", ())) == properties.subscription_identifier
    assert getattr(read, "TopicAlias", None) == properties.topic_alias
    assert tuple(getattr(read, "UserProperty", ())) == properties.user_property


@given(of_publish)
def test_written_properties_of_publish_can_be_read(properties: PublishProperties) -> None:
    assert decode(encode_properties(PacketType.PUBLISH, properties)) in (properties, None)


@given(st.sampled_from(list(STRUCTS)).flatmap(lambda place: st.tuples(st.just(place), of_place(place))))
def test_written_properties_can_be_read(case: tuple[Any, Any]) -> None:
    place, properties = case
    assert (decode(encode_properties(place, properties), place) or STRUCTS[place]()) == properties


@pytest.mark.parametrize("properties", [None, PublishProperties()])
def test_empty_properties_consist_of_their_length(properties: PublishProperties | None) -> None:
    assert encode_properties(PacketType.PUBLISH, properties) == b"\0"
    assert decode(b"\0") is None


@given(of_publish, st.data())
def test_truncated_properties_are_malformed(properties: PublishProperties, data: st.DataObject) -> None:
    encoded = encode_properties(PacketType.PUBLISH, properties)
    stop = data.draw(st.integers(0, len(encoded) - 1))
    # Bytes after the end of the packet exist, such as those of the next packet.
    with pytest.raises(MalformedPacket):
        decode_properties(PacketType.PUBLISH, encoded, 0, stop, 0)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_malformed(encoded: bytes) -> None:
    """No other error is raised, and nothing after the end is read."""
    with contextlib.suppress(MalformedPacket):
        assert decode_properties(PacketType.PUBLISH, encoded, 0, len(encoded), 0)[1] <= len(encoded)


def test_malformed_properties(subtests: pytest.Subtests) -> None:
    for encoded, offset, why in [
        ("", 1, "MQTT 5 section 1.5.5"),
        ("80", 1, "MQTT 5 section 1.5.5"),
        ("ffffffff01", 1, "MQTT 5 section 1.5.5"),
        ("8000", 1, "MQTT-1.5.5-1"),
        ("05 26", 1, "MQTT 5 section 2.2.2.1: 5 bytes of properties, beyond"),
        ("01 01", 2, "end within this one"),
        ("02 01 02", 2, "Payload Format Indicator is 2"),
        ("03 02 0000", 2, "end within this one"),
        ("02 03 00", 2, "end within this one"),
        ("04 03 0001 ff", 2, "MQTT-1.5.4-1"),
        ("04 03 0001 00", 2, "MQTT-1.5.4-2: Content Type"),
        ("06 03 0003 eda080", 2, "MQTT-1.5.4-1"),  # surrogate
        ("04 08 0001 2b", 2, "MQTT-3.3.2-14"),
        ("06 08 0003 612f23", 2, "MQTT-3.3.2-14"),
        ("04 09 0002 ff", 2, "end within this one"),
        ("01 0b", 2, "MQTT 5 section 1.5.5"),
        ("02 0b ff", 2, "MQTT 5 section 1.5.5"),
        ("02 0b 00", 2, "Subscription Identifier is 0"),
        ("03 0b 8100", 2, "MQTT-1.5.5-1"),
        ("03 23 0000", 2, "Topic Alias is 0"),
        ("02 23 00", 2, "end within this one"),
        ("01 26", 2, "end within this one"),
        ("05 26 0000 0001", 2, "end within this one"),
        ("06 26 0001 ff 0000", 2, "MQTT-1.5.4-1"),
        ("06 26 0000 0001 00", 2, "MQTT-1.5.4-2: User Property"),
        ("07 01 01 26 0001 6100", 4, "end within this one"),
    ]:
        with subtests.test(encoded=encoded, offset=offset, why=why):
            with pytest.raises(MalformedPacket, match=why) as refused:
                decode(bytes.fromhex(encoded))
            assert (refused.value.packet, refused.value.offset) == ("PUBLISH", offset)


def test_properties_that_must_not_be_written(subtests: pytest.Subtests) -> None:
    for properties, why in [
        (PublishProperties(payload_format_indicator=2), "Payload Format Indicator is 2"),
        (PublishProperties(message_expiry_interval=-1), "Message Expiry Interval is -1"),
        (PublishProperties(message_expiry_interval=1 << 32), "Message Expiry Interval is 4294967296"),
        (PublishProperties(content_type="\0"), "MQTT-1.5.4-2: Content Type"),
        (PublishProperties(content_type="\ud800"), "MQTT-1.5.4-1"),
        (PublishProperties(content_type="x" * 65536), "MQTT 5 section 1.5"),
        (PublishProperties(response_topic="a/+"), "MQTT-3.3.2-14"),
        (PublishProperties(correlation_data=bytes(65536)), "MQTT 5 section 1.5"),
        (PublishProperties(subscription_identifier=(1, 0)), "Subscription Identifier is 0"),
        (PublishProperties(subscription_identifier=(268_435_456,)), "Subscription Identifier is 268435456"),
        (PublishProperties(topic_alias=0), "Topic Alias is 0"),
        (PublishProperties(topic_alias=65536), "MQTT 5 section 1.5"),
        (PublishProperties(user_property=(("\0", ""),)), "MQTT-1.5.4-2: User Property"),
        (PublishProperties(user_property=(("", "\0"),)), "MQTT-1.5.4-2: User Property"),
        (PublishProperties(user_property=(("\ud800", ""),)), "MQTT-1.5.4-1"),
        (PublishProperties(user_property=(("", "x" * 65536),)), "MQTT 5 section 1.5"),
    ]:
        with subtests.test(properties=properties, why=why), pytest.raises(MalformedPacket, match=why):
            encode_properties(PacketType.PUBLISH, properties)
