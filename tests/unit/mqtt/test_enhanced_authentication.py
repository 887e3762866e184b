"""The AUTH exchange (MQTT 5 section 4.12): each packet in each state."""

from __future__ import annotations

import pytest

from bridge.mqtt.connection import TRANSITIONS, ConnectionState, ServerProtocol
from bridge.mqtt.packets import (
    Auth,
    AuthProperties,
    Connack,
    ConnackProperties,
    Connect,
    ConnectProperties,
    Disconnect,
    Disconnected,
    Event,
    Packet,
    PacketType,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode

CONTINUE, AGAIN = ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE
CONNECT = Connect("c", "MQTT", 5, properties=ConnectProperties(authentication_method="M", authentication_data=b"0"))
RESPONSE = Auth(CONTINUE, AuthProperties("M", b"1"))
ANEW = Auth(AGAIN, AuthProperties("M", b"2"))
OTHERS: list[Packet] = [
    CONNECT,
    Publish("t", b"x", 1, False, False, 1),
    Puback(1),
    Pubrec(1),
    Pubrel(1),
    Pubcomp(1),
    Subscribe(1, (("t", 1),), options=(SubscriptionOptions(),)),
    Unsubscribe(1, ("t",)),
    Pingreq(),
]


def take(protocol: ServerProtocol, *packets: Packet, now: float = 1.0) -> list[Event]:
    return protocol.receive_data(b"".join(encode(packet, "big", 5) for packet in packets), now)


def sent(protocol: ServerProtocol) -> list[Packet]:
    return Decoder(server=False, protocol_level=5).feed(protocol.data_to_send())


def challenged() -> ServerProtocol:
    protocol = ServerProtocol(0.0)
    assert take(protocol, CONNECT) == [CONNECT]
    protocol.challenge(b"nonce")
    assert sent(protocol) == [Auth(CONTINUE, AuthProperties("M", b"nonce"))]
    return protocol


def connected() -> ServerProtocol:
    protocol = challenged()
    assert take(protocol, RESPONSE) == [RESPONSE]
    protocol.accept(1.0, session_present=False, properties=ConnackProperties(authentication_method="M"))
    assert sent(protocol) == [Connack(properties=ConnackProperties(authentication_method="M"))]
    return protocol


def refusal(events: list[Event]) -> str:
    (event,) = events
    assert isinstance(event, Disconnected)
    assert event.reason_code == ReasonCode.PROTOCOL_ERROR
    return event.why


def test_an_exchange_of_two_challenges() -> None:
    protocol = challenged()
    assert take(protocol, RESPONSE) == [RESPONSE]
    assert protocol.state is ConnectionState.AUTHENTICATING
    protocol.challenge(None)
    assert sent(protocol) == [Auth(CONTINUE, AuthProperties("M"))]
    assert take(protocol, RESPONSE) == [RESPONSE]
    protocol.accept(1.0, session_present=False)
    assert protocol.state is ConnectionState.CONNECTED


def test_only_auth_and_disconnect_are_allowed_before_connack() -> None:
    for packet in OTHERS:
        step = TRANSITIONS[ConnectionState.CHALLENGED][PacketType[type(packet).__name__.upper()]]
        assert isinstance(step, str)
        assert step in refusal(take(challenged(), packet))
    assert take(challenged(), Disconnect()) == [Disconnected("", packet=Disconnect())]


def test_packets_after_connect_are_checked_after_its_result_is_known() -> None:
    protocol = ServerProtocol(0.0)
    assert take(protocol, CONNECT, RESPONSE, Pingreq()) == [CONNECT]
    assert protocol.events() == []
    protocol.challenge(None)
    assert protocol.events() == [RESPONSE]
    assert protocol.events() == []
    protocol.challenge(None)
    assert "MQTT-3.1.2-30" in refusal(protocol.events())


@pytest.mark.parametrize(
    ("packet", "statement"),
    [
        (Auth(CONTINUE, AuthProperties("N")), "MQTT-4.12.0-5"),
        (Auth(AGAIN, AuthProperties("N")), "MQTT-4.12.0-5"),
        (ANEW, "section 4.12.1"),
    ],
)
def test_an_invalid_response(packet: Auth, statement: str) -> None:
    assert statement in refusal(take(challenged(), packet))


def test_a_client_authenticates_again() -> None:
    protocol = connected()
    assert take(protocol, ANEW) == [ANEW]
    protocol.challenge(b"nonce")
    (messages,) = take(protocol, Pingreq())  # it continues meanwhile
    assert not isinstance(messages, Disconnected)
    assert take(protocol, RESPONSE) == [RESPONSE]
    protocol.authenticated(b"ok")
    assert sent(protocol) == [
        Auth(CONTINUE, AuthProperties("M", b"nonce")),
        Auth(ReasonCode.SUCCESS, AuthProperties("M", b"ok")),
    ]
    assert take(protocol, ANEW) == [ANEW]


@pytest.mark.parametrize(
    ("before", "packet", "statement"),
    [
        ([], RESPONSE, "section 4.12"),
        ([], Auth(AGAIN, AuthProperties("N")), "MQTT-4.12.0-5"),
        ([ANEW], ANEW, "section 4.12.1"),
        ([ANEW], RESPONSE, "section 4.12"),
    ],
)
def test_an_invalid_auth_of_a_connected_client(before: list[Packet], packet: Auth, statement: str) -> None:
    protocol = connected()
    assert take(protocol, *before) == before
    assert statement in refusal(take(protocol, packet))


def test_auth_of_a_client_without_a_method() -> None:
    protocol = ServerProtocol(0.0)
    take(protocol, Connect("c", "MQTT", 5))
    protocol.accept(0.0, session_present=False)
    assert "AUTH needs an Authentication Method" in refusal(take(protocol, ANEW))


def test_a_client_that_does_not_respond() -> None:
    protocol = challenged()
    assert protocol.deadline() == 10.0
    assert protocol.timeout(10.0) == ""
    assert protocol.timeout(10.1) == "not authenticated within 10 s"


def test_auth_that_exceeds_the_maximum_packet_size_is_not_sent() -> None:
    """MQTT-3.1.2-24: it cannot be sent without its properties."""
    size = len(encode(Auth(CONTINUE, AuthProperties("M", b"nonce")), "big", 5))
    for maximum, fits in ((size, True), (size - 1, False)):
        protocol = ServerProtocol(0.0)
        properties = ConnectProperties(authentication_method="M", maximum_packet_size=maximum)
        take(protocol, Connect("c", "MQTT", 5, properties=properties))
        assert protocol.challenge(b"nonce") is fits
        assert len(sent(protocol)) == fits
