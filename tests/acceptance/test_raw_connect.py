"""Valid and invalid CONNECT packets, and protocol violations, byte by byte, on a raw socket."""

from __future__ import annotations

import contextlib
import random

import pytest

from bridge.mqtt.packets import (
    Connack,
    ConnackCode,
    Connect,
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
)
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.raw_client import ConnectionClosed, RawClient

# The bridge decides this before it asks the queue manager: tests/contract/backend covers what it asks.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")

# CONNECT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (Connect("c", "MQTT", 6), ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (Connect("c", "MQIsdp", 4), ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION),
        (Connect("", "MQIsdp", 3), ConnackCode.IDENTIFIER_REJECTED),
        (Connect("c" * 24, "MQIsdp", 3), ConnackCode.IDENTIFIER_REJECTED),
        (Connect("", "MQTT", 4, clean_session=False), ConnackCode.IDENTIFIER_REJECTED),
        (Connect("c" * 49, "MQTT", 4), ConnackCode.IDENTIFIER_REJECTED),
    ],
    ids=["level 6", "MQIsdp level 4", "3.1 no client id", "3.1 long client id", "no id, durable", "49 bytes"],
)
def test_connect_is_refused_with_its_code(bridge: BridgeProcess, packet: Connect, code: ConnackCode) -> None:
    with RawClient(bridge.port, "unused") as client:
        client.send(packet)
        assert client.expect(Connack) == Connack(code)
        client.expect_closed()


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0c\x00\x04NOPE\x04\x02\x00\x00\x00\x00",
        encode(Publish("a", b"b")),
        encode(Pingreq()),
        b"\xf0\x00",
        b"\x00\x00",
        b"\x10\xff\xff\xff\xff\x01",
    ],
    ids=["protocol name", "PUBLISH", "PINGREQ", "type 15", "type 0", "fifth length byte"],
)
def test_a_first_packet_other_than_connect_closes_the_connection(bridge: BridgeProcess, data: bytes) -> None:
    """MQTT-3.1.0-1, MQTT-3.1.2-1, MQTT 3.1 section 2.1: the connection ends; with or without a CONNACK that refuses."""
    with RawClient(bridge.port, "unused") as client:
        client.send_bytes(data)
        packets = []
        try:
            while True:
                packets.append(client.receive())
        except Exception as error:
            assert type(error).__name__ == "ConnectionClosed"
        assert packets in ([], [Connack(ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION)])


def test_second_connect_ends_the_connection(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique) as client:
        client.send(client.packet)
        client.expect_closed()


def test_an_empty_client_identifier_gets_a_clean_session(bridge: BridgeProcess) -> None:
    with RawClient.connected(bridge.port, "") as one, RawClient.connected(bridge.port, "") as other:
        one.ping()
        other.ping()


