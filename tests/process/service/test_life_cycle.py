"""The parts of a bridge end in the reverse order of their start, also if the start fails."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import pytest

import bridge.mq
from bridge.administration.answers import BridgeState
from bridge.archive.writer import ArchiveError
from bridge.config.models import Configuration
from bridge.console.server import AdminPort
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.host import EmbeddedHost
from bridge.mq.host import HostError
from bridge.mq.mqi import MQError
from bridge.mqtt.packets import Will
from bridge.security import audit_log
from bridge.service import lifecycle, recorder
from bridge.service.channels import Channels
from bridge.service.foreground import Foreground
from bridge.service.lifecycle import STAND_BY, Bridge, StartError
from bridge.service.mappings.registry import Mappings
from bridge.service.supervisor import Supervisor
from bridge.service.tracing import TracesError
from bridge.service.wills import Wills
from bridge.wire import cmqc
from tests.helpers.patience import happens
from tests.helpers.raw_client import ConnectionClosed, RawClient


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """Start a bridge with all parts: admin port, control socket, archive, traces, audit log, channels and a mapping."""
    (tmp_path / "data").mkdir()
    return Configuration(
        queue_manager={"data_directory": tmp_path / "data"},
        channels=[{"name": "A", "port": 0}, {"name": "B", "port": 0}],
        admin={"port": 0},
        archive={"directory": tmp_path / "archive"},
        traces={"endpoint": "http://127.0.0.1:9/v1/traces"},
        audit_log={"file": tmp_path / "audit.log"},
        mappings={"m": {"from": {"mqtt": "a"}, "to": {"queue": "Q"}}},
    )


def left_threads(before: Sequence[threading.Thread]) -> list[str]:
    """Return the names of the threads that were started since, except those that the process keeps."""
    prefixes = ("asyncio_", "uvloop_", "parked threads")
    return [
        thread.name for thread in threading.enumerate() if thread not in before and not thread.name.startswith(prefixes)
    ]


#: Places where a start can fail: the object, its attribute, and the error.
FAILURES: list[tuple[object, str, BaseException]] = [
    (AdminPort, "start", OSError(98, "planned")),
    (lifecycle, "host_of", HostError("planned")),
    (EmbeddedHost, "start", HostError("planned")),
    (recorder, "Recorder", ArchiveError("planned")),
    (lifecycle, "tracing_of", TracesError("planned")),
    (lifecycle, "QueueManagerWatch", MQError(cmqc.MQRC_Q_MGR_NOT_AVAILABLE, "planned")),
    (EmbeddedBackend, "open", MQError(cmqc.MQRC_OBJECT_IN_USE, "planned")),
    (EmbeddedBackend, "start", MQError(cmqc.MQRC_UNEXPECTED_ERROR, "planned")),
    (EmbeddedHost, "listen", HostError("planned")),
    (audit_log, "begin", OSError(13, "planned")),
    (Mappings, "start", HostError("planned")),
    (lifecycle, "started", HostError("planned")),
]


@pytest.mark.parametrize(("place", "attribute", "error"), FAILURES, ids=[attribute for _, attribute, _ in FAILURES])
async def test_a_failed_start_leaves_nothing_running(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch, place: object, attribute: str, error: BaseException
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    before = Running()
    with monkeypatch.context() as patch:
        patch.setattr(place, attribute, fail)
        with pytest.raises(StartError, match="planned"):
            await Bridge(configuration, lambda _: None, admin_port=AdminPort).start()
    await assert_nothing_runs(configuration, before)


async def test_a_channel_that_cannot_listen_leaves_nothing_running(configuration: Configuration) -> None:
    before = Running()
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        channels = [
            configuration.channels[0],
            configuration.channels[1].model_copy(update={"port": occupied.getsockname()[1]}),
        ]
        running = Bridge(configuration.model_copy(update={"channels": channels}), lambda _: None, admin_port=AdminPort)
        with pytest.raises(StartError, match="channel B cannot listen"):
            await running.start()
    await assert_nothing_runs(configuration, before)


@pytest.mark.parametrize(
    ("place", "attribute"), [(EmbeddedBackend, "open"), (EmbeddedHost, "start"), (Channels, "begin")]
)
async def test_a_cancelled_start_leaves_nothing_running(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch, place: type, attribute: str
) -> None:
    reached = asyncio.Event()

    async def wait(*_arguments: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    before = Running()
    with monkeypatch.context() as patch:
        patch.setattr(place, attribute, wait)
        starting = asyncio.create_task(Bridge(configuration, lambda _: None, admin_port=AdminPort).start())
        await reached.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await assert_nothing_runs(configuration, before)


async def test_a_start_cancelled_while_the_queue_manager_opens_closes_it(
    configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, may_open, host_of = threading.Event(), threading.Event(), bridge.mq.host_of

    def slow(*arguments: Any) -> Any:
        reached.set()
        may_open.wait()
        return host_of(*arguments)

    before = Running()
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "host_of", slow)
        starting = asyncio.create_task(Bridge(configuration, lambda _: None, admin_port=AdminPort).start())
        await asyncio.to_thread(reached.wait)
        starting.cancel()
        may_open.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await assert_nothing_runs(configuration, before)


class Running:
    """The threads, tasks and processes before a test. Other tests of this process may have left some."""

    def __init__(self) -> None:
        self.threads = threading.enumerate()
        self.tasks = asyncio.all_tasks()
        self.processes = set(multiprocessing.active_children())


async def assert_nothing_runs(configuration: Configuration, before: Running) -> None:
    """Assert that threads, tasks, processes and sockets have ended, and that a bridge can use the data directory."""
    loop = asyncio.get_running_loop()
    await happens(lambda: not left_threads(before.threads) and asyncio.all_tasks(loop) <= before.tasks)
    assert set(multiprocessing.active_children()) <= before.processes
    assert configuration.control_socket_path is not None and not configuration.control_socket_path.exists()
    assert not [handler for handler in audit_log._entries.handlers if isinstance(handler, RotatingFileHandler)]
    running = Bridge(configuration, lambda _: None)
    await running.start()
    await running.stop()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ends of parts, in the order of the calls."""
    names: list[str] = []

    def record(place: Any, attribute: str, name: str) -> None:
        original: Callable[..., Any] = getattr(place, attribute)

        def call(*arguments: Any, **options: Any) -> Any:
            names.append(name)
            return original(*arguments, **options)

        monkeypatch.setattr(place, attribute, call)

    record(Channels, "stop_listening", "input")
    record(Mappings, "stop", "mappings")
    record(EmbeddedBackend, "flush", "answers in flight")
    record(Channels, "end", "channels")
    record(Wills, "publish_all", "wills")
    record(EmbeddedBackend, "stop", "backend")
    record(EmbeddedBackend, "abandon", "abandoned backend")
    record(EmbeddedBackend, "submit", "unit of work")
    record(AdminPort, "stop", "admin port")
    record(EmbeddedHost, "stop", "queue manager")
    return names


