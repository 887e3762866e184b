"""Conversion between publications of the bridge and those of a link: properties, trusted properties, and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.link.outbox import CLIENT_ID, HOPS, encode, received, to_properties
from bridge.link.state import Limits, PublicationRefusal
from bridge.mqtt.packets import Publish, PublishProperties
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import MalformedPacket
from bridge.telemetry.message import Publication, Received, with_values
from tests.helpers.publications import publication_of_fields

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)
topic_names = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), max_size=200)
names = text.filter(lambda name: name not in (HOPS, CLIENT_ID))
publications = st.builds(
    publication_of_fields,
    topic=topic_names.filter(bool),
    payload=st.binary(max_size=200),
    qos=st.integers(0, 2),
    retain=st.booleans(),
    client_id=text,
    expiry=st.none() | st.integers(0, 0xFFFFFFFF).map(float),
    response_topic=st.none() | topic_names,
    correlation_data=st.none() | st.binary(max_size=200),
    content_type=st.none() | text,
    payload_format_indicator=st.none() | st.integers(0, 1),
    user_property=st.lists(st.tuples(names, text), max_size=5).map(tuple),
    hops=st.lists(text.filter(lambda hop: hop and "," not in hop), max_size=3).map(tuple),
)


def sent(publication: Publication, version_5: bool = True, dup: bool = False) -> Publish:
    """Return the PUBLISH that a broker receives."""
    encoded = encode(publication, 7, dup, version_5, Limits())
    assert isinstance(encoded, bytes)
    (packet,) = Decoder(server=False, protocol_level=5 if version_5 else 4).feed(encoded)
    assert isinstance(packet, Publish)
    return packet


@given(publications, st.booleans())
def test_a_sent_publication_is_received_unchanged(publication: Publication, dup: bool) -> None:
    publication.packet_id = 7 if publication.qos else 0
    back = received(sent(publication, dup=dup), "", 3, True)
    assert back == Received(publication, publication.qos, publication.packet_id, dup and publication.qos > 0, 3)


@given(publications)
def test_mqtt_3_1_1_has_no_properties(publication: Publication) -> None:
    back = received(sent(publication, version_5=False), "link", 1, True).publication
    assert back == Publication(
        topic=publication.topic,
        payload=publication.payload,
        qos=publication.qos,
        retain=publication.retain,
        packet_id=7 if publication.qos else 0,
        client_id="link",
    )


def test_untrusted_publishers_cannot_set_clients_and_mappings() -> None:
    forged = publication_of_fields(
        topic="t", payload=b"", client_id="boss", hops=("MQB1/orders",), users={"site": "1"}, expiry=2.0
    )
    read = received(sent(forged), "link", 1, False).publication
    assert (read.client_id, read.hops, read.user_properties, read.expiry) == ("link", (), {"site": "1"}, 2.0)


@pytest.mark.parametrize(
    ("expiry", "seconds"), [(0.0, 0), (0.1, 0), (0.2, 1), (2.0, 2), (2.01, 3), (-5.0, 0), (1e12, 0xFFFFFFFF)]
)
def test_expiry_is_sent_in_whole_seconds(expiry: float, seconds: int) -> None:
    properties = to_properties(Publication(topic="t", payload=b"", expiry=expiry))
    assert properties.message_expiry_interval == seconds


def test_the_links_own_names_are_not_taken_from_the_properties() -> None:
    """Otherwise a publication with these properties would have two origins."""
    publication = publication_of_fields(
        topic="t", payload=b"", client_id="c", users={CLIENT_ID: "x", HOPS: "y", "z": "1"}
    )
    assert to_properties(publication).user_property == (("z", "1"), (CLIENT_ID, "c"))
    assert publication.user_properties[HOPS] == "y"


@pytest.mark.parametrize(("hops", "mappings"), [("", ()), ("a/b", ("a/b",)), ("a/b,c/d", ("a/b", "c/d"))])
def test_hops_are_separated_by_commas(hops: str, mappings: tuple[str, ...]) -> None:
    packet = Publish("t", b"", properties=PublishProperties(user_property=((HOPS, hops),)))
    assert received(packet, "link", 1, True).publication.hops == mappings


def test_all_values_of_a_repeated_name_are_sent_and_the_last_one_applies() -> None:
    # The Subscription Identifier has no meaning for the bridge, and is ignored.
    pairs = (("a", "1"), ("b", "x"), ("a", "2"))
    sent_properties = PublishProperties(subscription_identifier=(1, 300), user_property=(*pairs, (HOPS, "q/m")))
    read = received(Publish("t", b"", properties=sent_properties), "link", 1, True).publication
    assert (read.user_properties, read.client_id, read.hops) == ({"a": "2", "b": "x"}, "link", ("q/m",))
    assert to_properties(read).user_property == (*pairs, (CLIENT_ID, "link"), (HOPS, "q/m"))


@pytest.mark.parametrize(
    ("values", "pairs"),
    [
        ({"a": "2", "b": "x"}, (("a", "1"), ("b", "x"), ("a", "2"))),
        ({"a": "3", "b": "x"}, (("b", "x"), ("a", "3"))),
        ({"c": "y"}, (("a", "1"), ("b", "x"), ("a", "2"), ("c", "y"))),
        ({}, (("a", "1"), ("b", "x"), ("a", "2"))),
    ],
)
def test_a_property_of_the_mapping_replaces_all_values(
    values: dict[str, str], pairs: tuple[tuple[str, str], ...]
) -> None:
    assert with_values((("a", "1"), ("b", "x"), ("a", "2")), values) == pairs
    assert with_values((("a", "1"), ("b", "x")), {"a": "3", "c": "y"}) == (("a", "3"), ("b", "x"), ("c", "y"))


def test_a_topic_alias_is_rejected() -> None:
    with pytest.raises(MalformedPacket, match=r"MQTT-3\.3\.2-11: Topic Alias is 3"):
        received(Publish("t", b"", properties=PublishProperties(topic_alias=3)), "link", 1, True)


@pytest.mark.parametrize(("version_5", "size"), [(True, 18), (False, 17)])
def test_the_maximum_packet_size_of_the_broker(version_5: bool, size: int) -> None:
    publication = Publication(topic="t/1", payload=b"x" * 8, qos=1)
    limits = Limits(maximum_packet_size=size)
    assert len(encode(publication, 7, False, version_5, limits)) == size
    publication.payload += b"x"
    assert encode(publication, 7, False, version_5, limits) == PublicationRefusal(
        0x95, f"Packet too large: {size + 1} bytes, the broker accepts {size}"
    )
