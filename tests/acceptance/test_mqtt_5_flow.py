"""MQTT 5, flow control, limits, refusals, on a raw socket; each test names the statements that it holds the bridge to."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from bridge.mqtt.packets import (
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    Connack,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
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
from tests.helpers.mqtt_5_client import NewBridge, client_of, ended, subscribe
from tests.helpers.raw_client import ConnectionClosed, RawClient

# The bridge decides this before it asks the queue manager: tests/contract/backend covers what it asks.
pytestmark = pytest.mark.queue_managers("embedded", slow="ibmmq")


def test_the_clients_receive_maximum_holds(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-9: with QoS 2 a message counts until PUBCOMP."""
    with client_of(bridge, unique, properties=ConnectProperties(receive_maximum=2)) as client:
        subscribe(client, unique)
        with client_of(bridge, f"{unique}-2") as other:
            for number in range(5):
                other.publish(unique, b"%d" % number, 2)
        first, second = client.wait_for(Publish), client.wait_for(Publish)
        client.send(Pubrec(first.message_id), Pubrec(second.message_id))
        client.wait_for(Pubrel)
        client.wait_for(Pubrel)
        client.ping()
        assert not [one for one in client.inbox if isinstance(one, Publish)]
        client.send(Pubcomp(first.message_id))
        third = client.wait_for(Publish)
        assert third.payload == b"2"
        client.ping()
        assert not client.inbox


def test_the_servers_receive_maximum(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-7, -8: CONNACK says it, one more is an error."""
    client = RawClient(bridge.port, unique, level=5)
    with client:
        connack = client.connect()
        assert connack.properties is not None and connack.properties.receive_maximum
        maximum = connack.properties.receive_maximum
        client.send_bytes(
            b"".join(encode(Publish(unique, b"", 2, False, False, one), "big", 5) for one in range(1, maximum + 2))
        )
        assert ended(client).reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_message_that_the_client_does_not_take_is_passed_over(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-24, -25: it goes to the dead-letter queue, those behind it to the client."""
    with client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=100)) as client:
        subscribe(client, unique)
        with client_of(bridge, f"{unique}-2") as other:
            other.publish(unique, b"x" * 100, 1)
            other.publish(unique, b"short", 1)
        assert client.take().payload == b"short"


def test_a_packet_that_is_too_long(new_bridge: NewBridge) -> None:
    """CONNACK says Maximum Packet Size; a longer packet ends the connection (MQTT 5 section 3.2.2.3.6)."""
    bridge = new_bridge(config="channels: [{name: C, max_packet_size: 1000}]\n").start()
    client = RawClient(bridge.port, "long", level=5)
    with client:
        connack = client.connect()
        assert connack.properties is not None and connack.properties.maximum_packet_size == 1_000
        client.send(Publish("t", b"x" * 1_100))
        assert ended(client).reason_code == ReasonCode.PACKET_TOO_LARGE


def test_options_that_a_channel_grants(new_bridge: NewBridge) -> None:
    """Server Keep Alive (MQTT-3.2.2-21) and Session Expiry Interval, where the client asks for more than there is."""
    bridge = new_bridge(config="channels: [{name: C, keep_alive: 60, session_expiry: 100 s}]\n").start()
    for keep_alive, given in ((0, 60), (61, 60), (60, None), (10, None)):
        with RawClient(bridge.port, "k", level=5, keep_alive=keep_alive) as client:
            connack = client.connect()
            assert connack.properties is not None and connack.properties.server_keep_alive == given
    for asked, granted in ((0, None), (100, None), (101, 100), (0xFFFFFFFF, 100)):
        properties = ConnectProperties(session_expiry_interval=asked)
        with RawClient(bridge.port, "k", level=5, properties=properties) as client:
            connack = client.connect()
            assert connack.properties is not None and connack.properties.session_expiry_interval == granted


def test_an_identifier_is_assigned(bridge: BridgeProcess) -> None:
    """MQTT-3.1.3-7, MQTT-3.2.2-16."""
    with RawClient(bridge.port, "", level=5, clean=False) as client:
        connack = client.connect()
        assert connack.properties is not None and connack.properties.assigned_client_identifier
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=0)))
        client.expect_closed()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "x" * 49}, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
        (
            {"name": "c", "properties": ConnectProperties(authentication_method="SCRAM-SHA-1")},
            ReasonCode.BAD_AUTHENTICATION_METHOD,
        ),
    ],
)
def test_connack_contains_the_reason(bridge: BridgeProcess, options: dict[str, Any], code: ReasonCode) -> None:
    """MQTT-3.1.4-2, MQTT-4.12.0-1."""
    with RawClient(bridge.port, options["name"], level=5, properties=options.get("properties")) as client:
        assert client.connect().return_code == code
        client.expect_closed()


