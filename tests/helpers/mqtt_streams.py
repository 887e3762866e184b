"""Hypothesis strategies for MQTT packets, and helpers that decode streams of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from bridge.mqtt.packets import (
    SUBACK_FAILURE,
    ByteOrder,
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

packet_ids = st.integers(1, 65_535)
words = st.integers(0, 65_535)
levels_of_service = st.integers(0, 2)
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
strings = st.text(characters, max_size=20)
topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=20)
filters = topics | st.sampled_from(["#", "+", "+/+", "a/+/b", "/#"])
payloads = st.one_of(st.binary(max_size=20), st.builds(bytes, st.sampled_from([100, 127, 128, 300, 20_000])))
acknowledged = st.builds(Publish, topics, payloads, st.integers(1, 2), st.booleans(), st.booleans(), packet_ids)
either_way = st.one_of(
    st.builds(Publish, topics, payloads, st.just(0), st.booleans()),
    acknowledged,
    st.builds(Puback, packet_ids),
    st.builds(Pubrec, packet_ids),
    st.builds(Pubrel, packet_ids),
    st.builds(Pubcomp, packet_ids),
)
wills = st.none() | st.builds(Will, topics, st.binary(max_size=200), levels_of_service, st.booleans())
credentials = st.one_of(
    st.just((None, None)), st.tuples(strings, st.none()), st.tuples(strings, st.binary(max_size=20))
)
connects = st.builds(
    lambda client_id, clean, keep_alive, will, login: Connect(client_id, "MQTT", 4, clean, keep_alive, will, *login),
    strings,
    st.booleans(),
    words,
    wills,
    credentials,
)
to_server = either_way | st.one_of(
    connects,
    st.builds(Subscribe, packet_ids, st.lists(st.tuples(filters, levels_of_service), min_size=1).map(tuple)),
    st.builds(Unsubscribe, packet_ids, st.lists(filters, min_size=1).map(tuple)),
    st.just(Pingreq()),
    st.just(Disconnect()),
)
return_codes = st.lists(st.sampled_from([0, 1, 2, SUBACK_FAILURE]), min_size=1).map(tuple)
to_client = either_way | st.one_of(
    st.builds(Connack, st.integers(0, 5)),
    st.just(Connack(0, True)),
    st.builds(Suback, packet_ids, return_codes),
    st.builds(Unsuback, packet_ids),
    st.just(Pingresp()),
)
byte_orders: st.SearchStrategy[ByteOrder] = st.sampled_from(["big", "little"])
conversations = st.one_of(
    st.tuples(st.just(True), st.lists(to_server, max_size=12)),
    st.tuples(st.just(False), st.lists(to_client, max_size=12)),
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in pairwise(edges)]


def read(decoder: Decoder, data: bytes, control_packets: int | None) -> list[Packet]:
    """Return the result of a decoder for bytes, including those that it did not consume at first."""
    packets = decoder.feed(data)
    while decoder.rest:
        rest, decoder.rest = decoder.rest, b""
        more = decoder.feed(rest)
        control = sum(not isinstance(packet, Publish | Puback | Pubrec | Pubrel | Pubcomp) for packet in more)
        assert control <= (control_packets or 0)
        packets += more
    return packets
