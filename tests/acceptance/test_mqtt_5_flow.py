"""MQTT 5: flow control, limits and rejections, on a raw socket. Each test names the statements that it checks."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from bridge.mqtt.packets import (
    AcknowledgementProperties,
    ConnectProperties,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import client_of, ended, subscribe
from tests.helpers.raw_client import RawClient

# The bridge decides this before it asks the queue manager: tests/contract/backend covers what it asks.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")


def test_the_receive_maximum_of_the_client_applies(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-9: a QoS 2 message counts until PUBCOMP."""
    with client_of(bridge, unique, properties=ConnectProperties(receive_maximum=2)) as client:
        subscribe(client, unique)
        with client_of(bridge, f"{unique}-2") as other:
            for number in range(5):
                other.publish(unique, b"%d" % number, 2)
        first, second = client.wait_for(Publish), client.wait_for(Publish)
        client.send(Pubrec(first.packet_id), Pubrec(second.packet_id))
        client.wait_for(Pubrel)
        client.wait_for(Pubrel)
        client.ping()
        assert not [packet for packet in client.inbox if isinstance(packet, Publish)]
        client.send(Pubcomp(first.packet_id))
        third = client.wait_for(Publish)
        assert third.payload == b"2"
        client.ping()
        assert not client.inbox


def test_the_receive_maximum_of_the_server(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-7, -8: CONNACK contains it, and one message more is an error."""
    client = RawClient(bridge.port, unique, level=5)
    with client:
        connack = client.connect()
        assert connack.properties is not None and connack.properties.receive_maximum
        maximum = connack.properties.receive_maximum
        client.send_bytes(
            b"".join(
                encode(Publish(unique, b"", 2, False, False, packet_id), "big", 5)
                for packet_id in range(1, maximum + 2)
            )
        )
        assert ended(client).reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_message_larger_than_the_client_accepts_is_skipped(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-24, -25: it goes to the dead-letter queue, and later messages to the client."""
    with client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=100)) as client:
        subscribe(client, unique)
        with client_of(bridge, f"{unique}-2") as other:
            other.publish(unique, b"x" * 100, 1)
            other.publish(unique, b"short", 1)
        assert client.take().payload == b"short"


def test_options_that_a_channel_grants(new_bridge: Callable[..., BridgeProcess]) -> None:
    """Server Keep Alive (MQTT-3.2.2-21) and Session Expiry Interval, if the client requests more than the limit.

    A packet longer than Maximum Packet Size ends the connection (MQTT 5 section 3.2.2.3.6). The bridge reports its stop.
    """
    config = "channels: [{name: C, keep_alive: 60, session_expiry: 100 s, max_packet_size: 1000}]\n"
    bridge = new_bridge(config=config).start()
    for keep_alive, server_keep_alive in ((0, 60), (61, 60), (60, None), (10, None)):
        with RawClient(bridge.port, "k", level=5, keep_alive=keep_alive) as client:
            connack = client.connect()
            assert connack.properties is not None and connack.properties.server_keep_alive == server_keep_alive
    for requested, granted in ((0, None), (100, None), (101, 100), (0xFFFFFFFF, 100)):
        properties = ConnectProperties(session_expiry_interval=requested)
        with RawClient(bridge.port, "k", level=5, properties=properties) as client:
            connack = client.connect()
            assert connack.properties is not None and connack.properties.session_expiry_interval == granted
            assert connack.properties.maximum_packet_size == 1_000
    with client_of(bridge, "long") as client:
        client.send(Publish("t", b"x" * 1_100))
        assert ended(client).reason_code == ReasonCode.PACKET_TOO_LARGE
    with client_of(bridge, "c") as client:
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGTERM)
        assert ended(client).reason_code == ReasonCode.SERVER_SHUTTING_DOWN


@pytest.mark.parametrize("requested", [None, 0, 1])
def test_connack_contains_neither_response_information_nor_user_properties(
    bridge: BridgeProcess, unique: str, requested: int | None
) -> None:
    """MQTT-3.1.2-28, MQTT-3.2.2-20: the bridge never sends them, so CONNACK fits into a small Maximum Packet Size."""
    for size in (30, None):
        properties = ConnectProperties(request_response_information=requested, maximum_packet_size=size)
        with RawClient(bridge.port, unique, level=5, properties=properties) as client:
            connack = client.connect()
            assert connack.properties is not None
            assert (connack.properties.response_information, connack.properties.user_property) == (None, ())