def test_a_publication_that_is_refused_gets_its_reason(new_bridge: NewBridge) -> None:
    """MQTT 5 sections 3.4.2.1 and 3.5.2.1: the connection stays, and the client sends nothing again."""
    bridge = new_bridge().start()
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
            assert client.expect(kind) == kind(qos, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR), "MQTT-3.4.2-2, MQTT-3.5.2-2"
    with client_of(bridge, "p", properties=ConnectProperties(request_problem_information=0)) as client:
        client.send(Publish("closed", b"x", 1, False, False, 1))
        assert client.expect(Puback).properties is None


# The bridge does not ask IBM MQ for MQPMO_WARN_IF_NO_SUBS_MATCHED.
@pytest.mark.queue_managers("embedded")
def test_no_matching_subscribers(bridge: BridgeProcess, unique: str) -> None:
    """MQTT 5 sections 3.4.2.1 and 3.5.2.1, with those that somebody has subscribed to between them, in order."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/heard", 0)
        nobody, heard = f"{unique}/nobody", f"{unique}/heard"
        client.send(*(Publish(topic, b"", 1, False, False, one) for one, topic in enumerate((nobody, heard, nobody), 1)))
        answers = [client.wait_for(Puback) for _ in range(3)]
        none = ReasonCode.NO_MATCHING_SUBSCRIBERS
        assert [(one.message_id, one.reason_code) for one in answers] == [(1, none), (2, 0), (3, none)]
        client.send(Publish(nobody, b"", 2, False, False, 4))
        assert client.wait_for(Pubrec).reason_code == none
        client.send(Pubrel(4))
        assert client.wait_for(Pubcomp).message_id == 4


def test_a_client_may_refuse_a_message(bridge: BridgeProcess, unique: str) -> None:
    """A PUBACK or PUBREC of 0x80 and above ends the delivery (MQTT 5 section 4.3): it does not come again."""
    session = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, unique, properties=session) as client:
        subscribe(client, unique)
        for qos, kind in ((1, Puback), (2, Pubrec)):
            client.publish(unique, b"no", qos)
            client.send(kind(client.wait_for(Publish).message_id, reason_code=ReasonCode.QUOTA_EXCEEDED))
        client.ping()
    with RawClient(bridge.port, unique, clean=False, level=5, properties=ConnectProperties()) as client:
        assert client.connect().session_present
        client.ping()
        assert not client.inbox


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x36\x00", ReasonCode.MALFORMED_PACKET),
        (encode(Auth(ReasonCode.RE_AUTHENTICATE, AuthProperties("m")), "big", 5), ReasonCode.PROTOCOL_ERROR),
        (b"\x82\x08\0\x01\0\0\x01a\x04\0", ReasonCode.MALFORMED_PACKET),
        (b"\xd0\x00", ReasonCode.PROTOCOL_ERROR),
    ],
    ids=["QoS 3", "AUTH without a method", "options", "PINGRESP"],
)
def test_disconnect_contains_the_reason(bridge: BridgeProcess, unique: str, data: bytes, code: ReasonCode) -> None:
    """MQTT-4.13.1-1, MQTT-3.14.0-1."""
    with client_of(bridge, unique) as client:
        client.send_bytes(data)
        assert ended(client).reason_code == code


def test_keep_alive(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-22."""
    with client_of(bridge, unique, keep_alive=1) as client:
        assert ended(client).reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_the_bridge_reports_its_stop(new_bridge: NewBridge) -> None:
    bridge = new_bridge().start()
    with client_of(bridge, "c") as client:
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGTERM)
        assert ended(client).reason_code == ReasonCode.SERVER_SHUTTING_DOWN


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


def test_violations_of_mqtt_5_are_rejected(bridge: BridgeProcess) -> None:
    """MQTT-3.1.2-2: another level is refused in words of 3.1.1; before CONNECT nothing is said at all."""
    with socket.create_connection(("127.0.0.1", bridge.port)) as connection:
        connection.sendall(b"\x10\x0d\0\x04MQTT\x06\x02\0\0\0\0\x01c")
        assert connection.recv(4) == b"\x20\x02\0\x01"
    with RawClient(bridge.port, "c", level=5) as client:
        client.send_bytes(encode(Publish("t", b""), "big", 5))
        with pytest.raises(ConnectionClosed):
            client.receive()


