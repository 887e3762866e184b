"""MQTT 5, packet by packet, on a raw socket; each test names the statements that it holds the bridge to."""

from __future__ import annotations

import signal
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from bridge.wire.mqtt import (
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscribeProperties,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Will,
    WillProperties,
    encode,
)
from tests.support.bridge_process import BridgeProcess
from tests.support.raw_client import ConnectionClosed, RawClient

NewBridge = Callable[..., BridgeProcess]
#: Every property of a publication that goes from client to client.
EVERYTHING = PublishProperties(
    payload_format_indicator=1,
    content_type="text/plain",
    response_topic="answers/here",
    correlation_data=b"\0id\xff" * 10,
    user_property=(("site", "Köln"), ("site", "Bonn"), ("", "no name"), ("a b", "")),
)


def client_of(bridge: BridgeProcess, name: str, **options: Any) -> RawClient:
    return RawClient.connected(bridge.port, name, level=5, **options)


def subscribe(
    client: RawClient, topic_filter: str, qos: int = 2, identifier: int | None = None, **options: Any
) -> tuple[int, ...]:
    message_id = client.next_message_id()
    properties = None if identifier is None else SubscribeProperties(identifier)
    client.send(
        Subscribe(message_id, ((topic_filter, qos),), options=(SubscriptionOptions(**options),), properties=properties)
    )
    return client.wait_for(Suback).return_codes


def ended(client: RawClient) -> Disconnect:
    """The DISCONNECT of the server, behind which it closes."""
    packet = client.wait_for(Disconnect)
    came, client.inbox = client.inbox, deque()
    client.expect_closed()
    client.inbox = came
    return packet


# Publications -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "properties",
    [None, EVERYTHING, PublishProperties(payload_format_indicator=0), PublishProperties(correlation_data=b"\0" * 24),
     PublishProperties(user_property=(("b", "1"), ("a", "2")))],
    ids=["none", "everything", "unspecified bytes", "NULs", "order"],
)  # fmt: skip
def test_properties_come_as_they_were_published(
    bridge: BridgeProcess, unique: str, qos: int, properties: PublishProperties | None
) -> None:
    """MQTT-3.3.2-4, -15, -16, -17, -18, -20; a client of 3.1.1 gets the payload alone."""
    with client_of(bridge, unique) as client, RawClient.connected(bridge.port, f"{unique}-4") as old:
        subscribe(client, unique)
        old.subscribe((unique, 2))
        message_id = client.next_message_id() if qos else 0
        client.send(Publish(unique, b"21.5", qos, False, False, message_id, properties))
        got = client.wait_for(Publish)
        assert (got.topic, got.payload, got.qos, got.properties) == (unique, b"21.5", qos, properties)
        assert old.take().payload == b"21.5"