def test_a_publication_that_expires_at_once(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-5, -6: it arrives with Message Expiry Interval 0, or not at all."""
    with client_of(bridge, unique) as client:
        subscribe(client, unique)
        with client_of(bridge, f"{unique}-2") as other:
            for seconds in (0, 1_000):
                properties = PublishProperties(message_expiry_interval=seconds)
                for number in range(20):
                    other.send(Publish(unique, b"%d" % seconds, 1, False, False, number + 1, properties))
                    other.wait_for(Puback)
        intervals: list[int | None] = []
        while len(intervals) - intervals.count(0) < 20:
            publication = client.wait_for(Publish)
            assert publication.properties is not None
            intervals.append(publication.properties.message_expiry_interval)
            client.send(Puback(publication.packet_id))
        assert all(seconds == 0 or 900 < seconds <= 1_000 for seconds in intervals if seconds is not None), intervals


def test_a_rejected_publication_gets_a_reason(bridge: BridgeProcess) -> None:
    """MQTT 5 sections 3.4.2.1 and 3.5.2.1: the connection stays, and the client does not repeat the publication."""
    bridge.mqsc("DEFINE TOPIC(CLOSED) TOPICSTR('closed') PUB(DISABLED)")
    with client_of(bridge, "p") as client:
        for qos, kind in ((1, Puback), (2, Pubrec)):
            client.send(Publish("closed", b"x", qos, False, False, qos))
            answer = client.expect(kind)
            assert answer.reason_code == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            assert isinstance(answer.properties, AcknowledgementProperties)
            assert "MQRC_PUT_INHIBITED" in (answer.properties.reason_string or "")
            client.send(Publish("open", b"x", qos, False, False, qos))
            assert client.expect(kind).reason_code < 0x80, "MQTT-4.3.3-9: the message id is free"
        client.send(Pubrel(2))
        assert client.expect(Pubcomp) == Pubcomp(2)
    with client_of(bridge, "p", properties=ConnectProperties(maximum_packet_size=30)) as client:
        for qos, kind in ((1, Puback), (2, Pubrec)):
            client.send(Publish("closed", b"x", qos, False, False, qos))
            assert client.expect(kind) == kind(qos, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR), (
                "MQTT-3.4.2-2, MQTT-3.5.2-2"
            )
    with client_of(bridge, "p", properties=ConnectProperties(request_problem_information=0)) as client:
        client.send(Publish("closed", b"x", 1, False, False, 1))
        assert client.expect(Puback).properties is None


# The bridge does not ask IBM MQ for MQPMO_WARN_IF_NO_SUBS_MATCHED.
@pytest.mark.queue_managers("embedded")
def test_no_matching_subscribers(bridge: BridgeProcess, unique: str) -> None:
    """MQTT 5 sections 3.4.2.1 and 3.5.2.1, with publications that have subscribers between them, in order."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/heard", 0)
        nobody, heard = f"{unique}/nobody", f"{unique}/heard"
        client.send(
            *(
                Publish(topic, b"", 1, False, False, packet_id)
                for packet_id, topic in enumerate((nobody, heard, nobody), 1)
            )
        )
        answers = [client.wait_for(Puback) for _ in range(3)]
        none = ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert [(answer.packet_id, answer.reason_code) for answer in answers] == [(1, none), (2, 0), (3, none)]
        client.send(Publish(nobody, b"", 2, False, False, 4))
        assert client.wait_for(Pubrec).reason_code == none
        client.send(Pubrel(4))
        assert client.wait_for(Pubcomp).packet_id == 4


def test_a_client_may_reject_a_message(bridge: BridgeProcess, unique: str) -> None:
    """A PUBACK or PUBREC of 0x80 and above ends the delivery (MQTT 5 section 4.3): it is not repeated."""
    session = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, unique, properties=session) as client:
        subscribe(client, unique)
        for qos, kind in ((1, Puback), (2, Pubrec)):
            client.publish(unique, b"no", qos)
            client.send(kind(client.wait_for(Publish).packet_id, reason_code=ReasonCode.QUOTA_EXCEEDED))
        client.ping()
    with RawClient(bridge.port, unique, clean=False, level=5, properties=ConnectProperties()) as client:
        assert client.connect().session_present
        client.ping()
        assert not client.inbox


