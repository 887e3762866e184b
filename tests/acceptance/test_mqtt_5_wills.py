"""MQTT 5, wills, on a raw socket; each test names the statements that it holds the bridge to."""

from __future__ import annotations

from typing import Any

from bridge.wire.mqtt import (
    ConnectProperties,
    Disconnect,
    PublishProperties,
    ReasonCode,
    Will,
    WillProperties,
)
from tests.acceptance.mqtt_5_client import client_of, subscribe
from tests.support.bridge_process import BridgeProcess


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