def test_what_is_left_of_the_expiry_goes_with_the_message(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-5, -6."""
    with client_of(bridge, unique) as client:
        subscribe(client, unique)
        client.send(Publish(unique, b"", 1, False, False, 1, PublishProperties(message_expiry_interval=600)))
        got = client.wait_for(Publish)
        assert got.properties is not None and got.properties.message_expiry_interval is not None
        assert 500 < got.properties.message_expiry_interval <= 600


def test_a_topic_alias_stands_for_its_topic(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-7 to -12; an alias can be given to another topic."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/#")
        alias = PublishProperties(topic_alias=1)
        for topic, full in (("a", f"{unique}/a"), ("a", ""), ("b", f"{unique}/b"), ("b", "")):
            client.send(Publish(full, topic.encode(), properties=alias))
            got = client.expect(Publish)
            assert (got.topic, got.payload, got.properties) == (f"{unique}/{topic}", topic.encode(), None)


@pytest.mark.parametrize(
    ("alias", "code"),
    [(2, ReasonCode.PROTOCOL_ERROR), (65_535, ReasonCode.TOPIC_ALIAS_INVALID)],
    ids=["unknown", "too large"],
)
def test_a_topic_alias_that_is_wrong(bridge: BridgeProcess, unique: str, alias: int, code: ReasonCode) -> None:
    with client_of(bridge, unique) as client:
        client.send(Publish("", b"", properties=PublishProperties(topic_alias=alias)))
        assert ended(client).reason_code == code


def test_the_server_uses_topic_aliases_where_the_client_takes_them(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.2-9, -10: never more than the client takes; the topics sent last have them."""
    with client_of(bridge, unique, properties=ConnectProperties(topic_alias_maximum=2)) as client:
        subscribe(client, f"{unique}/#")
        seen = []
        for name in "aabbaca":
            client.publish(f"{unique}/{name}", b"x")
            got = client.expect(Publish)
            assert got.properties is not None
            seen.append((got.topic, got.properties.topic_alias))
        a, b, c = (f"{unique}/{name}" for name in "abc")
        assert seen == [(a, 1), ("", 1), (b, 2), ("", 2), ("", 1), (c, 2), ("", 1)]


# Subscriptions ----------------------------------------------------------------------------------------------------------


def test_no_local(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.8.3-3."""
    with client_of(bridge, unique) as client, client_of(bridge, f"{unique}-2") as other:
        subscribe(client, unique, 1, no_local=True)
        client.publish(unique, b"own", 1)
        other.publish(unique, b"other's", 1)
        assert client.take().payload == b"other's"


def test_retain_as_published(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.1-12, -13."""
    with client_of(bridge, unique) as as_published, client_of(bridge, f"{unique}-2") as plain:
        subscribe(as_published, unique, 1, retain_as_published=True)
        subscribe(plain, unique, 1)
        for retain in (True, False):
            plain.publish(unique, b"x", 1, retain=retain)
            assert (as_published.take().retain, plain.take().retain) == (retain, False)


def test_retain_handling(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.1-9, -10, -11: 0 each time, 1 for a new subscription only, 2 never."""
    with client_of(bridge, unique) as client:
        client.publish(unique, b"kept", 1, retain=True)
        got = []
        for number, handling in enumerate((2, 1, 0, 1)):
            subscribe(client, unique, 1, retain_handling=handling)
            client.publish(f"{unique}/end", b"")  # nothing to be sent for it
            subscribe(client, f"{unique}/mark{number}", 0)
            client.publish(f"{unique}/mark{number}", b"mark")
            while (publish := client.take()).payload != b"mark":
                got.append((handling, publish.payload, publish.retain))
        assert got == [(0, b"kept", True)]
        client.send(Unsubscribe(900, (unique,)))
        assert client.wait_for(Unsuback).reason_codes == (0,)
        subscribe(client, unique, 1, retain_handling=1)
        assert client.take().payload == b"kept"
        client.publish(unique, b"", 1, retain=True)


def test_subscription_identifiers(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.3.4-3, -4, -5: one message for each subscription that matches, with its identifier; altered by the next."""
    with client_of(bridge, unique) as client:
        subscribe(client, f"{unique}/a", 0, identifier=1)
        subscribe(client, f"{unique}/#", 0, identifier=268_435_455)
        subscribe(client, f"{unique}/+", 0)
        client.publish(f"{unique}/a", b"")
        got = [client.expect(Publish).properties for _ in range(3)]
        identifiers = sorted(one.subscription_identifier if one is not None else () for one in got)
        assert identifiers == [(), (1,), (268_435_455,)]
        subscribe(client, f"{unique}/a", 0, identifier=7)
        client.publish(f"{unique}/a", b"")
        got = [client.expect(Publish).properties for _ in range(3)]
        assert (7,) in [one.subscription_identifier for one in got if one is not None]


def test_reason_codes_of_suback_and_unsuback(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.9.3-1, -2; MQTT-3.11.3-1, -2."""
    with client_of(bridge, unique) as client:
        filters = ((f"{unique}/a", 2), (f"{unique}/b#", 1), ("", 0), (f"{unique}/c", 0))
        client.send(Subscribe(1, tuple(one for one in filters if one[0])))
        assert client.wait_for(Suback).return_codes == (2, ReasonCode.TOPIC_FILTER_INVALID, 0)
        client.send(Unsubscribe(2, (f"{unique}/a", f"{unique}/never")))
        assert client.wait_for(Unsuback).reason_codes == (0, ReasonCode.NO_SUBSCRIPTION_EXISTED)


# Sessions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expiry", "kept"), [(None, False), (0, False), (600, True), (0xFFFFFFFF, True)], ids=["absent", "0", "600", "never"]
)
def test_session_expiry_interval(bridge: BridgeProcess, unique: str, expiry: int | None, kept: bool) -> None:
    """MQTT-3.1.2-4, -5, -6, -23: what waits meanwhile is sent to the client when it is back, in a session that is present."""
    properties = ConnectProperties(session_expiry_interval=expiry)
    with client_of(bridge, unique, clean=True, properties=properties) as client:
        subscribe(client, unique, 1)
        client.send(Disconnect())
        client.expect_closed()
    with client_of(bridge, f"{unique}-2") as other:
        other.publish(unique, b"while away", 1)
    client = RawClient(bridge.port, unique, clean=False, level=5, properties=properties)
    with client:
        assert client.connect().session_present is kept
        if kept:
            assert client.take().payload == b"while away"
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=0)))
        client.expect_closed()
    with RawClient(bridge.port, unique, clean=False, level=5) as client:
        assert client.connect().session_present is False


def test_an_expired_session_leaves_nothing_behind(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-4.1.0-2; its will, which was to wait longer, is published when it ends (MQTT-3.1.3-9)."""
    properties = ConnectProperties(session_expiry_interval=1)
    will = Will(f"{unique}/will", b"gone", 1, properties=WillProperties(will_delay_interval=600))
    with client_of(bridge, f"{unique}-2") as other:
        subscribe(other, f"{unique}/will", 1)
        with client_of(bridge, unique, properties=properties, will=will) as client:
            subscribe(client, unique, 1)
        other.publish(unique, b"for nobody", 1)
        assert other.take().payload == b"gone"
    with RawClient(bridge.port, unique, clean=False, level=5) as client:
        assert client.connect().session_present is False
        subscribe(client, f"{unique}/end", 0)
        client.publish(f"{unique}/end", b"end")
        assert client.take().payload == b"end"


def test_a_session_that_was_to_end_cannot_be_made_to_stay(bridge: BridgeProcess, unique: str) -> None:
    """MQTT 5 section 3.14.2.2.2."""
    with client_of(bridge, unique) as client:
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=60)))
        assert ended(client).reason_code == ReasonCode.PROTOCOL_ERROR


def test_clean_start_ends_the_session_of_before(bridge: BridgeProcess, unique: str) -> None:
    properties = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, unique, properties=properties) as client:
        subscribe(client, unique, 1)
    with RawClient(bridge.port, unique, clean=True, level=5, properties=properties) as client:
        assert client.connect().session_present is False
        client.publish(unique, b"x", 1)
        client.send(Disconnect(properties=DisconnectProperties(session_expiry_interval=0)))
        client.expect_closed()


