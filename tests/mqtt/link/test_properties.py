"""The properties of PUBLISH: paho's Properties say what is right."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bridge.mapping.publication import Publication
from bridge.mqtt.link.properties import CLIENT_ID, HOPS, decode_properties, encode_properties
from bridge.wire.mqtt import MalformedPacket

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)
names = text.filter(lambda name: name not in (HOPS, CLIENT_ID))
publications = st.builds(
    Publication,
    topic=st.just("t"),
    payload=st.just(b""),
    client_id=text,
    expiry=st.none() | st.integers(0, 0xFFFFFFFF).map(float),
    response_topic=text,
    correlation_data=st.binary(max_size=200),
    content_type=text,
    payload_format=st.none() | st.integers(0, 1),
    properties=st.dictionaries(names, text, max_size=5),
    hops=st.lists(text.filter(lambda hop: hop and "," not in hop), max_size=3).map(tuple),
)


def unpacked(encoded: bytes) -> Any:
    properties: Any = Properties(PacketTypes.PUBLISH)
    _, length = properties.unpack(encoded)
    assert length == len(encoded)
    return properties


@given(publications)
def test_paho_reads_what_is_written(publication: Publication) -> None:
    read = unpacked(encode_properties(publication))
    users = dict(getattr(read, "UserProperty", []))
    assert users.pop(CLIENT_ID, "") == publication.client_id
    assert users.pop(HOPS, "") == ",".join(publication.hops)
    assert users == publication.properties
    assert getattr(read, "MessageExpiryInterval", None) == publication.expiry
    assert getattr(read, "ContentType", "") == publication.content_type
    assert getattr(read, "PayloadFormatIndicator", None) == publication.payload_format
    assert getattr(read, "ResponseTopic", "") == publication.response_topic
    assert getattr(read, "CorrelationData", b"") == publication.correlation_data


@given(publications)
def test_what_is_written_is_read(publication: Publication) -> None:
    encoded = encode_properties(publication)
    read = Publication(topic="t", payload=b"")
    assert decode_properties(b"x" + encoded + b"payload", 1, read) == 1 + len(encoded)
    assert read == publication


def test_publishers_that_are_not_trusted_say_nothing_of_clients_and_mappings() -> None:
    forged = Publication(
        topic="t", payload=b"", client_id="boss", hops=("MQB1/orders",), properties={"site": "1"}, expiry=2.0
    )
    encoded = encode_properties(forged)
    read = Publication(topic="t", payload=b"", client_id="link")
    assert decode_properties(encoded, 0, read, trusted=False) == len(encoded)
    assert (read.client_id, read.hops, read.properties, read.expiry) == ("link", (), {"site": "1"}, 2.0)


@given(st.binary(max_size=60))
def test_whatever_comes_is_read_or_malformed(encoded: bytes) -> None:
    """Nothing else is raised, and nothing is read behind the end."""
    with contextlib.suppress(MalformedPacket):
        assert decode_properties(encoded, 0, Publication(topic="t", payload=b"")) <= len(encoded)


@pytest.mark.parametrize(
    ("expiry", "seconds"), [(0.0, 0), (0.1, 1), (2.0, 2), (2.01, 3), (-5.0, 0), (1e12, 0xFFFFFFFF)]
)
def test_expiry_in_whole_seconds(expiry: float, seconds: int) -> None:
    encoded = encode_properties(Publication(topic="t", payload=b"", expiry=expiry))
    assert unpacked(encoded).MessageExpiryInterval == seconds


def test_the_links_own_names_are_not_taken_from_the_properties() -> None:
    """A publication that carries them as properties of its own would tell two origins."""
    publication = Publication(topic="t", payload=b"", client_id="c", properties={CLIENT_ID: "x", HOPS: "y", "z": "1"})
    assert unpacked(encode_properties(publication)).UserProperty == [("z", "1"), (CLIENT_ID, "c")]


def test_of_a_name_that_comes_twice_the_last_counts() -> None:
    properties: Any = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("a", "1"), ("a", "2")]
    # Of no meaning to the bridge, and passed over.
    properties.SubscriptionIdentifier = [1, 300]
    read = Publication(topic="t", payload=b"", client_id="link")
    decode_properties(bytes(properties.pack()), 0, read)
    assert (read.properties, read.client_id, read.hops) == ({"a": "2"}, "link", ())


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        (b"", "ends within the length"),
        (b"\x05\x26", "ends within its properties"),
        (b"\x03\x23\x00\x01", "Topic Alias"),
        (b"\x02\x11\x00", "none of PUBLISH"),
        (b"\x03\x02\x00\x00", "longer than all"),
        (b"\x02\x03\x00", "ends within a property"),
        (b"\x04\x03\x00\x01\xff", "not UTF-8"),
        (b"\x04\x09\x00\x02\xff", "ends within a property"),
        (b"\x02\x0b\xff", "longer than all"),
        (b"\x01\x01", "longer than all"),
    ],
)
def test_malformed_properties(encoded: bytes, why: str) -> None:
    with pytest.raises(MalformedPacket, match=why):
        decode_properties(encoded, 0, Publication(topic="t", payload=b""))
