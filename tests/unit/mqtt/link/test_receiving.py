"""Publications from the broker: their acknowledgement, new connections, and lost sessions."""

from __future__ import annotations

import pytest

from bridge.link import connection as link_connection
from bridge.link.outbox import to_properties
from bridge.link.state import LinkPhase
from bridge.link.stream import Stream
from bridge.mqtt.packets import PacketType
from bridge.mqtt.properties import encode_properties
from bridge.telemetry.message import Publication
from tests.helpers.fake_broker import PINGREQ, PINGRESP, PUBACK, PUBCOMP, PUBREC, PUBREL, FakeBroker, answer, packet
from tests.helpers.tested_link import LinkFactory

ACKNOWLEDGEMENT = {1: PUBACK, 2: PUBREC}


@pytest.mark.parametrize("qos", [1, 2])
def test_only_acknowledge_acknowledges(broker: FakeBroker, link: LinkFactory, qos: int) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t/#", qos=qos)
    peer = broker.connected(subscribes=qos)
    peer.send(peer.publish("t/1", 11, qos=qos), peer.publish("t/2", 12, qos=qos, flags=8))
    arrivals = receiver.take_all(2)
    assert [(message.publication.topic, message.qos, message.packet_id, message.dup) for message in arrivals] == [
        ("t/1", qos, 11, False),
        ("t/2", qos, 12, True),
    ]
    peer.nothing_came()
    receiver.acknowledge(arrivals[1:])
    assert peer.packet_ids(ACKNOWLEDGEMENT[qos], 1) == [12]
    receiver.acknowledge(arrivals)
    assert peer.packet_ids(ACKNOWLEDGEMENT[qos], 1) == [11]
    peer.nothing_came()
    assert (receiver.counters.received, receiver.counters.acknowledged) == (2, 2)


def test_only_complete_answers_pubrel(broker: FakeBroker, link: LinkFactory) -> None:
    """Also for an unknown message id, as after a restart."""
    receiver = link(broker.port, broker.version, topic_filter="t", qos=2)
    peer = broker.connected(subscribes=2)
    peer.send(peer.publish("t", 5, qos=2))
    receiver.acknowledge(receiver.take_all(1))
    assert peer.packet_ids(PUBREC, 1) == [5]
    peer.send(answer(PUBREL, 5), answer(PUBREL, 77))
    assert receiver.released_all(2) == [5, 77]
    peer.nothing_came()
    receiver.complete([77])
    receiver.complete([5, 6])
    assert peer.packet_ids(PUBCOMP, 2) == [77, 5]
    peer.nothing_came()


@pytest.mark.parametrize("qos", [1, 2])
def test_answers_to_an_earlier_connection_are_ignored(
    broker: FakeBroker, link: LinkFactory, qos: int, impatient: None
) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t", qos=qos)
    peer = broker.connected(subscribes=qos)
    peer.send(peer.publish("t", 5, qos=qos), answer(PUBREL, 6))
    early = receiver.take_all(1)
    assert receiver.released_all(1) == [6]
    peer.close()
    receiver.state_where(LinkPhase.WAITING)
    receiver.acknowledge(early)
    peer = broker.connected(present=True, subscribes=qos if broker.version == "5" else None)
    receiver.state_where(LinkPhase.CONNECTED)
    receiver.acknowledge(early)
    receiver.complete([6])
    peer.nothing_came()
    peer.send(peer.publish("t", 5, qos=qos, flags=8))
    again = receiver.take_all(1)
    assert again[0].dup and again[0].generation > early[0].generation
    receiver.acknowledge(early)
    peer.nothing_came()
    receiver.acknowledge(again)
    assert peer.packet_ids(ACKNOWLEDGEMENT[qos], 1) == [5]


