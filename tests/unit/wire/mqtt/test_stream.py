"""Round trips of all packets of all protocol levels, with streams divided anywhere, and streams of random bytes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.mqtt.packets import (
    Auth,
    ByteOrder,
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
from bridge.mqtt.topics import MAX_CACHED_BYTES, MAX_CACHED_TOPICS, TOPIC_CACHE
from bridge.mqtt.writer import encode
from tests.helpers.mqtt_property_strategies import of_place
from tests.helpers.mqtt_streams import (
    byte_orders,
    conversations,
    cut,
    filters,
    levels_of_service,
    packet_ids,
    payloads,
    read,
    strings,
    topics,
    words,
)

Strategy = st.SearchStrategy[Any]
maybe = st.booleans()


def properties(place: Place) -> Strategy:
    """Return properties, or None if there are none."""
    return st.none() | of_place(place).map(lambda some: None if some == STRUCTS[place]() else some)


def code(packet_type: PacketType) -> Strategy:
    return st.sampled_from(sorted(OF_PACKET[packet_type])).map(int)


def with_method(some: Any) -> bool:
    return some is None or some.authentication_data is None or some.authentication_method is not None


def acknowledgements() -> Strategy:
    return st.one_of(
        st.builds(Puback, packet_ids, code(PacketType.PUBACK), properties(PacketType.PUBACK)),
        st.builds(Pubrec, packet_ids, code(PacketType.PUBREC), properties(PacketType.PUBREC)),
        st.builds(Pubrel, packet_ids, st.just(False), code(PacketType.PUBREL), properties(PacketType.PUBREL)),
        st.builds(Pubcomp, packet_ids, code(PacketType.PUBCOMP), properties(PacketType.PUBCOMP)),
    )


def publications(server: bool) -> Strategy:
    def whole(packet: Publish) -> bool:
        properties_sent = packet.properties
        return (
            packet.topic != "" or (properties_sent is not None and properties_sent.topic_alias is not None)
        ) and not (
            server
            and properties_sent is not None
            and (properties_sent.subscription_identifier or properties_sent.response_topic == "")
        )

    named, properties_sent = topics | st.just(""), properties(PacketType.PUBLISH)
    return st.one_of(
        st.builds(Publish, named, payloads, st.just(0), maybe, st.just(False), st.just(0), properties_sent),
        st.builds(Publish, named, payloads, st.integers(1, 2), maybe, maybe, packet_ids, properties_sent),
        # Most packets have none: those are read in the loop.
        st.builds(Publish, topics, payloads, st.integers(1, 2), maybe, maybe, packet_ids),
    ).filter(whole)


def disconnects(table: Any, session_expiry: bool) -> Strategy:
    return st.builds(
        Disconnect,
        st.sampled_from(sorted(table[PacketType.DISCONNECT])).map(int),
        properties(PacketType.DISCONNECT).filter(
            lambda properties_sent: (
                session_expiry or properties_sent is None or properties_sent.session_expiry_interval is None
            )
        ),
    )


def auths(table: Any) -> Strategy:
    properties_sent = of_place(PacketType.AUTH).filter(
        lambda properties_sent: properties_sent.authentication_method is not None
    )
    return st.builds(Auth, st.sampled_from(sorted(table[PacketType.AUTH])).map(int), properties_sent)


def subscribes() -> Strategy:
    options = st.builds(SubscriptionOptions, maybe, maybe, st.integers(0, 2))
    row = st.tuples(filters | st.just("$share/g/a"), levels_of_service, options).filter(
        lambda row: not (row[0].startswith("$share/") and row[2].no_local)
    )
    return st.builds(
        lambda packet_id, rows, properties_sent: Subscribe(
            packet_id,
            tuple((topic, qos) for topic, qos, _ in rows),
            False,
            tuple(option for *_, option in rows),
            properties_sent,
        ),
        packet_ids,
        st.lists(row, min_size=1, max_size=4),
        properties(PacketType.SUBSCRIBE),
    )


wills = st.none() | st.builds(
    Will, topics, st.binary(max_size=200), levels_of_service, maybe, properties("WILL")
).filter(lambda will: will.properties is None or will.properties.response_topic != "")
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
    st.builds(Unsubscribe, packet_ids, some_filters, st.just(False), properties(PacketType.UNSUBSCRIBE)),
    st.just(Pingreq()),
    disconnects(FROM_CLIENT, session_expiry=True),
    auths(FROM_CLIENT),
)


def codes(packet_type: PacketType) -> Strategy:
    return st.lists(code(packet_type), min_size=1, max_size=4).map(tuple)


to_client = st.one_of(
    publications(server=False),
    acknowledgements(),
    st.builds(Connack, code(PacketType.CONNACK), st.just(False), properties(PacketType.CONNACK).filter(with_method)),
    st.just(Connack(0, True)),
    st.builds(Suback, packet_ids, codes(PacketType.SUBACK), properties(PacketType.SUBACK)),
    st.builds(Unsuback, packet_ids, codes(PacketType.UNSUBACK), properties(PacketType.UNSUBACK)),
    st.just(Pingresp()),
    disconnects(FROM_SERVER, session_expiry=False),
    auths(FROM_SERVER) | st.just(Auth()),
)
conversations_of_mqtt_5 = st.one_of(
    st.tuples(st.just(True), st.lists(to_server, max_size=8)),
    st.tuples(st.just(False), st.lists(to_client, max_size=8)),
)

#: Protocol level, byte order of words, whether to the server, packets.
Stream = tuple[int, ByteOrder, tuple[bool, list[Packet]]]
streams: st.SearchStrategy[Stream] = st.one_of(
    st.tuples(st.just(4), byte_orders, conversations), st.tuples(st.just(5), st.just("big"), conversations_of_mqtt_5)
)


def written(stream: Stream) -> bytes:
    level, byte_order, (_, packets) = stream
    return b"".join(encode(packet, byte_order, protocol_level=level) for packet in packets)


@given(
    streams,
    st.lists(st.integers(0, 1 << 16), max_size=30),
    st.sampled_from([bytes, bytearray]),
    st.sampled_from([None, 1, 3]),
)
def test_round_trip_of_a_stream_divided_anywhere(
    stream: Stream, places: list[int], buffer_type: type[bytes], control_packets: int | None
) -> None:
    level, byte_order, (server, packets) = stream
    decoder = Decoder(server=server, protocol_level=level, byte_order=byte_order, control_packets=control_packets)
    decoded: list[Packet] = []
    for piece in cut(written(stream), places):
        decoded += read(decoder, buffer_type(piece), control_packets)
        assert decoder.error is None, str(decoder.error)
    assert decoded == packets


@given(streams)
def test_round_trip_at_once_and_with_memoryview(stream: Stream) -> None:
    level, byte_order, (server, packets) = stream
    decoder = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    received = bytearray(written(stream))
    decoded = decoder.feed(memoryview(received))
    # Reusing a receive buffer must not change packets that were already returned.
    received[:] = bytes(len(received))
    assert decoded == packets
    for packet in decoded:
        if isinstance(packet, Publish):
            assert type(packet.payload) is bytes


@given(st.one_of(connects, subscribes(), publications(server=True)), st.data())
def test_a_truncated_packet(packet: Packet, data: st.DataObject) -> None:
    """It is malformed, or another packet. Nothing after its end is read."""
    whole = encode(packet, protocol_level=5)
    decoder = Decoder(protocol_level=5)
    body = whole[1 + sum(byte > 0x7F for byte in whole[1:2]) + 1 :][: data.draw(st.integers(0, 100))]
    packets = decoder.feed(whole[:1] + bytes((len(body),)) + body + b"\xc0\x00")
    assert (decoder.error is None) == (len(packets) == 2)


def test_each_division_of_one_of_each_packet() -> None:
    packets: list[Packet] = [
        Connect("c", keep_alive=5, will=Will("w", b"bye", 1), user_name="u", password=b"p"),
        Publish("a/b", b"zero"),
        Publish("a/b", b"one" * 50, 1, True, True, 258),
        Publish("a/b", b"", 2, False, False, 65_535),
        Puback(1),
        Pubrec(2),
        Pubrel(3),
        Pubcomp(4),
        Subscribe(5, (("a/#", 2), ("+", 0))),
        Unsubscribe(10, ("a/b", "c/d")),
        Pingreq(),
        Disconnect(),
    ]
    data = b"".join(map(encode, packets))
    for place in range(len(data) + 1):
        decoder = Decoder()
        assert decoder.feed(data[:place]) + decoder.feed(data[place:]) == packets
        assert decoder.error is None
    decoder = Decoder()
    assert [packet for byte in data for packet in decoder.feed(bytes((byte,)))] == packets


def test_packets_are_returned_as_soon_as_complete() -> None:
    decoder = Decoder()
    data = encode(Publish("a/b", b"hi"))
    assert decoder.feed(data + data[:-1]) == [Publish("a/b", b"hi")]
    assert decoder.feed(b"") == []
    assert decoder.feed(data[-1:] + data) == [Publish("a/b", b"hi")] * 2


def test_thousands_of_packets_in_one_buffer() -> None:
    packets: list[Packet] = []
    for number in range(1, 2001):
        packets += (Publish(f"t/{number % 7}", b"%d" % number, 1, packet_id=number), Puback(number), Pingreq())
    decoder = Decoder()
    assert decoder.feed(b"".join(map(encode, packets))) == packets
    assert decoder.error is None


def check_rubbish(data: bytes, server: bool, level: int | None, byte_order: ByteOrder, place: int) -> None:
    whole = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    packets = whole.feed(data)
    pieces = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    assert pieces.feed(data[:place]) + pieces.feed(data[place:]) == packets
    assert str(pieces.error) == str(whole.error)
    if whole.error is not None:
        assert whole.feed(b"\x40\x02\x00\x01") == []
    elif level == 5:
        # A packet that was read can be written, except for an acknowledgement with a code of another packet.
        for packet in packets:
            if getattr(packet, "reason_code", 0) in OF_PACKET.get(PacketType[type(packet).__name__.upper()], {0}):
                encode(packet, protocol_level=5)


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([None, 3, 4, 5]), byte_orders, st.integers(0, 200))
@example(b"\x30\x02\x00", True, None, "big", 0)
@example(b"\x32\x04\x00\x02a", True, None, "big", 1)
@example(b"\x30\x03\x00\x00\x00", True, 5, "big", 0)
@example(b"\x32\x05\x00\x01a\x00\x01", True, 5, "big", 1)
@example(b"\xf0\x01\x18", False, 5, "big", 1)
def test_random_bytes_never_raise_and_are_read_the_same_in_two_pieces(
    data: bytes, server: bool, level: int | None, byte_order: ByteOrder, place: int
) -> None:
    check_rubbish(data, server, level, byte_order, place)


@given(st.integers(0, 15), st.integers(0, 15), st.binary(max_size=120), st.booleans(), st.integers(0, 100))
def test_packets_of_random_bytes_never_raise(first: int, flags: int, body: bytes, server: bool, place: int) -> None:
    for bits in (flags, 2 if first in (6, 8, 10) else 0):
        check_rubbish(bytes((first << 4 | bits, len(body))) + body, server, 5, "big", place)


@given(streams, st.integers(0, 1 << 16), st.integers(1, 255), st.booleans())
def test_a_damaged_stream_never_raises(stream: Stream, place: int, change: int, older: bool) -> None:
    level, byte_order, (server, _) = stream
    level = 3 if older and level == 4 else level
    data = bytearray(written(stream) or b"\0")
    data[place % len(data)] ^= change
    whole = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    decoded = whole.feed(data)
    bytewise = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    assert [packet for byte in data for packet in bytewise.feed(bytes((byte,)))] == decoded
    assert str(bytewise.error) == str(whole.error)


def test_a_large_packet_in_small_pieces_costs_linear_time() -> None:
    packet = Publish("a/b", bytes(10_000_000), 1, packet_id=7)
    data = encode(packet)
    decoder = Decoder()
    begin = time.process_time()
    decoded = [packet for place in range(0, len(data), 1000) for packet in decoder.feed(data[place : place + 1000])]
    took = time.process_time() - begin
    assert decoded == [packet]
    # Joining 10,000 pieces each time would copy 50 GB. About 0.02 s is normal.
    assert took < 2


def test_the_topic_cache_is_limited_in_number_and_size() -> None:
    decoder = Decoder()
    for number in range(MAX_CACHED_TOPICS + 10):
        assert decoder.feed(encode(Publish(f"bound/{number}", b""))) == [Publish(f"bound/{number}", b"")]
        assert len(TOPIC_CACHE) <= MAX_CACHED_TOPICS
    longest, too_long = "x" * MAX_CACHED_BYTES, "x" * (MAX_CACHED_BYTES + 1)
    for topic in (longest, too_long) * 2:
        assert decoder.feed(encode(Publish(topic, b"1"))) == [Publish(topic, b"1")]
    assert longest.encode() in TOPIC_CACHE
    assert too_long.encode() not in TOPIC_CACHE


def test_a_topic_is_the_same_object_each_time() -> None:
    # Routing by topic then compares identities, and computes each hash once.
    data = encode(Publish("same/object", b""))
    first, second = Decoder().feed(data) + Decoder().feed(data)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.topic is second.topic


@pytest.mark.parametrize("topic", ["a/b", "ü/\U0001f600", "x" * 65_535])
def test_topics_of_any_length(topic: str) -> None:
    packet = Publish(topic, b"1", 2, packet_id=9)
    assert Decoder().feed(encode(packet) * 2) == [packet, packet]


def test_publish_below_and_above_the_length_limits(subtests: pytest.Subtests) -> None:
    for qos in [0, 1, 2]:
        for size in [0, 1, 118, 119, 200, 16_375, 16_385, 2_097_152]:
            with subtests.test(qos=qos, size=size):
                packet = Publish("limits/5", bytes(size), qos, packet_id=7 if qos else 0)
                data = encode(packet, protocol_level=5)
                for server in (True, False):
                    decoder = Decoder(server=server, protocol_level=5)
                    # Twice: the topic of the second one is known.
                    assert decoder.feed(data * 2) == [packet, packet]
                    assert decoder.error is None
