"""Links to a mosquitto over WebSockets, and with several addresses."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.config.link import LinkConfig
from bridge.link.state import LinkPhase
from bridge.link.trial import TrialFailed, reach, try_link
from bridge.telemetry.message import Publication
from tests.helpers.certificate_authority import make
from tests.helpers.mosquitto import Mosquitto, free_port, tls_settings
from tests.helpers.patience import PATIENCE, until
from tests.helpers.tested_link import LinkFactory, ready

MosquittoFactory = Callable[..., Mosquitto]


def with_websockets(mosquitto: MosquittoFactory, *settings: str) -> tuple[Mosquitto, int]:
    """Start a mosquitto with a second listener, for WebSockets. Return its port. mosquitto 2.0.11 also needs a TCP
    listener.
    """
    port = free_port()
    # Without this option, libwebsockets cannot listen on a machine without IPv6.
    listener = (f"listener {port} 127.0.0.1", "socket_domain ipv4", "protocol websockets")
    broker = mosquitto("allow_anonymous true", *listener, *settings)
    until_open(port)
    return broker, port


def until_open(port: int) -> None:
    def is_open() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    until(is_open)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_both_directions_over_a_websocket(
    mosquitto: MosquittoFactory, link: LinkFactory, version: str, qos: int, tls: bool, tmp_path: Path
) -> None:
    """Thousands of messages, and one longer than a frame of the link."""
    options: dict[str, Any] = {"transport": "websocket", "in_flight": 500}
    settings: tuple[str, ...] = ()
    if tls:
        make(tmp_path)
        settings = tls_settings(tmp_path)
        options |= {"host": "localhost", "tls": {"ca_file": tmp_path / "ca.pem"}}
    _, port = with_websockets(mosquitto, *settings)
    receiver = ready(link(port, version, "in", topic_filter="t/#", qos=qos, **options))
    sender = ready(link(port, version, "out", **options))
    payloads = [str(index).encode() for index in range(2000 if qos else 300)]
    payloads.insert(100, bytes(range(256)) * 300)
    assert sender.publish([Publication(topic="t/x", payload=payload, qos=qos) for payload in payloads]) == {}
    received: list[bytes] = []
    while len(received) < len(payloads):
        arrivals = receiver.take(500, 1 << 30, PATIENCE)
        received += [message.publication.payload for message in arrivals]
        receiver.acknowledge(arrivals)
        receiver.complete(receiver.released())
    assert received == payloads
    assert receiver.stop(PATIENCE) and sender.stop(PATIENCE)


def test_a_link_test_over_a_websocket(mosquitto: MosquittoFactory) -> None:
    _, port = with_websockets(mosquitto)
    config = LinkConfig(host="127.0.0.1", port=port, transport="websocket", version="5")
    steps = [step.split(":")[0] for step in try_link("L", config, lambda: None)]
    assert steps == ["resolved", "TCP", "WebSocket", "CONNACK", "QoS 2"]


def test_a_link_test_of_a_broker_without_websockets(mosquitto: MosquittoFactory) -> None:
    config = LinkConfig(host="127.0.0.1", port=mosquitto().port, transport="websocket")
    with pytest.raises(TrialFailed, match="WebSocket handshake with"):
        list(reach(config))


def test_failover(
    mosquitto: MosquittoFactory, link: LinkFactory, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Addresses are tried in turn. State and log contain the current address."""
    first, second = mosquitto(), mosquitto()
    places = [f"127.0.0.1:{broker.port}" for broker in (first, second)]
    with caplog.at_level(logging.INFO):
        connected = link(first.port, failover=[places[1]])
        assert connected.state_where(LinkPhase.CONNECTED).address == places[0]
        first.stop()
        assert connected.state_where(LinkPhase.CONNECTED).address == places[1] == connected.address
        assert connected.publish([Publication(topic="t", payload=b"x", qos=1)]) == {}
        first.start()
        second.stop()
        assert connected.state_where(LinkPhase.CONNECTED).address == places[0]
    lines = [message for message in caplog.messages if "connected to" in message and "not" not in message]
    assert [place for message in lines for place in places if f"connected to {place} as" in message] == [
        *places,
        places[0],
    ]


def test_a_link_test_of_several_addresses(mosquitto: MosquittoFactory) -> None:
    nowhere, there = f"127.0.0.1:{free_port()}", mosquitto().port
    config = LinkConfig(host="127.0.0.1", port=there, failover=[nowhere])
    steps = list(try_link("L", config, lambda: None))
    assert [step.split(":")[0] for step in steps] == ["resolved", "TCP", "resolved", "FAILED", "CONNACK", "QoS 2"]
    assert f"accepted at 127.0.0.1:{there} as" in steps[-2]
    nowhere_else = LinkConfig(host="127.0.0.1", port=free_port(), failover=[nowhere])
    with pytest.raises(TrialFailed, match=nowhere):
        list(reach(nowhere_else))