@pytest.mark.parametrize(
    ("present", "redelivered"),
    [
        # The broker sends QoS 1 and 2 publications again.
        pytest.param(True, [("t/0", 0, 0)], id="session kept"),
        # It never sends it, and expects no answer.
        pytest.param(False, [("t/0", 0, 0), ("t/1", 0, 0), ("t/2", 0, 0)], id="session lost"),
    ],
)
def test_unprocessed_publications_when_the_connection_breaks(
    broker: FakeBroker, link: LinkFactory, present: bool, redelivered: list[tuple[str, int, int]], impatient: None
) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t/#", qos=2)
    peer = broker.connected(subscribes=2)
    peer.send(*(peer.publish(f"t/{qos}", 5 + qos, qos=qos) for qos in range(3)))
    peer.nothing_came()
    assert receiver.session_present is False
    peer.close()
    broker.connected(present=present, subscribes=None if present and broker.version == "3.1.1" else 2)
    receiver.state_where(LinkPhase.WAITING)
    receiver.state_where(LinkPhase.CONNECTED)
    assert receiver.session_present is present
    assert receiver.sessions == [False, present]
    arrivals = receiver.take_all(len(redelivered))
    assert [(message.publication.topic, message.qos, message.packet_id) for message in arrivals] == redelivered
    assert receiver.take(9, 9, 0) == []