def test_a_session_is_taken_over(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.4-3."""
    with client_of(bridge, unique) as first, client_of(bridge, unique):
        assert ended(first).reason_code == ReasonCode.SESSION_TAKEN_OVER


def test_a_durable_session_is_the_same_in_either_version(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, unique, clean=False) as old:
        old.subscribe((unique, 2))
    with client_of(bridge, f"{unique}-2") as other:
        other.send(Publish(unique, b"1", 2, False, False, 1, EVERYTHING))
        other.wait_for(Pubrec)
        other.send(Pubrel(1))
        other.wait_for(Pubcomp)
    with RawClient(bridge.port, unique, clean=False, level=5) as client:
        assert client.connect().session_present
        got = client.expect(Publish)
        assert (got.payload, got.properties) == (b"1", EVERYTHING)
    with RawClient(bridge.port, unique, clean=False) as old:
        assert old.connect().session_present
        again = old.expect(Publish)
        assert (again.payload, again.dup, again.message_id) == (b"1", True, got.message_id)
        old.acknowledge(again)
    with RawClient.connected(bridge.port, unique):
        pass


# Wills ------------------------------------------------------------------------------------------------------------------


def test_a_will_has_properties(bridge: BridgeProcess, unique: str) -> None:
    said: dict[str, Any] = {
        "payload_format_indicator": 1,
        "content_type": "c",
        "response_topic": "r",
        "correlation_data": b"d",
        "user_property": (("k", "v"),),
    }
    with client_of(bridge, unique) as witness:
        subscribe(witness, unique)
        with client_of(bridge, f"{unique}-2", will=Will(unique, b"w", 1, properties=WillProperties(**said))):
            pass
        got = witness.take()
        assert (got.payload, got.properties) == (b"w", PublishProperties(**said))


def test_disconnect_with_will(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.14.4-3: Disconnect with Will Message."""
    with client_of(bridge, unique) as witness:
        subscribe(witness, unique)
        for code in (ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE):
            with client_of(bridge, f"{unique}-2", will=Will(unique, b"%d" % code)) as client:
                client.send(Disconnect(code))
                client.expect_closed()
        assert witness.take().payload == b"4"


def test_a_client_that_is_back_in_time_leaves_no_will(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.3-9; a session that is begun anew ends the one before, whose will is published."""
    will = Will(f"{unique}/will", b"w", properties=WillProperties(will_delay_interval=600))
    session = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, f"{unique}-2") as witness:
        subscribe(witness, f"{unique}/#", 0)
        for clean in (True, False):
            with client_of(bridge, unique, clean=clean, will=will, properties=session):
                pass
        witness.publish(f"{unique}/so-far", b"none")
        assert witness.take().payload == b"none"
        with client_of(bridge, unique, clean=True) as client:
            assert witness.take().payload == b"w"
            client.send(Disconnect())
            client.expect_closed()


# Flow control, limits, refusals -----------------------------------------------------------------------------------------


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


def test_what_a_channel_grants(new_bridge: NewBridge) -> None:
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
def test_connack_says_why(bridge: BridgeProcess, options: dict[str, Any], code: ReasonCode) -> None:
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
        client.publish("open", b"x", 2)
    with client_of(bridge, "p", properties=ConnectProperties(request_problem_information=0)) as client:
        client.send(Publish("closed", b"x", 1, False, False, 1))
        assert client.expect(Puback).properties is None


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
def test_disconnect_says_what_was_wrong(bridge: BridgeProcess, unique: str, data: bytes, code: ReasonCode) -> None:
    """MQTT-4.13.1-1, MQTT-3.14.0-1."""
    with client_of(bridge, unique) as client:
        client.send_bytes(data)
        assert ended(client).reason_code == code


def test_keep_alive(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-22."""
    with client_of(bridge, unique, keep_alive=1) as client:
        assert ended(client).reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_the_bridge_says_that_it_stops(new_bridge: NewBridge) -> None:
    bridge = new_bridge().start()
    with client_of(bridge, "c") as client:
        assert bridge.process is not None
        bridge.process.send_signal(signal.SIGTERM)
        assert ended(client).reason_code == ReasonCode.SERVER_SHUTTING_DOWN


def test_nothing_behind_disconnect_is_taken(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.14.4-1, -2."""
    with client_of(bridge, unique) as witness:
        subscribe(witness, unique, 0)
        with client_of(bridge, f"{unique}-2") as client:
            client.send(Disconnect(), Publish(unique, b"late"))
            client.expect_closed()
        witness.send(Pingreq())
        witness.publish(unique, b"next")
        assert witness.wait_for(Publish).payload == b"next"


def test_what_is_no_mqtt_5_is_refused(bridge: BridgeProcess) -> None:
    """MQTT-3.1.2-2: another level is refused in words of 3.1.1; before CONNECT nothing is said at all."""
    with socket.create_connection(("127.0.0.1", bridge.port)) as connection:
        connection.sendall(b"\x10\x0d\0\x04MQTT\x06\x02\0\0\0\0\x01c")
        assert connection.recv(4) == b"\x20\x02\0\x01"
    with RawClient(bridge.port, "c", level=5) as client:
        client.send_bytes(encode(Publish("t", b""), "big", 5))
        with pytest.raises(ConnectionClosed):
            client.receive()
