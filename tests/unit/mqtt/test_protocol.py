"""The server side of MQTT on one connection: each packet in each state, iterations, time, and output."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mqtt.connection import BYTES_AT_A_TURN, PACKETS_AT_A_TURN, TRANSITIONS, ConnectionState, ServerProtocol
from bridge.mqtt.packets import (
    Connack,
    ConnackCode,
    Connect,
    Disconnect,
    Disconnected,
    Event,
    Messages,
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
    Unsuback,
    Unsubscribe,
)
from bridge.mqtt.writer import encode
from tests.helpers.connected import connected

PACKETS: dict[PacketType, Packet] = {
    PacketType.CONNECT: Connect("c"),
    PacketType.CONNACK: Connack(ConnackCode.ACCEPTED),
    PacketType.PUBLISH: Publish("t", b"x", 1, False, False, 1),
    PacketType.PUBACK: Puback(1),
    PacketType.PUBREC: Pubrec(1),
    PacketType.PUBREL: Pubrel(1),
    PacketType.PUBCOMP: Pubcomp(1),
    PacketType.SUBSCRIBE: Subscribe(1, (("t", 1),)),
    PacketType.SUBACK: Suback(1, (1,)),
    PacketType.UNSUBSCRIBE: Unsubscribe(1, ("t",)),
    PacketType.UNSUBACK: Unsuback(1),
    PacketType.PINGREQ: Pingreq(),
    PacketType.PINGRESP: Pingresp(),
    PacketType.DISCONNECT: Disconnect(),
}
TO_CLIENT = {PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP}


def in_state(state: ConnectionState) -> ServerProtocol:
    if state is ConnectionState.WAITING_FOR_CONNECT:
        return ServerProtocol(0.0)
    if state is ConnectionState.AUTHENTICATING:
        protocol = ServerProtocol(0.0)
        protocol.receive_data(encode(Connect("c")), 0.0)
        return protocol
    protocol = connected()
    if state is ConnectionState.DISCONNECTING:
        protocol.disconnect()
    elif state is ConnectionState.CLOSED:
        protocol.lose()
    assert protocol.state is state
    return protocol


def specified(state: ConnectionState, packet: PacketType) -> str:
    """Return the result of a packet in a state by MQTT 3.1.1: accepted, waits, ignored, or the violated statement."""
    if state in (ConnectionState.DISCONNECTING, ConnectionState.CLOSED):
        return "ignored"
    if state is ConnectionState.AUTHENTICATING:
        return "waits"  # section 3.1.4
    if packet in TO_CLIENT or packet is PacketType.AUTH:
        return "table 2.1"
    if state is ConnectionState.WAITING_FOR_CONNECT:
        return "accepted" if packet is PacketType.CONNECT else "MQTT-3.1.0-1"
    return "MQTT-3.1.0-2" if packet is PacketType.CONNECT else "accepted"


def events_of(protocol: ServerProtocol, *packets: Packet) -> list[Event]:
    return protocol.receive_data(b"".join(map(encode, packets)), 0.0)


#: a packet of MQTT 5, which has no equivalent in 3.1.1
AUTH = b"\xf0\x00"


@pytest.mark.parametrize("packet", PacketType)
@pytest.mark.parametrize("state", sorted(set(ConnectionState) - {ConnectionState.CHALLENGED}))
def test_each_packet_in_each_state(state: ConnectionState, packet: PacketType) -> None:
    word = specified(state, packet)
    protocol = in_state(state)
    data = AUTH if packet is PacketType.AUTH else encode(PACKETS[packet])
    events = protocol.receive_data(data, 0.0)
    if word == "ignored":
        assert state not in TRANSITIONS and events == [] and not protocol.more
    elif word == "waits":
        assert TRANSITIONS[state][packet] is None and events == [] and not protocol.ended
        protocol.accept(0.0, session_present=False)
        assert [type(event) for event in protocol.events()] == [
            type(event) for event in connected().receive_data(data, 0.0)
        ]
    elif word == "accepted":
        assert isinstance(TRANSITIONS[state][packet], ConnectionState)
        (event,) = events
        if packet is PacketType.DISCONNECT:
            assert event == Disconnected("", packet=Disconnect())
        elif isinstance(event, Messages):
            assert list(event.packets) == [PACKETS[packet]]
        else:
            assert event == PACKETS[packet]
    else:
        cell = TRANSITIONS[state][packet]
        if packet is not PacketType.AUTH:
            assert isinstance(cell, str) and word in cell
        (event,) = events
        assert isinstance(event, Disconnected)
        # The decoder knows which packets a server receives, and rejects it first.
        assert word in event.why or (word == "table 2.1" and event.why.startswith("malformed packet"))
        assert protocol.ended


def test_packets_after_the_end_are_ignored() -> None:
    protocol = connected()
    events = events_of(protocol, Puback(1), Disconnect(), Puback(2))
    assert [type(event) for event in events] == [Messages, Disconnected]
    assert events_of(protocol, Puback(3)) == [] and not protocol.more


def test_packets_before_a_malformed_one_are_processed() -> None:
    protocol = connected()
    messages, end = protocol.receive_data(encode(Puback(1)) + b"\x00\x00", 0.0)
    assert isinstance(messages, Messages) and list(messages.packets) == [Puback(1)]
    assert isinstance(end, Disconnected) and "malformed packet" in end.why


def test_connack_precedes_the_end_caused_by_a_later_packet() -> None:
    protocol = ServerProtocol(0.0)
    assert protocol.receive_data(encode(Connect("c")) + b"\x00\x00", 0.0) == [Connect("c")]
    protocol.accept(0.0, session_present=True)
    assert protocol.data_to_send() == encode(Connack(ConnackCode.ACCEPTED, True))
    (end,) = protocol.events()
    assert isinstance(end, Disconnected)


@given(
    st.lists(
        st.sampled_from([Puback(1), Pingreq(), Publish("t", b"x" * 50), PACKETS[PacketType.SUBSCRIBE]]), max_size=60
    ),
    st.lists(st.integers(1, 200), max_size=40),
)
def test_pieces_of_any_size_cause_the_same_events(packets: list[Packet], sizes: list[int]) -> None:
    data = b"".join(map(encode, packets))
    protocol = connected()
    events: list[Packet] = []
    for size in [*sizes, len(data)]:
        events += flat(protocol, protocol.receive_data(data[:size], 0.0))
        data = data[size:]
    assert events == packets


def flat(protocol: ServerProtocol, events: list[Event]) -> list[Any]:
    """Return all packets of this iteration and of those that are due."""
    flattened: list[Any] = []
    while True:
        for event in events:
            flattened += event.packets if isinstance(event, Messages) else [event]
        if not protocol.more:
            return flattened
        events = protocol.events()


@pytest.mark.parametrize(
    ("packets", "turns"),
    [
        ([Puback(1)] * (PACKETS_AT_A_TURN + 1), [PACKETS_AT_A_TURN, 1]),
        ([PACKETS[PacketType.SUBSCRIBE]] * 60, [50, 10]),  # a filter counts for 20 packets
        ([Pingreq()] * 101, [50, 50, 1]),  # the same as SUBSCRIBE with one filter
        ([Pingreq(), Publish("t", b"x")] * 51, [99, 3]),
        ([Publish("t", bytes(20_000))] * 7, [3, 3, 1]),  # 65,536 bytes
    ],
)
def test_an_iteration_is_limited(packets: list[Packet], turns: list[int]) -> None:
    protocol = connected()
    events = protocol.receive_data(b"".join(map(encode, packets)), 0.0)
    sizes = []
    while True:
        sizes.append(sum(len(event.packets) if isinstance(event, Messages) else 1 for event in events))
        if not protocol.more:
            break
        events = protocol.events()
    assert sizes == turns
    assert sum(sizes) == len(packets)


def test_connect_must_arrive_in_time() -> None:
    protocol = ServerProtocol(5.0, connect_timeout=10.0)
    assert protocol.deadline() == 15.0
    protocol.receive_data(b"\x10", 14.0)
    assert protocol.timeout(15.0) == ""
    assert protocol.timeout(15.5) == "no CONNECT within 10 s"


def test_time_stops_while_connect_is_processed() -> None:
    assert in_state(ConnectionState.AUTHENTICATING).deadline() is None


@pytest.mark.parametrize(
    ("keep_alive", "deadline"), [(0, None), (10, 15.0), pytest.param(65_535, 98_302.5, id="longest")]
)
def test_a_client_may_be_silent_for_one_and_a_half_times_its_keep_alive(
    keep_alive: int, deadline: float | None
) -> None:
    assert connected(keep_alive=keep_alive).deadline() == deadline


def test_packets_and_large_parts_of_them_count_as_activity_and_single_bytes_do_not() -> None:
    protocol = connected(keep_alive=10)
    protocol.receive_data(encode(Pingreq()), 3.0)
    assert protocol.deadline() == 18.0
    long = encode(Publish("t", bytes(BYTES_AT_A_TURN)))
    protocol.receive_data(long[:2_000], 4.0)
    assert protocol.deadline() == 19.0
    protocol.receive_data(long[2_000:2_001], 5.0)
    assert protocol.deadline() == 19.0
    assert "keep-alive is 10 s" in protocol.timeout(19.5)
    protocol.hear(19.5)
    assert protocol.timeout(20.0) == ""


@pytest.mark.parametrize(("level", "present"), [(3, False), (4, True)])
def test_session_present_does_not_exist_in_mqtt_3_1(level: int, present: bool) -> None:
    protocol = ServerProtocol(0.0)
    events_of(protocol, Connect("c", "MQTT" if level == 4 else "MQIsdp", level))
    protocol.accept(0.0, session_present=True)
    assert protocol.data_to_send() == encode(Connack(ConnackCode.ACCEPTED, present))


def test_answers_are_written_in_order_as_one_piece() -> None:
    protocol = connected()
    protocol.answer([(PacketType.PUBACK, 1), (PacketType.PINGRESP, 0), (PacketType.PUBREC, 2), (PacketType.PUBREL, 3)])
    protocol.suback(4, [1, 0x80])
    protocol.unsuback(5)
    expected: list[Packet] = [Puback(1), Pingresp(), Pubrec(2), Pubrel(3), Suback(4, (1, 0x80)), Unsuback(5)]
    assert protocol.data_to_send() == b"".join(map(encode, expected))
    assert protocol.data_to_send() == b""


def test_data_written_before_the_end_is_sent_and_nothing_after_it() -> None:
    protocol = connected()
    protocol.answer([(PacketType.PUBACK, 1)])
    protocol.disconnect()
    protocol.answer([(PacketType.PUBACK, 2)])
    assert protocol.data_to_send() == encode(Puback(1))
    assert protocol.data_to_send() == b""


def test_a_closed_connection_sends_nothing() -> None:
    protocol = connected()
    protocol.answer([(PacketType.PUBACK, 1)])
    protocol.lose()
    assert protocol.data_to_send() == b""


def test_the_little_endian_dialect() -> None:
    protocol = ServerProtocol(0.0, byte_order="little")
    protocol.receive_data(encode(Connect("c", keep_alive=258), "little") + encode(Puback(258), "little"), 0.0)
    assert protocol.keep_alive == 258
    protocol.accept(0.0, session_present=False)
    (messages,) = protocol.events()
    assert isinstance(messages, Messages) and list(messages.packets) == [Puback(258)]
    protocol.data_to_send()
    protocol.release(258)
    assert protocol.data_to_send() == encode(Pubrel(258), "little")
