"""The list of current problems of a running bridge."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from bridge.administration.answers import BridgeState, BridgeStatus, Problem
from bridge.administration.requests import Reload, ShowStatus
from bridge.config import Configuration
from bridge.config.document import load
from bridge.mq.embedded import host as inquiry
from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Publish
from bridge.service.administration import problems as module
from bridge.service.administration.problems import not_serving, problems
from bridge.service.lifecycle import Bridge
from bridge.service.reload import ConfigurationSource
from bridge.wire import cmqc
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import happens
from tests.helpers.raw_client import RawClient


@asynccontextmanager
async def running(configuration: Configuration, source: ConfigurationSource | None = None) -> AsyncIterator[Bridge]:
    bridge = Bridge(configuration, lambda _: None, source=source)
    await bridge.start()
    bridge._stands(BridgeState.RUNNING)
    try:
        yield bridge
    finally:
        await bridge.stop()
        assert bridge.host is not None and bridge.queue_manager_watch is not None
        bridge.queue_manager_watch.stop()
        await bridge.host.stop()


async def found(bridge: Bridge) -> list[Problem]:
    assert bridge.administration is not None
    return await problems(bridge.administration.parts)


def configuration(tmp_path: Path, **sections: Any) -> Configuration:
    return Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}], **sections
    )


async def mqsc(bridge: Bridge, tmp_path: Path, *commands: str) -> None:
    def run() -> None:
        connection = RemoteConnection(tmp_path / "data", application="test")
        for command in commands:
            assert all(one.ok for one in connection.command(command))
        connection.disconnect()

    await asyncio.to_thread(run)


async def put(tmp_path: Path, queue: str, topic: str = "") -> None:
    def run() -> None:
        from bridge.mq.mqi import MQPMO
        from bridge.telemetry.message import Message
        from bridge.wire.mq import MQMD

        connection = RemoteConnection(tmp_path / "data", application="test")
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic) if topic else MQOD(ObjectName=queue)
        connection.put1(od, Message(MQMD(), b"x"), MQPMO())
        connection.disconnect()

    await asyncio.to_thread(run)


async def test_a_healthy_bridge_has_no_problems(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as bridge:
        assert await found(bridge) == []


async def test_dead_letters_are_a_problem(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as bridge:
        await put(tmp_path, "SYSTEM.DEAD.LETTER.QUEUE")
        (problem,) = await found(bridge)
        assert (problem.kind, problem.command) == ("dead_letters", "mqbridge dlq list")
        assert problem.what == "1 message is on dead-letter queue SYSTEM.DEAD.LETTER.QUEUE"
        assert bridge.administration is not None
        assert not_serving(bridge.administration.parts) == []


@pytest.mark.parametrize(
    ("attributes", "what"), [("MAXDEPTH(1)", "queue Q is full: MAXDEPTH(1)"), ("PUT(DISABLED)", "PUT(DISABLED)")]
)
async def test_a_full_or_disabled_queue_is_a_problem(tmp_path: Path, attributes: str, what: str) -> None:
    async with running(configuration(tmp_path)) as bridge:
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(Q)")
        await put(tmp_path, "Q")
        await mqsc(bridge, tmp_path, f"ALTER QLOCAL(Q) {attributes}")
        (problem,) = await found(bridge)
        assert problem.kind == "queue" and problem.severity == "error" and what in problem.what


async def test_a_large_backlog_of_a_mapping_is_a_problem(tmp_path: Path) -> None:
    mappings = {"m": {"from": {"queue": "SOURCE"}, "to": {"mqtt": "out"}, "enabled": False}}
    async with running(configuration(tmp_path, mappings=mappings)) as bridge:
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(SOURCE) MAXDEPTH(5)")
        for _ in range(4):
            await put(tmp_path, "SOURCE")
        (problem,) = await found(bridge)
        assert problem.kind == "backlog" and problem.what.startswith("4 messages wait on queue SOURCE, which is nearly full")


async def test_an_old_message_of_a_mapping_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mappings = {"m": {"from": {"queue": "SOURCE"}, "to": {"mqtt": "out"}, "enabled": False}}
    async with running(configuration(tmp_path, mappings=mappings)) as bridge:
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(SOURCE)")
        await put(tmp_path, "SOURCE")
        hour = 3600
        monkeypatch.setattr(inquiry, "time", SimpleNamespace(time=lambda: time.time() + 23 * hour))
        assert await found(bridge) == []
        monkeypatch.setattr(inquiry, "time", SimpleNamespace(time=lambda: time.time() + 25 * hour))
        (problem,) = await found(bridge)
        assert (problem.kind, problem.severity) == ("backlog", "warning")
        assert problem.what == "1 message waits on queue SOURCE, the oldest for 25 hours"


async def test_a_client_that_acknowledges_nothing_is_a_problem_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish() -> tuple[RawClient, Publish]:
        client = RawClient.connected(port, "silent")
        client.subscribe(("t", 1))
        client.publish("t", b"x", 1)
        return client, client.expect(Publish)

    async with running(configuration(tmp_path)) as bridge:
        assert bridge.administration is not None
        channel, service = bridge.channels.get("A"), bridge.administration.parts.service
        assert channel is not None
        (_, port), clock = channel.endpoint, service.clock
        client, publication = await asyncio.to_thread(publish)
        monkeypatch.setattr(service, "clock", lambda: clock() + 200)
        assert await found(bridge) == []
        monkeypatch.setattr(service, "clock", lambda: clock() + 301)
        (problem,) = await found(bridge)
        assert (problem.kind, problem.severity, problem.command) == ("client", "warning", "mqbridge client show silent")
        assert problem.what == "client 'silent' acknowledged no message for 5 minutes"
        await asyncio.to_thread(client.acknowledge, publication)
        await asyncio.to_thread(client.ping)
        assert await found(bridge) == []
        await asyncio.to_thread(client.disconnect)


async def test_a_blocked_queue_of_a_mapping_is_a_problem(tmp_path: Path) -> None:
    mappings = {"m": {"from": {"mqtt": "t/{queue}"}, "to": {"queue": "{queue}"}}}
    async with running(configuration(tmp_path, mappings=mappings)) as bridge:
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(SHUT) PUT(DISABLED)", "DEFINE QLOCAL(OPEN)")
        await put(tmp_path, "", topic="t/SHUT")
        await put(tmp_path, "", topic="t/OPEN")
        (status,) = bridge.mappings.statuses()
        await happens(lambda: [queue.waiting for queue in status.blocked] == [1] and status.moved == 1)
        (problem,) = [one for one in await found(bridge) if one.kind == "mapping"]
        assert (problem.severity, problem.command) == ("error", "mqbridge mapping list")
        assert problem.what == (
            "mapping m: queue SHUT accepts no messages: MQRC_PUT_INHIBITED (2051); 1 message waits; "
            "messages for other destinations go on"
        )
        await mqsc(bridge, tmp_path, "ALTER QLOCAL(SHUT) PUT(ENABLED)")
        await happens(lambda: status.moved == 2)
        assert [one for one in await found(bridge) if one.kind == "mapping"] == []


async def test_a_stopped_channel_is_a_problem(tmp_path: Path) -> None:
    async with running(configuration(tmp_path)) as bridge:
        await bridge.channels.stop("A")
        (problem,) = await found(bridge)
        assert (problem.kind, problem.what) == ("channel", "channel A is stopped")
        assert problem.command == "mqbridge channel start A"


@pytest.mark.parametrize(("days", "severity"), [(-1, "error"), (10, "warning")])
async def test_a_certificate_that_expired_or_expires_soon_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, severity: str
) -> None:
    Authority(tmp_path).issue("server")
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days, hours=1)
    monkeypatch.setattr(module._certificates, "_expiry", lambda file: ends.timestamp())
    tls = {"certificate_file": tmp_path / "server.pem", "key_file": tmp_path / "server.key"}
    channels = [{"name": "A", "port": 0, "tls": tls}]
    async with running(Configuration(queue_manager={"data_directory": tmp_path / "data"}, channels=channels)) as bridge:
        (problem,) = await found(bridge)
        assert (problem.kind, problem.severity) == ("certificate", severity)
        assert f"{ends:%Y-%m-%d}" in problem.what


async def test_a_failed_reload_is_a_problem_until_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "bridge.yaml"
    text = f"queue_manager: {{data_directory: {tmp_path}/data}}\nchannels: [{{name: A, port: 0}}]\n"
    path.write_text(text)
    file = load(path)
    async with running(file, ConfigurationSource(path, file, load)) as bridge:
        path.write_text(text + "limts: {}\n")
        assert not (await bridge.answer(Reload(), "user")).ok
        (problem,) = await found(bridge)
        assert problem.kind == "reload" and "limts" in problem.what
        path.write_text(text)
        assert (await bridge.answer(Reload(), "user")).ok
        assert await found(bridge) == []


async def test_a_healthy_standby_has_no_problems(tmp_path: Path) -> None:
    bridge = Bridge(configuration(tmp_path), lambda _: None)
    bridge._standing_by("standing by: another bridge is active")
    answer = await bridge.answer(ShowStatus(), "user")
    assert answer.ok
    status = msgspec.json.decode(answer.result, type=BridgeStatus)
    assert (status.state, status.problems) == (BridgeState.STANDING_BY, [])
