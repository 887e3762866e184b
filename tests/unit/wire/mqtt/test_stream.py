"""Round trips of all packets, in both byte orders, however the stream is cut; and streams of rubbish."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.mqtt.packets import (
    ByteOrder,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Unsubscribe,
    Will,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.topics import MAX_CACHED_BYTES, MAX_CACHED_TOPICS, TOPIC_CACHE
from bridge.mqtt.writer import encode
from tests.helpers.mqtt_streams import byte_orders, conversations, cut, read


@given(
    conversations,
    byte_orders,
    st.lists(st.integers(0, 1 << 16), max_size=30),
    st.sampled_from([bytes, bytearray]),
    st.sampled_from([None, 1, 3]),
)
def test_round_trip_of_a_stream_cut_anywhere(
    conversation: tuple[bool, list[Packet]],
    byte_order: ByteOrder,
    places: list[int],
    buffer_type: type[bytes],
    control_packets: int | None,
) -> None:
    server, packets = conversation
    decoder = Decoder(server=server, protocol_level=4, byte_order=byte_order, control_packets=control_packets)
    decoded: list[Packet] = []
    data = b"".join(encode(packet, byte_order) for packet in packets)
    for piece in cut(data, places):
        decoded += read(decoder, buffer_type(piece), control_packets)
        assert decoder.error is None, str(decoder.error)
    assert decoded == packets


@given(conversations, byte_orders)
def test_round_trip_at_once_and_by_memoryview(conversation: tuple[bool, list[Packet]], byte_order: ByteOrder) -> None:
    server, packets = conversation
    data = b"".join(encode(packet, byte_order) for packet in packets)
    decoder = Decoder(server=server, byte_order=byte_order)
    received = bytearray(data)
    decoded = decoder.feed(memoryview(received))
    # Whoever reuses its receive buffer must not change packets already returned.
    received[:] = bytes(len(received))
    assert decoded == packets
    for packet in decoded:
        if isinstance(packet, Publish):
            assert type(packet.payload) is bytes


def test_every_split_of_one_of_each_packet() -> None:
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
        packets += (Publish(f"t/{number % 7}", b"%d" % number, 1, message_id=number), Puback(number), Pingreq())
    decoder = Decoder()
    assert decoder.feed(b"".join(map(encode, packets))) == packets
    assert decoder.error is None


@given(st.binary(max_size=200), st.booleans(), st.sampled_from([None, 3, 4]), byte_orders, st.integers(0, 200))
@example(b"\x30\x02\x00", True, None, "big", 0)
@example(b"\x32\x04\x00\x02a", True, None, "big", 1)
def test_rubbish_never_raises_and_reads_the_same_in_two_pieces(
    data: bytes, server: bool, level: int | None, byte_order: ByteOrder, place: int
) -> None:
    whole = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    packets = whole.feed(data)
    pieces = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    assert pieces.feed(data[:place]) + pieces.feed(data[place:]) == packets
    assert str(pieces.error) == str(whole.error)
    if whole.error is not None:
        assert whole.feed(b"\x40\x02\x00\x01") == []


@given(conversations, byte_orders, st.integers(0, 1 << 16), st.integers(1, 255), st.sampled_from([3, 4]))
def test_damaged_stream_never_raises(
    conversation: tuple[bool, list[Packet]], byte_order: ByteOrder, place: int, change: int, level: int
) -> None:
    server, packets = conversation
    data = bytearray(b"".join(encode(packet, byte_order) for packet in packets) or b"\0")
    data[place % len(data)] ^= change
    whole = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    decoded = whole.feed(data)
    bytewise = Decoder(server=server, protocol_level=level, byte_order=byte_order)
    assert [packet for byte in data for packet in bytewise.feed(bytes((byte,)))] == decoded
    assert str(bytewise.error) == str(whole.error)


def test_large_packet_in_small_pieces_costs_its_size_not_its_square() -> None:
    packet = Publish("a/b", bytes(10_000_000), 1, message_id=7)
    data = encode(packet)
    decoder = Decoder()
    begin = time.process_time()
    decoded = [found for place in range(0, len(data), 1000) for found in decoder.feed(data[place : place + 1000])]
    took = time.process_time() - begin
    assert decoded == [packet]
    # 10,000 pieces joined anew each time would copy 50 GB; about 0.02 s is normal.
    assert took < 2


def test_topic_cache_is_bounded_in_number_and_size() -> None:
    decoder = Decoder()
    for number in range(MAX_CACHED_TOPICS + 10):
        assert decoder.feed(encode(Publish(f"bound/{number}", b""))) == [Publish(f"bound/{number}", b"")]
        assert len(TOPIC_CACHE) <= MAX_CACHED_TOPICS
    longest, too_long = "x" * MAX_CACHED_BYTES, "x" * (MAX_CACHED_BYTES + 1)
    for topic in (longest, too_long) * 2:
        assert decoder.feed(encode(Publish(topic, b"1"))) == [Publish(topic, b"1")]
    assert longest.encode() in TOPIC_CACHE
    assert too_long.encode() not in TOPIC_CACHE


def test_topic_is_the_same_object_each_time() -> None:
    # Routing by topic then compares identities, and hashes each name once.
    data = encode(Publish("same/object", b""))
    first, second = Decoder().feed(data) + Decoder().feed(data)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert first.topic is second.topic


@pytest.mark.parametrize("topic", ["a/b", "ü/\U0001f600", "x" * 65_535])
def test_topics_of_any_length(topic: str) -> None:
    packet = Publish(topic, b"1", 2, message_id=9)
    assert Decoder().feed(encode(packet) * 2) == [packet, packet]
