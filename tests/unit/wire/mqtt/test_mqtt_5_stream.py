"""Round trips of all packets of MQTT 5, however the stream is cut; and streams of rubbish."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Will,
)
from bridge.mqtt.properties import STRUCTS
from bridge.mqtt.property_table import Place
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import FROM_CLIENT, FROM_SERVER, OF_PACKET
from bridge.mqtt.writer import encode
from tests.helpers.mqtt_property_strategies import of_place
from tests.helpers.mqtt_streams import (
    cut,
    filters,
    levels_of_service,
    message_ids,
    payloads,
    read,
    strings,
    topics,
    words,
)

Strategy = st.SearchStrategy[Any]
maybe = st.booleans()


def properties(place: Place) -> Strategy:
    """Properties, of which none are None."""
    return st.none() | of_place(place).map(lambda some: None if some == STRUCTS[place]() else some)


def code(packet_type: PacketType) -> Strategy:
    return st.sampled_from(sorted(OF_PACKET[packet_type])).map(int)


def with_method(some: Any) -> bool:
    return some is None or some.authentication_data is None or some.authentication_method is not None


def acknowledgements() -> Strategy:
    return st.one_of(
        st.builds(Puback, message_ids, code(PacketType.PUBACK), properties(PacketType.PUBACK)),
        st.builds(Pubrec, message_ids, code(PacketType.PUBREC), properties(PacketType.PUBREC)),
        st.builds(Pubrel, message_ids, st.just(False), code(PacketType.PUBREL), properties(PacketType.PUBREL)),
        st.builds(Pubcomp, message_ids, code(PacketType.PUBCOMP), properties(PacketType.PUBCOMP)),
    )


def publications(server: bool) -> Strategy:
    def whole(packet: Publish) -> bool:
        said = packet.properties
        return (packet.topic != "" or (said is not None and said.topic_alias is not None)) and not (
            server and said is not None and (said.subscription_identifier or said.response_topic == "")
        )

    named, said = topics | st.just(""), properties(PacketType.PUBLISH)
    return st.one_of(
        st.builds(Publish, named, payloads, st.just(0), maybe, st.just(False), st.just(0), said),
        st.builds(Publish, named, payloads, st.integers(1, 2), maybe, maybe, message_ids, said),
        # Most have none: those are read in the loop.
        st.builds(Publish, topics, payloads, st.integers(1, 2), maybe, maybe, message_ids),
    ).filter(whole)


def disconnects(table: Any, session_expiry: bool) -> Strategy:
    return st.builds(
        Disconnect,
        st.sampled_from(sorted(table[PacketType.DISCONNECT])).map(int),
        properties(PacketType.DISCONNECT).filter(
            lambda said: session_expiry or said is None or said.session_expiry_interval is None
        ),
    )


def auths(table: Any) -> Strategy:
    said = of_place(PacketType.AUTH).filter(lambda said: said.authentication_method is not None)
    return st.builds(Auth, st.sampled_from(sorted(table[PacketType.AUTH])).map(int), said)


def subscribes() -> Strategy:
    options = st.builds(SubscriptionOptions, maybe, maybe, st.integers(0, 2))
    one = st.tuples(filters | st.just("$share/g/a"), levels_of_service, options).filter(
        lambda one: not (one[0].startswith("$share/") and one[2].no_local)
    )
    return st.builds(
        lambda message_id, rows, said: Subscribe(
            message_id,
            tuple((topic, qos) for topic, qos, _ in rows),
            False,
            tuple(option for *_, option in rows),
            said,
        ),
        message_ids,
        st.lists(one, min_size=1, max_size=4),
        properties(PacketType.SUBSCRIBE),
    )


wills = st.none() | st.builds(Will, topics, st.binary(max_size=200), levels_of_service, maybe, properties("WILL")).filter(
    lambda will: will.properties is None or will.properties.response_topic != ""
)
connects = st.builds(
    Connect,
    strings,
    st.just("MQTT"),
    st.just(5),
    maybe,
    words,
    wills,
    st.none() | strings,
    st.none() | st.binary(max_size=20),
    properties(PacketType.CONNECT).filter(with_method),
)
some_filters = st.lists(filters, min_size=1, max_size=4).map(tuple)
to_server = st.one_of(
    publications(server=True),
    acknowledgements(),
    connects,
    subscribes(),
    st.builds(Unsubscribe, message_ids, some_filters, st.just(False), properties(PacketType.UNSUBSCRIBE)),
    st.just(Pingreq()),
    disconnects(FROM_CLIENT, session_expiry=True),
    auths(FROM_CLIENT),
)


def codes(packet_type: PacketType) -> Strategy:
    return st.lists(code(packet_type), min_size=1, max_size=4).map(tuple)


to_client = st.one_of(
    publications(server=False),
    acknowledgements(),
    st.builds(
        Connack,
        code(PacketType.CONNACK),
        st.just(False),
        properties(PacketType.CONNACK).filter(with_method),
    ),
    st.just(Connack(0, True)),
    st.builds(Suback, message_ids, codes(PacketType.SUBACK), properties(PacketType.SUBACK)),
    st.builds(Unsuback, message_ids, codes(PacketType.UNSUBACK), properties(PacketType.UNSUBACK)),
    st.just(Pingresp()),
    disconnects(FROM_SERVER, session_expiry=False),
    auths(FROM_SERVER) | st.just(Auth()),
)
conversations = st.one_of(
    st.tuples(st.just(True), st.lists(to_server, max_size=8)),
    st.tuples(st.just(False), st.lists(to_client, max_size=8)),
)


@given(conversations, st.lists(st.integers(0, 1 << 16), max_size=30), st.sampled_from([None, 1, 3]))
def test_round_trip_of_a_stream_cut_anywhere(
    conversation: tuple[bool, list[Packet]], places: list[int], control_packets: int | None
) -> None:
    server, packets = conversation
    decoder = Decoder(server=server, protocol_level=5, control_packets=control_packets)
    decoded: list[Packet] = []
    for piece in cut(b"".join(encode(packet, protocol_level=5) for packet in packets), places):
        decoded += read(decoder, piece, control_packets)
        assert decoder.error is None, str(decoder.error)
    assert decoded == packets


@given(st.one_of(connects, subscribes(), publications(server=True)), st.data())
def test_a_packet_that_ends_too_early(packet: Packet, data: st.DataObject) -> None:
    """It is malformed, or another one; nothing is read behind its end."""
    whole = encode(packet, protocol_level=5)
    decoder = Decoder(protocol_level=5)
    body = whole[1 + sum(byte > 0x7F for byte in whole[1:2]) + 1 :][: data.draw(st.integers(0, 100))]
    found = decoder.feed(whole[:1] + bytes((len(body),)) + body + b"\xc0\x00")
    assert (decoder.error is None) == (len(found) == 2)


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([None, 5]), st.integers(0, 200))
@example(b"\x30\x03\x00\x00\x00", True, 5, 0)
@example(b"\x32\x05\x00\x01a\x00\x01", True, 5, 1)
@example(b"\xf0\x01\x18", False, 5, 1)
def test_rubbish_never_raises_and_reads_the_same_in_two_pieces(
    data: bytes, server: bool, level: int | None, place: int
) -> None:
    check(data, server, level, place)


@given(st.integers(0, 15), st.integers(0, 15), st.binary(max_size=120), st.booleans(), st.integers(0, 100))
def test_packets_of_rubbish_never_raise(first: int, flags: int, body: bytes, server: bool, place: int) -> None:
    check(bytes((first << 4 | flags, len(body))) + body, server, 5, place)
    check(bytes((first << 4 | (2 if first in (6, 8, 10) else 0), len(body))) + body, server, 5, place)


def check(data: bytes, server: bool, level: int | None, place: int) -> None:
    whole = Decoder(server=server, protocol_level=level)
    packets = whole.feed(data)
    pieces = Decoder(server=server, protocol_level=level)
    assert pieces.feed(data[:place]) + pieces.feed(data[place:]) == packets
    assert str(pieces.error) == str(whole.error)
    if whole.error is None:
        # What was read can be written, an acknowledgement with a code that is not its own left out.
        for packet in packets:
            if getattr(packet, "reason_code", 0) in OF_PACKET.get(PacketType[type(packet).__name__.upper()], {0}):
                encode(packet, protocol_level=5)


@given(conversations, st.integers(0, 1 << 16), st.integers(1, 255))
def test_damaged_stream_never_raises(conversation: tuple[bool, list[Packet]], place: int, change: int) -> None:
    server, packets = conversation
    data = bytearray(b"".join(encode(packet, protocol_level=5) for packet in packets) or b"\0")
    data[place % len(data)] ^= change
    whole = Decoder(server=server, protocol_level=5)
    decoded = whole.feed(data)
    bytewise = Decoder(server=server, protocol_level=5)
    assert [packet for byte in data for packet in bytewise.feed(bytes((byte,)))] == decoded
    assert str(bytewise.error) == str(whole.error)


def test_publish_on_both_sides_of_the_length_limits(subtests: pytest.Subtests) -> None:
    for qos in [0, 1, 2]:
        for size in [0, 1, 118, 119, 200, 16_375, 16_385, 2_097_152]:
            with subtests.test(qos=qos, size=size):
                packet = Publish("limits/5", bytes(size), qos, message_id=7 if qos else 0)
                data = encode(packet, protocol_level=5)
                for server in (True, False):
                    decoder = Decoder(server=server, protocol_level=5)
                    # Twice: the second finds its topic known.
                    assert decoder.feed(data * 2) == [packet, packet]
                    assert decoder.error is None