# The channel rejects the packet before it reaches a queue manager.
@pytest.mark.queue_managers("embedded")
@pytest.mark.parametrize(
    ("packet", "reason_code"),
    [
        ("10 0f 00044d515454 05 03 003c 00 00026162", ReasonCode.MALFORMED_PACKET),
        ("10 12 00044d515454 05 02 003c 03 210000 00026162", ReasonCode.PROTOCOL_ERROR),
        ("10 14 00044d515454 05 02 003c 05 2700000000 00026162", ReasonCode.PROTOCOL_ERROR),
        ("10 ffffff7f 00044d515454", None),
        ("c0 00", None),
    ],
    ids=["reserved flag", "Receive Maximum 0", "Maximum Packet Size 0", "too long", "PINGREQ"],
)
def test_a_connect_that_breaks_a_rule(bridge: BridgeProcess, packet: str, reason_code: ReasonCode | None) -> None:
    """Section 4.13.1: CONNACK says which, where it is a CONNECT of MQTT 5 for all that is known."""
    client = RawClient(bridge.port, "ab", level=5)
    client.send_bytes(bytes.fromhex(packet))
    if reason_code is not None:
        connack = client.expect(Connack)
        assert connack.return_code == reason_code
        assert connack.properties is not None
        assert connack.properties.reason_string
    client.expect_closed()


# The channel rejects the packet before it reaches a queue manager.
@pytest.mark.queue_managers("embedded")
def test_many_user_properties_do_not_hold_up_others(bridge: BridgeProcess, unique: str) -> None:
    """What one packet may hold is bounded, and others are served beside it."""
    many = PublishProperties(user_property=(("", ""),) * 1_001)
    with client_of(bridge, unique) as client, client_of(bridge, f"{unique}-beside") as beside:
        client.send(Publish(unique, b"", 1, False, False, 1, many))
        assert ended(client).reason_code == ReasonCode.QUOTA_EXCEEDED
        refused = RawClient(bridge.port, unique, level=5, properties=ConnectProperties(user_property=many.user_property))
        assert refused.connect().return_code == ReasonCode.QUOTA_EXCEEDED
        beside.ping()


def test_above_the_limit_only_publish_is_rejected(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-10, MQTT-4.9.0-1 to -3."""
    with client_of(bridge, f"{unique}-2") as other, \
         client_of(bridge, unique, properties=ConnectProperties(receive_maximum=1)) as client:  # fmt: skip
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
        lambda client, one: client.send(Pubrec(one, ReasonCode.UNSPECIFIED_ERROR)),
        lambda client, one: (client.send(Pubrec(one)), client.wait_for(Pubrel), client.send(Pubcomp(one, 0x92))),
    ],
    ids=["PUBREC", "PUBCOMP"],
)
def test_a_failure_makes_room(bridge: BridgeProcess, unique: str, refuse: Callable[[RawClient, int], None]) -> None:
    """MQTT-4.4.0-2, section 4.9: a PUBREC of 0x80 and above, and any PUBCOMP, ends a handshake."""
    with client_of(bridge, f"{unique}-2") as other, \
         client_of(bridge, unique, properties=ConnectProperties(receive_maximum=1)) as client:  # fmt: skip
        subscribe(client, unique, 2)
        for number in range(5):
            other.publish(unique, b"%d" % number, 2)
        for number in range(5):
            publish = client.expect(Publish)
            assert publish.payload == b"%d" % number
            refuse(client, publish.message_id)
        client.ping()
        assert not client.inbox


def test_a_message_of_just_the_length_that_the_client_takes(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-24."""
    with client_of(bridge, f"{unique}-2") as other, \
         client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=100)) as client:  # fmt: skip
        subscribe(client, unique, 1)
        room = 100 - len(encode(Publish(unique, b"", 1, False, False, 1), "big", 5))
        for length in (room + 1, room):
            other.publish(unique, b"x" * length, 1)
        publish = client.take()
        assert len(encode(publish, "big", 5)) == 100


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_an_answer_that_the_client_does_not_take(bridge: BridgeProcess, unique: str, kind: type[Packet]) -> None:
    """MQTT-3.1.2-24: with a reason code for each of 40 filters it has 44 bytes and more."""
    names = [f"{unique}/{number}" for number in range(40)]
    with client_of(bridge, unique, properties=ConnectProperties(maximum_packet_size=40)) as client:
        if kind is Subscribe:
            client.send(Subscribe(1, tuple((name, 0) for name in names), options=(SubscriptionOptions(),) * len(names)))
        else:
            client.send(Unsubscribe(1, tuple(names)))
        assert ended(client).reason_code == ReasonCode.PACKET_TOO_LARGE