def test_keep_alive(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-22."""
    with client_of(bridge, unique, keep_alive=1) as client:
        assert ended(client).reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_packets_after_disconnect_are_ignored(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.14.4-1, -2."""
    with client_of(bridge, unique) as witness:
        subscribe(witness, unique, 0)
        with client_of(bridge, f"{unique}-2") as client:
            client.send(Disconnect(), Publish(unique, b"late"))
            client.expect_closed()
        witness.send(Pingreq())
        witness.publish(unique, b"next")
        assert witness.wait_for(Publish).payload == b"next"


# The channel rejects the packet before it reaches a queue manager.
@pytest.mark.queue_managers("embedded")
def test_many_user_properties_do_not_delay_others(bridge: BridgeProcess, unique: str) -> None:
    """The number per packet is limited, and other clients are served meanwhile."""
    many = PublishProperties(user_property=(("", ""),) * 1_001)
    with client_of(bridge, unique) as client, client_of(bridge, f"{unique}-beside") as beside:
        client.send(Publish(unique, b"", 1, False, False, 1, many))
        assert ended(client).reason_code == ReasonCode.QUOTA_EXCEEDED
        refused = RawClient(
            bridge.port, unique, level=5, properties=ConnectProperties(user_property=many.user_property)
        )
        assert refused.connect().return_code == ReasonCode.QUOTA_EXCEEDED
        beside.ping()


def test_above_the_limit_only_publish_is_rejected(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-10, MQTT-4.9.0-1 to -3."""
    with (
        client_of(bridge, f"{unique}-2") as other,
        client_of(bridge, unique, properties=ConnectProperties(receive_maximum=1)) as client,
    ):
        subscribe(client, unique, 2)
        for number in range(3):
            other.publish(unique, b"%d" % number, 1 + number % 2)
        first = client.expect(Publish)
        client.send(
            Pingreq(),
            Subscribe(11, ((f"{unique}/2", 1),), options=(SubscriptionOptions(),)),
            Publish(f"{unique}/x", b"", 1, False, False, 12),
            Publish(f"{unique}/x", b"", 2, False, False, 13),
            Pubrel(13),
            Unsubscribe(14, (f"{unique}/2",)),
        )
        answers = {type(client.receive()) for _ in range(6)}
        assert answers == {Pingresp, Suback, Puback, Pubrec, Pubcomp, Unsuback}
        client.acknowledge(first)
        assert [client.take().payload for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize(
    "refuse",
    [
        lambda client, packet_id: client.send(Pubrec(packet_id, ReasonCode.UNSPECIFIED_ERROR)),
        lambda client, packet_id: (
            client.send(Pubrec(packet_id)),
            client.wait_for(Pubrel),
            client.send(Pubcomp(packet_id, 0x92)),
        ),
    ],
    ids=["PUBREC", "PUBCOMP"],
)
def test_a_failure_frees_a_place_in_the_window(
    bridge: BridgeProcess, unique: str, refuse: Callable[[RawClient, int], None]
) -> None:
    """MQTT-4.4.0-2, section 4.9: a PUBREC of 0x80 and above, and any PUBCOMP, ends an exchange."""
    with (
        client_of(bridge, f"{unique}-2") as other,
        client_of(bridge, unique, properties=ConnectProperties(receive_maximum=1)) as client,
    ):
        subscribe(client, unique, 2)
        for number in range(5):
            other.publish(unique, b"%d" % number, 2)
        for number in range(5):
            publish = client.expect(Publish)
            assert publish.payload == b"%d" % number
            refuse(client, publish.packet_id)
        client.ping()
        assert not client.inbox


def test_a_message_with_exactly_the_maximum_length_of_the_client(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-24."""
    with (
        client_of(bridge, f"{unique}-2") as other,
        client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=100)) as client,
    ):
        subscribe(client, unique, 1)
        room = 100 - len(encode(Publish(unique, b"", 1, False, False, 1), "big", 5))
        for length in (room + 1, room):
            other.publish(unique, b"x" * length, 1)
        publish = client.take()
        assert len(encode(publish, "big", 5)) == 100


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_an_answer_larger_than_the_client_accepts(bridge: BridgeProcess, unique: str, kind: type[Packet]) -> None:
    """MQTT-3.1.2-24: with a reason code for each of 40 filters, it has at least 44 bytes."""
    names = [f"{unique}/{number}" for number in range(40)]
    with client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=40)) as client:
        if kind is Subscribe:
            client.send(Subscribe(1, tuple((name, 0) for name in names), options=(SubscriptionOptions(),) * len(names)))
        else:
            client.send(Unsubscribe(1, tuple(names)))
        assert ended(client).reason_code == ReasonCode.PACKET_TOO_LARGE