def test_packets_may_come_byte_by_byte_and_all_at_once(bridge: BridgeProcess, unique: str) -> None:
    with RawClient(bridge.port, unique) as client:
        stream = [client.packet, Subscribe(1, ((unique, 1),)), Publish(unique, b"slow", 1, False, False, 2), Pingreq()]
        for byte in b"".join(encode(packet) for packet in stream):
            client.send_bytes(bytes([byte]))
        assert client.expect(Connack).return_code == 0
        assert client.wait_for(Suback) == Suback(1, (1,))
        assert client.wait_for(Puback) == Puback(2)
        client.wait_for(Pingresp)
        assert client.wait_for(Publish).payload == b"slow"
    with RawClient(bridge.port, unique) as client:
        client.send(client.packet, Subscribe(1, ((unique, 1),)), Pingreq())
        assert client.expect(Connack).return_code == 0
        assert client.wait_for(Suback) == Suback(1, (1,))
        client.wait_for(Pingresp)
        client.send(*(Publish(unique, b"%d" % number, 1, False, False, number) for number in range(1, 10)))
        assert [client.wait_for(Puback).message_id for _ in range(1, 10)] == list(range(1, 10))
        assert [client.wait_for(Publish).payload for _ in range(1, 10)] == [b"%d" % number for number in range(1, 10)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_publication_directly_after_a_subscribe_is_delivered(bridge: BridgeProcess, unique: str, clean: bool) -> None:
    """Packets are done in the order sent (MQTT 3.1.1 section 4.6), though the SUBSCRIBE may wait for the disk."""
    with RawClient(bridge.port, unique, clean=clean) as client:
        topics = [f"{unique}/{number}" for number in range(5)]
        packets: list[Packet] = [client.packet]
        for message_id, topic in enumerate(topics, 1):
            packets += Subscribe(message_id, ((topic, 1),)), Publish(topic, b"x", 1, False, False, 100 + message_id)
        client.send(*packets)
        assert [client.wait_for(Publish).topic for _ in topics] == topics


@pytest.mark.parametrize("clean", [True, False])
def test_an_unsubscribe_directly_after_a_subscribe_ends_it(bridge: BridgeProcess, unique: str, clean: bool) -> None:
    with RawClient(bridge.port, unique, clean=clean) as client:
        client.send(client.packet, Subscribe(1, ((unique, 1),)), Unsubscribe(2, (unique,)))
        client.expect(Connack)
        assert client.wait_for(Suback) == Suback(1, (1,))
        assert client.wait_for(Unsuback).message_id == 2
        client.publish(unique, b"x", 1)
        client.ping()
        assert not client.inbox, "it is subscribed"


# Bad behaviour --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"\x36\x06\x00\x01a\x00\x01b",
        b"\x32\x05\x00\x01a\x00\x00",
        b"\x30\x04\x00\x02a#",
        b"\x80\x06\x00\x01\x00\x01a\x00",
        b"\x82\x02\x00\x01",
        b"\x20\x02\x00\x00",
        b"\x30\xff\xff\xff\xff\x7f",
        b"\x30\x80\x80\x80\x7f",
    ],
    ids=["QoS 3", "message id 0", "wildcard", "SUBSCRIBE flags", "no topic", "CONNACK", "five length bytes", "too long"],
)  # fmt: skip
def test_malformed_packets_end_only_their_own_connection(bridge: BridgeProcess, unique: str, data: bytes) -> None:
    with RawClient.connected(bridge.port, f"{unique}-g") as good, RawClient.connected(bridge.port, unique) as bad:
        bad.send_bytes(data)
        bad.expect_closed()
        good.ping()


def test_malformed_input_closes_only_its_own_connection(bridge: BridgeProcess, unique: str) -> None:
    """Packets with a few bytes that are others, missing or double: an answer or the end, and no error of the bridge's.

    That the log has no traceback is seen when the bridge has ended.
    """
    choice = random.Random(14)
    packets = [
        encode(packet)
        for packet in (
            Publish(f"{unique}/a", b"payload"),
            Publish(f"{unique}/a", b"payload", 1, True, True, 1),
            Publish(f"{unique}/a", b"payload", 2, False, False, 2),
            *(kind(2) for kind in (Puback, Pubrec, Pubrel, Pubcomp)),
            Subscribe(3, ((f"{unique}/#", 2), ("DEFAULT.QoS", 1))),
            Unsubscribe(4, (f"{unique}/+",)),
            Pingreq(),
        )
    ]
    with RawClient.connected(bridge.port, f"{unique}-g") as good:
        for number in range(60):
            with RawClient(bridge.port, f"{unique}-{number}", clean=bool(number % 2)) as client:
                data = bytearray().join(choice.choices(packets, k=20))
                for _ in range(choice.randrange(4)):
                    at = choice.randrange(len(data))
                    data[at : at + choice.randrange(3)] = choice.randbytes(choice.randrange(3))
                with contextlib.suppress(ConnectionClosed):
                    client.connect()
                    client.send_bytes(bytes(data))
                    client.ping()
        good.ping()