@pytest.mark.parametrize("qos", [0, 1])
def test_reading_stops_at_the_limit_of_messages_in_flight(
    broker: FakeBroker, link: LinkFactory, qos: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PINGREQ after the publications is answered when the bridge reads up to it, not before."""
    # Only events wake the network thread.
    monkeypatch.setattr(link_connection, "TURN", 1e5)
    receiver = link(broker.port, broker.version, topic_filter="t", qos=qos, in_flight=3)
    peer = broker.connected(subscribes=qos)
    peer.send(*(peer.publish("t", packet_id, qos=qos) for packet_id in range(1, 5)), packet(PINGREQ))
    arrivals = receiver.take_all(3)
    if qos:
        assert receiver.take(9, 9, 0) == []
        receiver.acknowledge(arrivals)
        assert peer.packet_ids(PUBACK, 3) == [1, 2, 3]
    assert len(receiver.take_all(1)) == 1
    peer.expect(PINGRESP)


def test_reading_stops_while_too_many_publications_wait(
    broker: FakeBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the received bytes would grow without limit, by 64 KiB for each processed publication."""
    reads: list[int] = []
    fill = Stream.fill

    def counted(stream: Stream, missing: int) -> bytes:
        data = fill(stream, missing)
        reads.append(len(data))
        return data

    receiver = link(broker.port, broker.version, topic_filter="t", qos=0, in_flight=1)
    peer = broker.connected(subscribes=0)
    receiver.state_where(LinkPhase.CONNECTED)
    monkeypatch.setattr(Stream, "fill", counted)
    packets = [peer.publish("t", payload=b"%d" % number) for number in range(9)]
    peer.send(*packets)
    assert [message.publication.payload for message in receiver.take_all(9)] == [b"%d" % number for number in range(9)]
    assert reads == [sum(map(len, packets))]


def test_keep_alive_continues_during_a_pause_of_reading(broker: FakeBroker, link: LinkFactory) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t", qos=1, in_flight=1, keep_alive=1)
    peer = broker.connected(subscribes=1)
    peer.send(peer.publish("t", 1, qos=1), peer.publish("t", 2, qos=1))
    # No PINGREQ is answered, because the answer would follow publications that are not read.
    peer.expect(PINGREQ, PINGREQ, PINGREQ)
    receiver.acknowledge(receiver.take_all(1))
    assert peer.packet_ids(PUBACK, 1) == [1]
    assert receiver.take_all(1)[0].packet_id == 2


def test_size_and_number_limit_a_batch(broker_5: FakeBroker, link: LinkFactory) -> None:
    receiver = link(broker_5.port, topic_filter="t", qos=0)
    peer = broker_5.connected(subscribes=0)
    peer.send(*(peer.publish("t", payload=b"x" * size) for size in (10, 3, 4, 1, 1, 1)))
    peer.nothing_came()
    first = receiver.take_all(1)
    assert len(first[0].publication.payload) == 10
    assert [[len(message.publication.payload) for message in receiver.take(2, 7, 0)] for _ in range(3)] == [
        [3, 4],
        [1, 1],
        [1],
    ]


def test_a_publication_larger_than_the_limit_is_a_batch(broker_5: FakeBroker, link: LinkFactory) -> None:
    receiver = link(broker_5.port, topic_filter="t", qos=0)
    peer = broker_5.connected(subscribes=0)
    receiver.state_where(LinkPhase.CONNECTED)
    receiver.take(1, 1, 0)
    peer.send(peer.publish("t", payload=b"x" * 10), peer.publish("t", payload=b"y"))
    peer.nothing_came()
    assert [len(message.publication.payload) for message in receiver.take(5, 5, 0)] == [10]


@pytest.mark.parametrize(("trusted", "client_id", "hops"), [(True, "boss", ("A/b",)), (False, "L", ())])
def test_trusted_links_can_set_the_hop_marks(
    broker_5: FakeBroker, link: LinkFactory, trusted: bool, client_id: str, hops: tuple[str, ...]
) -> None:
    receiver = link(broker_5.port, topic_filter="t", qos=0, trusted=trusted)
    peer = broker_5.connected(subscribes=0)
    publication = Publication(topic="t", payload=b"", client_id="boss", hops=("A/b",))
    peer.send(peer.publish("t", properties=encode_properties(PacketType.PUBLISH, to_properties(publication))))
    (received,) = receiver.take_all(1)
    assert (received.publication.client_id, received.publication.hops) == (client_id, hops)


def test_interrupt_and_stop_end_a_take(broker_5: FakeBroker, link: LinkFactory) -> None:
    receiver = link(broker_5.port, topic_filter="t")
    broker_5.connected(subscribes=0)
    receiver.state_where(LinkPhase.CONNECTED)
    receiver.take(1, 1, 0)
    receiver.interrupt()
    assert receiver.take(1, 1, 1e6) == []
    receiver.stop(30)
    assert receiver.take(1, 1, 1e6) == []


def test_a_large_publication_in_small_pieces(broker: FakeBroker, link: LinkFactory) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t")
    peer = broker.connected(subscribes=0)
    payload = bytes(range(256)) * 4000
    whole = peer.publish("t", payload=payload) + peer.publish("u")
    for start in range(0, len(whole), 100_001):
        peer.send(whole[start : start + 100_001])
    assert [message.publication.payload for message in receiver.take_all(2)] == [payload, b"p"]


@pytest.mark.parametrize(
    ("malformed", "why"),
    [
        pytest.param(b"\x36\x05\x00\x01t\x00\x01", "MQTT-3.3.1-4", id="QoS 3"),
        pytest.param(b"\x30\x03\x00\x05t", "length of topic name is 5, beyond", id="topic beyond the end"),
        pytest.param(b"\x30\x04\x00\x01\xff\x00", "not UTF-8", id="topic not UTF-8"),
        pytest.param(b"\x30\x04\x00\x01\x00\x00", "U+0000", id="NUL in topic"),
        pytest.param(b"\x30\x04\x00\x01#\x00", "wildcard", id="wildcard"),
        pytest.param(b"\x30\x03\x00\x00\x00", "empty", id="no topic"),
        pytest.param(b"\x32\x05\x00\x01t\x00\x00", "MQTT-2.3.1-1", id="message id 0"),
        pytest.param(b"\x32\x04\x00\x01t\x00", "ends within message id", id="no message id"),
        pytest.param(b"\x40\x01\x00", "ends within message id", id="PUBACK too short"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", "four bytes at most", id="length"),
    ],
)
def test_malformed_packets_end_the_connection(
    broker: FakeBroker, link: LinkFactory, malformed: bytes, why: str, impatient: None
) -> None:
    receiver = link(broker.port, broker.version, topic_filter="t")
    peer = broker.connected(subscribes=0)
    receiver.state_where(LinkPhase.CONNECTED)  # otherwise no reconnection follows
    peer.send(malformed)
    assert why in receiver.state_where(LinkPhase.WAITING).error
    broker.connected(subscribes=0)
    receiver.state_where(LinkPhase.CONNECTED)
    assert receiver.counters.reconnects == 1
