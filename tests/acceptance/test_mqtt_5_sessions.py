"""MQTT 5, sessions, on a raw socket; each test names the statements that it holds the bridge to."""

from __future__ import annotations

import pytest

from bridge.wire.mqtt import (
    ConnectProperties,
    Disconnect,
    DisconnectProperties,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Will,
    WillProperties,
)
from tests.acceptance.mqtt_5_client import EVERYTHING, client_of, ended, subscribe
from tests.support.bridge_process import BridgeProcess
from tests.support.raw_client import RawClient


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