async def test_the_order_of_stopping(configuration: Configuration, calls: list[str]) -> None:
    running = Bridge(configuration, lambda _: None, admin_port=AdminPort)
    await running.start()
    calls.clear()
    await running.stop()
    assert list(dict.fromkeys(calls)) == [
        "input",
        "mappings",
        "answers in flight",
        "channels",
        "wills",
        "backend",
        "admin port",
        "queue manager",
    ]


async def test_a_part_that_fails_to_end_does_not_prevent_others_from_ending(
    configuration: Configuration, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_channels: Channels) -> None:
        raise RuntimeError("planned")

    before = Running()
    running = Bridge(configuration, lambda _: None, admin_port=AdminPort)
    await running.start()
    with monkeypatch.context() as patch:
        patch.setattr(Channels, "end", fail)
        with pytest.raises(RuntimeError, match="planned"):
            await running.stop()
    assert "queue manager" in calls
    await assert_nothing_runs(configuration, before)


async def test_a_bridge_that_loses_its_role_commits_nothing(configuration: Configuration, calls: list[str]) -> None:
    """The queue manager belongs to another bridge: the will of a client is neither published nor recorded."""
    before = Running()
    running = Bridge(configuration, lambda _: None, admin_port=AdminPort)
    await running.start()
    (channel, _) = running.parts.channels
    assert channel.endpoint is not None
    client = await asyncio.to_thread(RawClient.connected, channel.endpoint[1], "c", will=Will("will", b"lost", 1))
    calls.clear()
    running.ending.request(STAND_BY)
    await running.stand_down()
    await running.stop()
    assert not {"unit of work", "wills", "answers in flight"} & set(calls[: calls.index("abandoned backend")])
    assert "unit of work" not in calls
    with pytest.raises(ConnectionClosed):
        await asyncio.to_thread(client.receive)
    await assert_nothing_runs(configuration, before)


@pytest.mark.parametrize(("signals", "status"), [([], STAND_BY), ([signal.SIGTERM], 0), ([signal.SIGINT] * 2, 0)])
async def test_a_signal_ends_a_bridge_that_loses_its_role(
    configuration: Configuration, signals: list[signal.Signals], status: int
) -> None:
    """Otherwise the signal would be lost, and the process would stand by until the next one."""
    before = Running()
    running = Bridge(configuration, lambda _: None, admin_port=AdminPort)
    foreground = asyncio.create_task(Foreground(running, Supervisor()).run())
    await happens(lambda: running.state is BridgeState.RUNNING)
    running._fenced("planned")
    for number in signals:
        os.kill(os.getpid(), number)
    assert await foreground == status
    await assert_nothing_runs(configuration, before)
