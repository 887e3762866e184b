"""MQTT 5: wills, on a raw socket. Each test names the statements that it checks."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import (
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    PacketType,
    PublishProperties,
    Will,
    WillProperties,
)
from bridge.mqtt.reason_codes import FROM_CLIENT, ReasonCode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mqtt_5_client import client_of, ended, subscribe
from tests.helpers.patience import until
from tests.helpers.raw_client import RawClient


def test_a_will_has_properties(bridge: BridgeProcess, unique: str) -> None:
    properties: dict[str, Any] = {
        "payload_format_indicator": 1,
        "content_type": "c",
        "response_topic": "r",
        "correlation_data": b"d",
        "user_property": (("k", "v"),),
    }
    with client_of(bridge, unique) as witness:
        subscribe(witness, unique)
        with client_of(bridge, f"{unique}-2", will=Will(unique, b"w", 1, properties=WillProperties(**properties))):
            pass
        publication = witness.take()
        assert (publication.payload, publication.properties) == (b"w", PublishProperties(**properties))


def test_disconnect_with_will(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-8, MQTT-3.1.2-10, MQTT-3.14.4-3: the will is published once, for each reason except Normal disconnection."""
    codes = sorted(FROM_CLIENT[PacketType.DISCONNECT])
    with client_of(bridge, unique) as witness:
        subscribe(witness, unique)
        for code in codes:
            with client_of(bridge, f"{unique}-2", will=Will(unique, b"%d" % code)) as client:
                client.send(Disconnect(code))
                client.expect_closed()
        assert [int(witness.take().payload) for _ in codes[1:]] == codes[1:]
        witness.publish(unique, b"end")
        assert witness.take().payload == b"end"


def test_a_client_that_returns_in_time_leaves_no_will(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.3-9: a new session ends the previous one, whose will is published."""
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


@pytest.mark.parametrize(
    ("expiry", "delay"),
    [(600, 0), (600, 1), (1, 600), (0, 600)],
    ids=["no delay", "delay", "session's end", "no session"],
)
def test_the_time_at_which_a_will_is_published(bridge: BridgeProcess, unique: str, expiry: int, delay: int) -> None:
    """MQTT-3.1.2-8, section 3.1.3.2.2: after its delay or at the end of its session. The interval of DISCONNECT applies."""
    will = Will(unique, b"w", 1, properties=WillProperties(will_delay_interval=delay))
    session = ConnectProperties(session_expiry_interval=300)
    with client_of(bridge, f"{unique}-2") as witness:
        subscribe(witness, unique, 1)
        with client_of(bridge, unique, will=will, properties=session) as client:
            client.send(Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, DisconnectProperties(expiry)))
            client.expect_closed()
        assert witness.take().payload == b"w"
    with RawClient(bridge.port, unique, level=5, clean=False, properties=ConnectProperties()) as client:
        assert client.connect().session_present is (expiry == 600)


@pytest.mark.parametrize("clean", [False, True], ids=["goes on", "begins again"])
def test_a_delayed_will_and_a_takeover_of_the_session(bridge: BridgeProcess, unique: str, clean: bool) -> None:
    """MQTT-3.1.3-9, MQTT-3.1.4-3: the will of the older connection is published unless its session continues."""
    will = Will(f"{unique}/will", b"w", properties=WillProperties(will_delay_interval=600))
    session = ConnectProperties(session_expiry_interval=600)
    with client_of(bridge, f"{unique}-2") as witness:
        subscribe(witness, f"{unique}/#", 0)
        with (
            client_of(bridge, unique, will=will, properties=session) as first,
            client_of(bridge, unique, clean=clean) as second,
        ):
            assert ended(first).reason_code == ReasonCode.SESSION_TAKEN_OVER
            second.publish(f"{unique}/end", b"")
            topics = [f"{unique}/will"] * clean + [f"{unique}/end"]
            assert [witness.take().topic for _ in topics] == topics


def test_the_will_of_the_latest_connection_applies(bridge: BridgeProcess, unique: str) -> None:
    """MQTT-3.1.2-7, MQTT-3.1.2-10: a will belongs to one connection, and has its own expiry."""
    properties = WillProperties(message_expiry_interval=600, user_property=(("b", "1"), ("a", "2"), ("b", "3")))
    with client_of(bridge, f"{unique}-2") as witness:
        subscribe(witness, unique)
        with client_of(bridge, unique, will=Will(unique, b"first", 2)) as client:
            client.send(Disconnect())
            client.expect_closed()
        with client_of(bridge, unique, will=Will(unique, b"second", 2, properties=properties)):
            pass
        with client_of(bridge, unique):
            pass
        publication = witness.take()
        assert (publication.payload, publication.qos) == (b"second", 2) and publication.properties is not None
        assert publication.properties.user_property == properties.user_property, "MQTT-3.1.3-10"
        assert 500 < (publication.properties.message_expiry_interval or 0) <= 600
        witness.publish(unique, b"end")
        assert witness.take().payload == b"end"


def test_will_without_payload_clears_a_retained_publication(bridge: BridgeProcess, unique: str) -> None:
    with RawClient.connected(bridge.port, f"{unique}-w") as witness:
        witness.publish(unique, b"alive", 1, retain=True)
        witness.subscribe((unique, 1))
        assert witness.take().payload == b"alive"
        RawClient.connected(bridge.port, f"{unique}-m", will=Will(unique, b"", 1, True)).vanish()
        assert witness.take().payload == b""

        def is_cleared() -> bool:
            witness.unsubscribe(unique)
            witness.subscribe((unique, 1))
            witness.publish(unique, b"end", 1)
            payloads = [witness.take().payload]
            while payloads[-1] != b"end":
                payloads.append(witness.take().payload)
            return payloads == [b"end"]

        # On IBM MQ, the bridge clears the retained publication after the commit.
        until(is_cleared)
