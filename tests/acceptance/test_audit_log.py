"""The audit log of a real bridge: early rejections and session takeovers."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.raw_client import ConnectionClosed, RawClient

CONFIG = """
audit_log: {{file: {0}/audit.jsonl}}
queue_manager:
  listener: {{port: 0, max_connections: 2, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
channels:
  - {{name: FREE, port: 0}}
  - {{name: FULL, port: 0, max_clients: 1}}
  - {{name: ADDRESS, port: 0, max_clients_per_address: 1}}
  - {{name: RATE, port: 0, connect_rate: 1}}
  - {{name: TLS, port: 0, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
  - {{name: WS, port: 0, websocket: {{}}}}
  - {{name: PROXIED, port: 0, proxies: [127.0.0.1]}}
  - {{name: ELSEWHERE, port: 0, proxies: [192.0.2.0/24]}}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("audit")
    Authority(directory).issue("server")
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        yield process


def entries(bridge: BridgeProcess, event: str, **facts: str) -> list[dict[str, Any]]:
    """Return the entries of an event with these facts."""
    text = (bridge.data_directory.parent / "audit.jsonl").read_text(encoding="utf-8")
    events = [entry for entry in map(json.loads, text.splitlines()) if entry["event"] == event]
    return [entry for entry in events if facts.items() <= entry.items()]


@pytest.mark.parametrize(
    ("channel", "there", "sent", "why"),
    [
        ("FULL", 1, b"", "max_clients (1) are connected"),
        ("ADDRESS", 1, b"", "max_clients_per_address (1) of 127.0.0.1 are connected"),
        ("ELSEWHERE", 0, b"", "it does not come from a proxy of this channel (proxies)"),
        ("PROXIED", 0, b"no PROXY header\r\n", "PROXY protocol"),
        ("TLS", 0, b"GET / HTTP/1.1\r\n\r\n", "the TLS handshake fails: it speaks HTTP without TLS"),
        ("WS", 0, b"no HTTP\r\n\r\n", "it did not send an HTTP request, with which a WebSocket begins"),
    ],
)
def test_rejections_before_connect(bridge: BridgeProcess, channel: str, there: int, sent: bytes, why: str) -> None:
    """Address, channel and reason are recorded, as in the log."""
    port = bridge.ports[channel]
    with ExitStack() as stack:
        for number in range(there):
            stack.enter_context(RawClient.connected(port, f"{channel} {number}"))
        client = stack.enter_context(RawClient(port, "refused"))
        with suppress(ConnectionClosed):
            client.send_bytes(sent)
        eventually(lambda: len(entries(bridge, "refused", channel=channel)), 1)
        (entry,) = entries(bridge, "refused", channel=channel)
        assert why in entry["why"]
        assert re.fullmatch(r"127\.0\.0\.1:\d+", entry["address"])
        assert entry["client"] == ""


def test_frequent_connections(bridge: BridgeProcess) -> None:
    def reasons() -> set[str]:
        with RawClient(bridge.ports["RATE"], "fast"):
            return {entry["why"] for entry in entries(bridge, "refused", channel="RATE")}

    eventually(reasons, {"127.0.0.1 connects more often than 1 times in a second (connect_rate)"})


def test_a_session_that_is_taken_over(bridge: BridgeProcess) -> None:
    """The entry contains the previous channel and the new owner."""
    with RawClient.connected(bridge.ports["FREE"], "mine"):
        with RawClient.connected(bridge.ports["FREE"], "mine") as other:
            host, port = other.socket.getsockname()
        eventually(lambda: len(entries(bridge, "taken over", client="mine", by=f"{host}:{port}", channel="FREE")), 1)


@pytest.mark.parametrize(
    ("there", "sent", "why"),
    [
        (0, b"GET / HTTP/1.1\r\n\r\n", "TLS: "),
        (2, b"", "max_connections 2 is reached"),
    ],
)
def test_applications_before_authentication(bridge: BridgeProcess, there: int, sent: bytes, why: str) -> None:
    (port,) = re.findall(r"MQ applications connect at 127\.0\.0\.1:(\d+)", "".join(bridge.announced))
    with ExitStack() as stack:
        for _ in range(there + 1):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", int(port)), PATIENCE))
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            while connection.recv(100):
                pass

        def addresses() -> set[str]:
            refused = entries(bridge, "application refused")
            return {entry["address"] for entry in refused if entry["why"].startswith(why)}

        eventually(addresses, {"127.0.0.1"})
