"""`/healthz` and `/readyz` while a bridge runs, hangs, starts or stops."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bridge.administration.answers import BridgeState
from bridge.administration.requests import ShowStatus
from bridge.config.models import Configuration
from bridge.console import metrics
from bridge.console.server import MAX_CONNECTIONS, AdminPort
from bridge.service.administration.handlers import show_status
from bridge.service.lifecycle import Bridge
from tests.helpers.patience import PATIENCE
from tests.helpers.scrape import admin_url, ask
from tests.helpers.unfinished_connections import assert_cut_off, unfinished_connections


class BridgeThread:
    """A bridge with an admin port on a separate event loop, which a test can block."""

    def __init__(self, data_directory: Path) -> None:
        configuration = Configuration(
            queue_manager={"data_directory": data_directory},
            channels=[{"name": "A", "port": 0}, {"name": "B", "port": 0}],
            admin={"port": 0},
        )
        self.printed: list[str] = []
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.bridge = Bridge(configuration, self.printed.append, admin_port=AdminPort)
        self.run(self.bridge.start())
        self.bridge.enter(BridgeState.RUNNING)
        self.url = admin_url(self.printed)

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the event loop. Return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def stop(self) -> None:
        self.run(self.bridge.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeThread]:
    thread = BridgeThread(tmp_path_factory.mktemp("health") / "data")
    yield thread
    thread.stop()


def test_a_healthy_bridge_is_alive_and_ready(running: BridgeThread) -> None:
    assert ask(f"{running.url}/healthz") == (200, "ok\n")
    assert ask(f"{running.url}/readyz") == (200, "ok\n")


@pytest.mark.parametrize(
    "sent", ["", "GET /healthz HTTP/1.1\r\n", "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
def test_incomplete_requests_do_not_keep_others_out(running: BridgeThread, sent: str) -> None:
    """Above the maximum number of connections, those that have waited longest for a request are closed."""
    address = urlsplit(running.url)
    assert address.hostname is not None and address.port is not None
    count = 3 * MAX_CONNECTIONS
    with unfinished_connections(address.hostname, address.port, count, sent.encode()) as oldest:
        assert ask(f"{running.url}/healthz") == (200, "ok\n")
        assert_cut_off(oldest)


def test_connections_of_the_address_with_most_of_them_are_closed_first(running: BridgeThread) -> None:
    address = urlsplit(running.url)
    assert address.hostname is not None and address.port is not None
    place = address.hostname, address.port
    with ExitStack() as connections:

        def connect(source: str) -> socket.socket:
            return connections.enter_context(socket.create_connection(place, PATIENCE, (source, 0)))

        idle = connect("127.0.0.3")
        for _ in range(2 * MAX_CONNECTIONS):
            connect("127.0.0.2")
        assert ask(f"{running.url}/healthz") == (200, "ok\n")
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1_024).startswith(b"HTTP/1.1 200")


@pytest.fixture
def hung(running: BridgeThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgeThread]:
    """The bridge, with a blocked event loop."""
    monkeypatch.setattr(metrics, "TURN_TIMEOUT", 0.1)
    go_on, stands = threading.Event(), threading.Event()

    def hang() -> None:
        stands.set()
        go_on.wait(PATIENCE)

    running.loop.call_soon_threadsafe(hang)
    assert stands.wait(PATIENCE)
    yield running
    go_on.set()
    running.run(asyncio.sleep(0))


@pytest.mark.parametrize("path", ["healthz", "readyz", "metrics"])
def test_a_blocked_event_loop_is_reported(hung: BridgeThread, path: str) -> None:
    """The admin port answers soon, because it has a separate thread."""
    status, text = ask(f"{hung.url}/{path}")
    assert status == 503
    assert "the event loop has not turned" in text


def test_an_event_loop_that_continues_is_healthy(running: BridgeThread) -> None:
    assert ask(f"{running.url}/healthz") == (200, "ok\n")


def test_a_full_disk_makes_the_bridge_unready(running: BridgeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue manager accepts no persistent messages. The bridge is alive, but not ready."""
    reserve = running.bridge.host.queue_manager.recovery_log.reserve
    monkeypatch.setattr(reserve, "_take", lambda: False)
    monkeypatch.setattr(reserve, "full", True)
    assert ask(f"{running.url}/healthz")[0] == 200
    status, text = ask(f"{running.url}/readyz")
    assert status == 503
    assert "accepts no persistent messages" in text
    assert "mqbridge_disk_full 1.0" in ask(f"{running.url}/metrics")[1]
    assert "mqbridge_ready 0.0" in ask(f"{running.url}/metrics")[1]


def test_memory_use_above_the_watermark_is_reported(running: BridgeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge stays ready, because its messages must reach their clients. All reports contain the reason."""
    assert "mqbridge_memory_above_watermark 0.0" in ask(f"{running.url}/metrics")[1]
    memory = running.bridge.host.memory

    async def go_above() -> None:
        # On the event loop of the bridge, so that no sample in progress resets the value.
        memory.stop()
        monkeypatch.setattr(memory, "above", True)

    running.run(go_above())
    assert ask(f"{running.url}/healthz")[0] == 200
    assert running.bridge.administration is not None
    status = running.run(show_status(running.bridge.administration.parts, ShowStatus()))
    (description,) = [problem.what for problem in status.problems]
    assert (
        description.startswith("new messages are rejected: memory use is ") and "limits.memory_watermark" in description
    )
    assert ask(f"{running.url}/readyz") == (200, f"ok\n{description}\n")
    metrics = ask(f"{running.url}/metrics")[1]
    assert "mqbridge_memory_above_watermark 1.0" in metrics
    assert "mqbridge_memory_rejected_messages_total 0.0" in metrics
    assert "mqbridge_ready 1.0" in metrics


def test_a_channel_that_cannot_listen_makes_the_bridge_unready(
    running: BridgeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = "channel B cannot listen on 127.0.0.1:1883: Address already in use"
    monkeypatch.setitem(running.bridge.parts.channels.problems, "B", problem)
    status, text = ask(f"{running.url}/readyz")
    assert (status, text.splitlines()[0]) == (503, problem)


@pytest.mark.parametrize("state", [BridgeState.STARTING, BridgeState.STANDING_BY, BridgeState.STOPPING])
def test_a_bridge_that_is_not_running_is_alive_but_not_ready(running: BridgeThread, state: BridgeState) -> None:
    """A supervisor must not restart a bridge because it starts, stands by or stops."""
    running.bridge.enter(state)
    try:
        status, text = ask(f"{running.url}/readyz")
        assert (status, text.splitlines()[0]) == (503, state)  # problems of earlier tests may follow
        assert ask(f"{running.url}/healthz")[0] == 200
        assert f'state="{state}"}} 1.0' in ask(f"{running.url}/metrics")[1]
    finally:
        running.bridge.enter(BridgeState.RUNNING)
