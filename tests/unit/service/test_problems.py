"""The list of current problems of a running bridge."""

from __future__ import annotations

import asyncio
import datetime
import errno
import logging
import shutil
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from bridge.administration.answers import BridgeState, BridgeStatus
from bridge.administration.mapping_status import MappingStatus, RunnerState, UnfinishedSession
from bridge.administration.requests import ListClients, ListProblems, PauseMapping, Reload, ShowStatus
from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.files import lock
from bridge.mq import host_of
from bridge.mq.embedded import host as inquiry
from bridge.mq.host import Host
from bridge.mq.memory import MIB
from bridge.mq.mqi import MQOD
from bridge.mq.remote import RemoteConnection
from bridge.mqtt.packets import Publish
from bridge.security import tls as tls_module
from bridge.security.password_file import PasswordEntry, hash_of, write_password_file
from bridge.service import lifecycle
from bridge.service.lifecycle import Bridge
from bridge.service.problems import MANY_REJECTIONS, MANY_TAKEOVERS, REMOVAL_TIMEOUT, Publishers
from bridge.service.reload import ConfigurationSource
from bridge.spark.administration import LOCK, CompletedBatch, StatusRecord, read_status
from bridge.spark.segment import IDENTITY, Segment, SpoolIdentity, directory_name
from bridge.wire import cmqc
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE, happens
from tests.helpers.raw_client import RawClient
from tests.helpers.running_bridge import current_problems, running


def configuration(tmp_path: Path, **sections: Any) -> Configuration:
    return Configuration(
        queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}], **sections
    )


async def mqsc(bridge: Bridge, tmp_path: Path, *commands: str) -> None:
    def run() -> None:
        connection = RemoteConnection(tmp_path / "data", application="test")
        for command in commands:
            assert all(response.ok for response in connection.command(command))
        connection.disconnect()

    await asyncio.to_thread(run)


async def put(tmp_path: Path, queue: str, topic: str = "") -> None:
    def run() -> None:
        from bridge.telemetry.message import Message
        from bridge.wire.mq import MQMD

        connection = RemoteConnection(tmp_path / "data", application="test")
        od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic) if topic else MQOD(ObjectName=queue)
        connection.put1(od, Message(MQMD(), b"x"))
        connection.disconnect()

    await asyncio.to_thread(run)


async def test_problems_of_queues_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mappings = {"m": {"from": {"queue": "SOURCE"}, "to": {"mqtt": "out"}, "enabled": False}}
    async with running(configuration(tmp_path, mappings=mappings)) as bridge:
        assert await current_problems(bridge) == []
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(Q)", "DEFINE QLOCAL(SOURCE)")
        for _ in range(20):
            await put(tmp_path, "Q")
        # A queue counts as full until a tenth of it is free.
        for attributes, expected in (
            ("MAXDEPTH(21)", ""), ("MAXDEPTH(20)", "queue Q accepts no messages: it is full, MAXDEPTH(20)"),
            ("MAXDEPTH(22)", "it is full"), ("MAXDEPTH(23)", ""), ("MAXDEPTH(22)", ""), ("PUT(DISABLED)", "PUT(DISABLED)"),
            ("PUT(ENABLED) MAXDEPTH(5000)", ""),
        ):  # fmt: skip
            await mqsc(bridge, tmp_path, f"ALTER QLOCAL(Q) {attributes}")
            problems = await current_problems(bridge)
            assert [(problem.kind, problem.severity) for problem in problems] == (
                [("queue", "error")] if expected else []
            ), attributes
            assert all(expected in problem.what for problem in problems)
        await put(tmp_path, "SOURCE")
        hour = 3600
        monkeypatch.setattr(inquiry, "time", SimpleNamespace(time=lambda: time.time() + 23 * hour))
        assert await current_problems(bridge) == []
        monkeypatch.setattr(inquiry, "time", SimpleNamespace(time=lambda: time.time() + 25 * hour))
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("backlog", "warning")
        assert problem.what == "1 message waiting on queue SOURCE, the oldest for 25 hours"
        monkeypatch.setattr(inquiry, "time", time)
        await mqsc(bridge, tmp_path, "ALTER QLOCAL(SOURCE) MAXDEPTH(5)")
        for _ in range(3):
            await put(tmp_path, "SOURCE")
        (problem,) = await current_problems(bridge)
        assert problem.what == "4 messages waiting on queue SOURCE, which is nearly full: MAXDEPTH(5)"
        await mqsc(bridge, tmp_path, "ALTER QLOCAL(SOURCE) MAXDEPTH(5000)")
        await put(tmp_path, "SYSTEM.DEAD.LETTER.QUEUE")
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.command) == ("dead_letters", "mqbridge dlq list")
        assert problem.what == "1 message on dead-letter queue SYSTEM.DEAD.LETTER.QUEUE"
        assert problem.subject == "SYSTEM.DEAD.LETTER.QUEUE" and time.time() - 60 < problem.since <= time.time()
        assert bridge.problems is not None and bridge.problems.not_serving() == []
        (again,) = await current_problems(bridge)
        assert again == problem, "since does not change"


@pytest.mark.parametrize(("hours", "reported"), [((23,), False), ((25,), True), ((23, 25), True)])
async def test_a_session_that_is_unfinished_for_a_day_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: tuple[int, ...], reported: bool
) -> None:
    now = time.time()
    sessions = [
        UnfinishedSession(mapping="m", client_id=f"c{number}", address="b:1883", since=now - number * 3600, messages=2)
        for number in hours
    ]
    async with running(configuration(tmp_path)) as bridge:
        status = MappingStatus(name="m", state=RunnerState.REMOVED, unfinished=sessions)
        monkeypatch.setattr(bridge.parts.mappings, "statuses", lambda: [status])
        problems = await current_problems(bridge)
        assert bool(problems) is reported
        for problem in problems:
            assert (problem.kind, problem.severity, problem.subject) == ("session", "warning", "m")
            assert problem.command == "mqbridge mapping show m"
            assert problem.since == now - 25 * 3600
            assert problem.what == (
                "mapping m: former session c25 at b:1883: 2 messages that the broker may have, kept until it is reachable"
                + (" (and 1 more)" if len(hours) > 1 else "")
            )


#: A change of the status of a pipeline, and severity and words of the problem.
PIPELINES = {
    "never run": ((), None),
    "runs": (("running",), None),
    "fails": (("running", "failed"), ("error", "pipeline p fails: the disk is full")),
    "started again": (("failed", "running"), ("error", "pipeline p fails: the disk is full")),
    "works again": (("failed", "running", "steady"), None),
    "gets a batch": (("failed", "running", "completed"), None),
    "given up": (("failed", "given up"), ("error", "pipeline p was given up: the disk is full")),
    "a new process": (("failed", "given up", "new"), ("error", "pipeline p fails: the disk is full")),
    "stopped by a user": (("failed", "stopped"), None),
    "killed": (("failed", "running", "steady", "killed"), ("error", "pipeline p was killed")),
}


@pytest.mark.parametrize("name", PIPELINES)
async def test_a_pipeline_that_processes_nothing_is_a_problem(name: str, tmp_path: Path) -> None:
    steps, expected = PIPELINES[name]
    pipeline = {"from": {"mq": {"queue": "Q"}}, "to": {"archive": tmp_path / "out"}, "checkpoint": tmp_path / "p"}
    (tmp_path / "p").mkdir()
    held = lock(tmp_path / "p" / LOCK)
    record = StatusRecord(tmp_path / "p", pytest.fail) if steps else None
    for step in steps:
        assert record is not None
        match step:
            case "failed":
                record.failed("the disk is full")
            case "completed":
                record.completed(CompletedBatch(1, time.time(), rows_in=1))
            case "given up" | "stopped":
                record.ended(step)
            case "new":
                record = StatusRecord(tmp_path / "p", pytest.fail)
            case "running" | "steady":
                getattr(record, step)()
    if not steps or steps[-1] in ("killed", "given up", "stopped"):
        held.close()
    async with running(configuration(tmp_path, pipelines={"p": pipeline})) as bridge:
        problems = await current_problems(bridge)
        assert [(problem.severity, problem.what) for problem in problems] == ([] if expected is None else [expected])
        assert all(problem.kind == "pipeline" and problem.command == "mqbridge pipeline show p" for problem in problems)
        status = read_status(tmp_path / "p")
        if expected is not None and status is not None and status.last_error is not None and "killed" not in steps:
            assert problems[0].since == status.last_error.at
    held.close()


async def test_messages_of_a_former_queue_and_a_damaged_status_are_problems(tmp_path: Path) -> None:
    spool = tmp_path / "p" / "spool" / directory_name("Q.OLD")
    spool.mkdir(parents=True)
    (spool / IDENTITY).write_bytes(msgspec.json.encode(SpoolIdentity("1", "Q.OLD")))
    (spool / Segment(1, 3, 10, 1, 0, "run").name).touch()
    pipeline = {"from": {"mq": {"queue": "Q"}}, "to": {"archive": tmp_path / "out"}, "checkpoint": tmp_path / "p"}
    async with running(configuration(tmp_path, pipelines={"p": {**pipeline, "enabled": False}})) as bridge:
        (problem,) = await current_problems(bridge)
        assert (problem.severity, problem.what) == (
            "warning",
            "the spool of pipeline p has 3 messages of Q.OLD, which it no longer reads",
        )
        removed = tmp_path / "data" / "pipelines" / "removed"
        shutil.copytree(tmp_path / "p" / "spool", removed / "spool")
        _, problem = await current_problems(bridge)
        assert (problem.severity, problem.what, problem.command) == (
            "warning",
            "the spool of pipeline removed, which was removed, has 3 messages of Q.OLD",
            "mqbridge pipeline spool list",
        )
        shutil.rmtree(removed)
        (tmp_path / "p" / "status.json").write_text("{")
        (problem,) = await current_problems(bridge)
        assert problem.severity == "error" and "status.json is damaged and may be removed" in problem.what


async def test_pipelines_are_reloaded(tmp_path: Path) -> None:
    """The bridge reports pipelines that are in the file now."""
    path, directory = tmp_path / "bridge.yaml", tmp_path / "data" / "pipelines" / "p"
    text = f"queue_manager: {{data_directory: {tmp_path}/data}}\nchannels: [{{name: A, port: 0}}]\n"
    path.write_text(text)
    file = load(path)
    directory.mkdir(parents=True)
    StatusRecord(directory, pytest.fail).failed("the disk is full")
    async with running(file, ConfigurationSource(path, file, load)) as bridge:
        assert await current_problems(bridge) == []
        path.write_text(text + "pipelines: {p: {from: {mq: {queue: Q}}, to: {archive: out}}}\n")
        answer = await bridge.answer(Reload(), "user")
        assert answer.ok and any(
            line.startswith("pipelines changed, for those that are started") for line in answer.lines
        )
        (problem,) = await current_problems(bridge)
        assert problem.what == "pipeline p was killed"
        path.write_text(text)
        assert (await bridge.answer(Reload(), "user")).ok
        assert await current_problems(bridge) == []


async def test_problems_of_channels_and_resources_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def events() -> list[str]:
        logged = [record.getMessage() for record in caplog.records if record.name == "bridge.service.problems"]
        caplog.clear()
        return logged

    caplog.set_level(logging.INFO)
    mappings = {"m": {"from": {"queue": "SOURCE"}, "to": {"mqtt": "out"}}}
    async with running(configuration(tmp_path, mappings=mappings)) as bridge:
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(SOURCE)")
        assert (await bridge.answer(PauseMapping(name="m"), "user")).ok
        (problem,) = [problem for problem in await current_problems(bridge) if problem.kind == "mapping"]
        assert (problem.severity, problem.subject, problem.command) == ("warning", "m", "mqbridge mapping resume m")
        await bridge.parts.mappings.resume("m")
        await happens(lambda: bridge.parts.mappings.statuses()[0].state == "running")
        assert await current_problems(bridge) == []
        events()
        await bridge.parts.channels.stop("A")
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.what, problem.command) == (
            "channel",
            "channel A is stopped",
            "mqbridge channel start A",
        )
        assert events() == ["MQB0301W problem began: channel A is stopped; hint: `mqbridge channel start A`"]
        await current_problems(bridge)
        assert events() == []
        await bridge.parts.channels.start("A")
        assert await current_problems(bridge) == []
        assert events() == ["MQB0303I problem ended: channel A is stopped"]
        assert bridge.host is not None and bridge.problems is not None
        memory = bridge.host.memory
        for limit, severity in ((100, "warning"), (50, "critical")):
            memory.use(memory.used * limit // 90)
            (problem,) = await current_problems(bridge)
            assert (problem.kind, problem.severity) == ("memory", severity)
            assert bridge.problems.not_serving() == []
            memory.use(None)
            assert await current_problems(bridge) == []
        usage = SimpleNamespace(total=1000 * MIB, free=99 * MIB)
        monkeypatch.setattr(inquiry, "shutil", SimpleNamespace(disk_usage=lambda path: usage))
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("disk", "warning")
        assert problem.what.startswith("only 99 MiB are free on the disk of queue manager ")
        usage.free = 119 * MIB
        (problem,) = await current_problems(bridge)
        assert problem.what.startswith("only 119 MiB")
        usage.free = 121 * MIB
        assert await current_problems(bridge) == []


async def test_a_witness_that_cannot_be_written_is_a_problem_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    async with running(configuration(tmp_path)) as bridge:
        application = await asyncio.to_thread(RemoteConnection, tmp_path / "data")
        with monkeypatch.context() as patched:
            patched.setattr("bridge.witness.os.pwrite", failing)
            (response,) = await asyncio.to_thread(application.command, "DEFINE QLOCAL(FIRST)")
            assert response.ok
            (problem,) = await current_problems(bridge)
            assert (problem.kind, problem.subject, problem.severity) == ("disk", "witness", "error")
            assert problem.what.endswith("cannot be recorded in queuemanager.witness")
            assert problem.command == "mqbridge explain MQB3012E"
        await asyncio.to_thread(application.command, "DEFINE QLOCAL(SECOND)")
        assert await current_problems(bridge) == []
        await asyncio.to_thread(application.disconnect)


async def test_a_client_that_acknowledges_nothing_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def publish() -> tuple[RawClient, Publish]:
        client = RawClient.connected(port, "silent")
        client.subscribe(("t", 1))
        client.publish("t", b"x", 1)
        return client, client.expect(Publish)

    async with running(configuration(tmp_path)) as bridge:
        assert bridge.administration is not None
        channel, service = bridge.parts.channels.get("A"), bridge.administration.parts.service
        assert channel is not None and channel.endpoint is not None
        (_, port), clock = channel.endpoint, service.clock
        client, publication = await asyncio.to_thread(publish)
        monkeypatch.setattr(service, "clock", lambda: clock() + 200)
        assert await current_problems(bridge) == []
        monkeypatch.setattr(service, "clock", lambda: clock() + 301)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity, problem.command) == ("client", "warning", "mqbridge client show silent")
        assert problem.what == "client 'silent' acknowledged no message for 5 minutes"
        await asyncio.to_thread(client.acknowledge, publication)
        await asyncio.to_thread(client.ping)
        assert await current_problems(bridge) == []
        await asyncio.to_thread(client.disconnect)


async def test_a_client_that_waits_for_removals_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "queues.mqsc"
    script.write_text("DEFINE QLOCAL(PLANT.XMITQ) USAGE(XMITQ)")
    settings = Configuration(
        queue_manager={"data_directory": tmp_path / "data", "scripts": [script]},
        channels=[{"name": "A", "port": 0}],
        transmission_queue="PLANT.XMITQ",
    )
    async with running(settings) as bridge:
        assert bridge.administration is not None
        channel, service = bridge.parts.channels.get("A"), bridge.administration.parts.service
        assert channel is not None and channel.endpoint is not None
        client = await asyncio.to_thread(RawClient, channel.endpoint[1], "held")
        await asyncio.to_thread(client.connect)
        outbox, clock = service.sessions["held"].outbox, service.clock
        outbox.held, outbox.finishing, outbox.last_sent = True, 500, clock()
        assert await current_problems(bridge) == []
        monkeypatch.setattr(service, "clock", lambda: clock() + REMOVAL_TIMEOUT + 1)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("removals", "error")
        assert problem.what == (
            "client 'held' gets no messages, because 500 acknowledged messages cannot be removed from "
            "PLANT.XMITQ (limits.removal_backlog)"
        )
        assert "`echo \"ALTER QLOCAL('PLANT.XMITQ') GET(ENABLED)\" | mqbridge mqsc run -`" in problem.remedy
        outbox.held = False
        assert await current_problems(bridge) == []
        await asyncio.to_thread(client.disconnect)


@pytest.mark.parametrize(("available", "severity"), [(False, "critical"), (True, "error")])
async def test_a_rejected_login_at_the_queue_manager_is_one_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, available: bool, severity: str
) -> None:
    """It is critical if the bridge lacks a connection that it needs. Then there is no other problem for the same cause."""
    text = "rejected the login of user bridge: MQRC_NOT_AUTHORIZED (2035)"
    async with running(configuration(tmp_path)) as bridge:
        assert bridge.host is not None
        monkeypatch.setattr(type(bridge.host), "login_problem", text)
        monkeypatch.setattr(type(bridge.host.backend), "available", available)
        (problem,) = [
            problem for problem in await current_problems(bridge) if problem.kind in ("login", "queue_manager", "disk")
        ]
        assert (problem.kind, problem.severity, problem.subject) == ("login", severity, "MQB1")
        assert problem.what == f"queue manager MQB1 {text}"
        monkeypatch.undo()
        assert await current_problems(bridge) == []


async def test_a_blocked_queue_of_a_mapping_is_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the queue, or of the mapping if the bridge does not inspect the queue."""
    mappings = {"m": {"from": {"mqtt": "t/{queue}"}, "to": {"queue": "{queue}"}}}
    async with running(configuration(tmp_path, mappings=mappings)) as bridge:
        await mqsc(bridge, tmp_path, "DEFINE QLOCAL(SHUT) PUT(DISABLED)", "DEFINE QLOCAL(OPEN)")
        (status,) = bridge.parts.mappings.statuses()
        await happens(lambda: status.state == "running")
        await put(tmp_path, "", topic="t/SHUT")
        await put(tmp_path, "", topic="t/OPEN")
        await happens(lambda: [queue.waiting for queue in status.blocked] == [1] and status.moved == 1)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.subject) == ("queue", "SHUT")
        assert problem.what == "queue SHUT accepts no messages: PUT(DISABLED); messages of mapping m wait for it"
        monkeypatch.setattr("bridge.service.problems._of_queues", lambda *_, **_options: [])
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity, problem.command) == ("mapping", "error", "mqbridge mapping list")
        assert problem.what == (
            "mapping m: queue SHUT accepts no messages: MQRC_PUT_INHIBITED (2051); 1 message waits; "
            "messages for other destinations continue"
        )
        await mqsc(bridge, tmp_path, "ALTER QLOCAL(SHUT) PUT(ENABLED)")
        await happens(lambda: status.moved == 2)
        assert await current_problems(bridge) == []


@pytest.mark.parametrize(
    ("error", "kind"), [("MQRC_RESOURCE_PROBLEM (2102)", "disk"), ("MQRC_STORAGE_NOT_AVAILABLE (2071)", "memory")]
)
async def test_a_mapping_that_waits_for_disk_or_memory_is_not_an_additional_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str, kind: str
) -> None:
    async with running(configuration(tmp_path)) as bridge:
        status = MappingStatus(name="m", state=RunnerState.RETRYING, last_error=f"queue Q: {error}")
        monkeypatch.setattr(bridge.parts.mappings, "statuses", lambda: [status])
        assert [problem.kind for problem in await current_problems(bridge)] == ["mapping"]
        assert bridge.host is not None
        if kind == "disk":
            monkeypatch.setattr(type(bridge.host.backend), "available", False)
        else:
            bridge.host.memory.use(1)
        assert [problem.kind for problem in await current_problems(bridge)] == [kind]


@pytest.mark.parametrize(("days", "severity"), [(-1, "error"), (10, "warning")])
async def test_a_certificate_that_expired_or_expires_soon_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int, severity: str
) -> None:
    Authority(tmp_path).issue("server")
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days, hours=1)
    monkeypatch.setattr(tls_module, "_expiry", lambda file, changed: ends.timestamp())
    tls = {"certificate_file": tmp_path / "server.pem", "key_file": tmp_path / "server.key"}
    channels = [{"name": "A", "port": 0, "tls": tls}]
    async with running(Configuration(queue_manager={"data_directory": tmp_path / "data"}, channels=channels)) as bridge:
        (problem,) = await current_problems(bridge)
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
        (problem,) = await current_problems(bridge)
        assert problem.kind == "reload" and "limts" in problem.what
        path.write_text(text)
        assert (await bridge.answer(Reload(), "user")).ok
        assert await current_problems(bridge) == []


async def test_a_broken_link_is_one_problem_for_all_its_mappings(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        links = {"hub": {"host": "127.0.0.1", "port": unused.getsockname()[1], "version": "5"}}
        mappings = {
            name: {"from": {"mqtt": f"{name}/#", "link": "hub"}, "to": {"queue": "Q"}} for name in ("first", "second")
        }
        async with running(configuration(tmp_path, links=links, mappings=mappings)) as bridge:
            await happens(lambda: all(link.last_error[0] for _, link in bridge.parts.mappings.links()))
            (problem,) = await current_problems(bridge)
            assert (problem.kind, problem.subject, problem.severity) == ("link", "hub", "error")
            assert problem.what.startswith("link hub is not connected to 127.0.0.1:")
            assert problem.command == "mqbridge link test hub"


async def test_a_problem_that_becomes_worse_is_logged_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path).issue("server")
    tls = {"certificate_file": tmp_path / "server.pem", "key_file": tmp_path / "server.key"}
    channels = [{"name": "A", "port": 0, "tls": tls}]
    async with running(Configuration(queue_manager={"data_directory": tmp_path / "data"}, channels=channels)) as bridge:
        for remaining_seconds in (3600, -1, -2):
            monkeypatch.setattr(
                tls_module,
                "_expiry",
                lambda file, changed, remaining_seconds=remaining_seconds: time.time() + remaining_seconds,
            )
            await current_problems(bridge)
    events = [record.getMessage().split(":")[0] for record in caplog.records if "problem began" in record.getMessage()]
    assert events == ["MQB0301W problem began", "MQB0302E problem began"]


async def test_a_bridge_answers_while_its_queue_manager_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recovered = threading.Event()

    def slow(*arguments: Any) -> Host:
        recovered.wait(PATIENCE)
        return host_of(*arguments)

    monkeypatch.setattr(lifecycle, "host_of", slow)
    bridge = Bridge(configuration(tmp_path), lambda _: None)
    starting = asyncio.create_task(bridge.start())
    await asyncio.sleep(0)
    answer = await bridge.answer(ShowStatus(), "user")
    status = msgspec.json.decode(answer.result, type=BridgeStatus)
    assert (status.state, status.waits_for, status.problems) == (BridgeState.STARTING, "queue manager MQB1", [])
    answer = await bridge.answer(ListClients(), "user")
    assert answer.lines == [
        "the bridge is starting and waits for queue manager MQB1; queue manager MQB1 is not ready yet"
    ]
    recovered.set()
    await starting
    assert (await bridge.answer(ListClients(), "user")).ok
    await bridge.stop()


async def test_a_healthy_standby_has_no_problems(tmp_path: Path) -> None:
    bridge = Bridge(configuration(tmp_path), lambda _: None)
    bridge._standing_by("standing by: another bridge is active")
    problems = await bridge.answer(ListProblems(), "user")
    assert (problems.ok, bytes(problems.result)) == (True, b"[]")
    answer = await bridge.answer(ShowStatus(), "user")
    assert answer.ok
    status = msgspec.json.decode(answer.result, type=BridgeStatus)
    assert (status.state, status.problems) == (BridgeState.STANDING_BY, [])


async def reject_many(bridge: Bridge) -> int:
    """Let many connections of a client fail with a wrong password. Return the port of the channel."""
    channel = bridge.parts.channels.get("A")
    assert channel is not None and channel.endpoint is not None
    port = channel.endpoint[1]

    def connect() -> None:
        for _ in range(MANY_REJECTIONS):
            with RawClient(port, "pump-7", user_name="pump-7", password=b"wrong") as client:
                assert client.connect().return_code == 4

    await asyncio.to_thread(connect)
    return port


def settings_with_a_password(directory: Path) -> Configuration:
    """The configuration of a channel with the user pump-7, whose password is `secret`."""
    users = directory / "users"
    write_password_file(users, {"pump-7": PasswordEntry(hash_of("secret"))})
    channels = [{"name": "A", "port": 0, "authentication": [{"method": "password", "file": users}]}]
    return Configuration(queue_manager={"data_directory": directory / "data"}, channels=channels)


async def test_rejected_clients_are_a_problem_of_their_channel(tmp_path: Path) -> None:
    async with running(settings_with_a_password(tmp_path)) as bridge:
        await reject_many(bridge)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.subject, problem.command) == ("rejections", "A", "mqbridge explain MQB1201W")
        assert problem.what.startswith(
            "channel A rejected 5 connections in 5 minutes, last client 'pump-7' at 127.0.0.1:"
        )
        assert "the password of user 'pump-7' is wrong" in problem.what
        assert problem.remedy


async def test_problems_keep_only_the_beginning_of_a_long_identifier(tmp_path: Path) -> None:
    """Anyone can send 65,535 bytes, and the texts of the last 1,000 rejections of each channel are in memory."""
    async with running(configuration(tmp_path)) as bridge:
        channel = bridge.parts.channels.get("A")
        assert channel is not None and channel.endpoint is not None
        port = channel.endpoint[1]

        def connect() -> None:
            for _ in range(MANY_REJECTIONS):
                with RawClient(port, "pump-" + "x" * 60_000) as client:
                    assert client.connect().return_code == 2

        await asyncio.to_thread(connect)
        (problem,) = await current_problems(bridge)
    assert f"client 'pump-{'x' * 95}'... at 127.0.0.1:" in problem.what and len(problem.what) < 500
    assert "a client identifier has at most 48 bytes" in problem.what


async def test_many_rejections_are_reported_with_their_most_common_cause(tmp_path: Path) -> None:
    """After a storm of wrong passwords, a different mistake of one client is not reported as its cause."""
    async with running(settings_with_a_password(tmp_path)) as bridge:
        port = await reject_many(bridge)

        def connect() -> None:
            with RawClient(port, "", clean=False, user_name="pump-7", password=b"secret") as client:
                assert client.connect().return_code == 2

        await asyncio.to_thread(connect)
        (problem,) = await current_problems(bridge)
        assert problem.what.startswith(
            "channel A rejected 6 connections in 5 minutes, 5 of them like client 'pump-7' at 127.0.0.1:"
        )
        assert "the password of user 'pump-7' is wrong" in problem.what


async def test_a_client_identifier_used_by_two_programs(tmp_path: Path) -> None:
    settings = Configuration(queue_manager={"data_directory": tmp_path / "data"}, channels=[{"name": "A", "port": 0}])
    async with running(settings) as bridge:
        channel = bridge.parts.channels.get("A")
        assert channel is not None and channel.endpoint is not None
        port = channel.endpoint[1]

        def connect(times: int) -> None:
            clients = [RawClient.connected(port, "pump-7") for _ in range(times)]
            for client in clients[:-1]:
                client.expect_closed()
            clients[-1].disconnect()

        await asyncio.to_thread(connect, MANY_TAKEOVERS)  # one takeover less
        assert await current_problems(bridge) == []
        await asyncio.to_thread(connect, 2)
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.subject) == ("client_identifier", "")
        assert problem.what.startswith("connections of client identifier 'pump-7' end each other: several programs")
        assert problem.command == "mqbridge client show pump-7"


def test_a_client_that_publishes_more_than_all_others_together_is_a_problem() -> None:
    """If that lasts for two intervals, and its rate is high."""
    publishers = Publishers()
    publishers.count({"a": 0, "b": 0}, 100.0)
    publishers.count({"a": 10_000, "b": 100}, 105.0)
    assert publishers.flood is None
    publishers.count({"a": 10_001, "b": 100}, 105.5)  # too early to be another interval
    publishers.count({"a": 20_000, "b": 200}, 110.0)
    assert publishers.flood == ("a", 2_000.0, 10_000 / 10_100)
    publishers.count({"a": 20_100, "b": 300}, 115.0)
    assert publishers.flood is None


async def test_the_certificate_of_a_broker_is_one_problem_for_all_mappings_of_its_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once. If it has expired, it is the reason for which the link is not connected."""
    link = SimpleNamespace(
        name="cloud",
        address="b:8883",
        certificate_expiry=time.time() + 86_400,
        up=True,
        last_error=("", 0.0),
        since=1.0,
    )
    async with running(configuration(tmp_path)) as bridge:
        monkeypatch.setattr(bridge.parts.mappings, "links", lambda: [("a", link), ("b", link)])
        for _ in range(3):
            (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("certificate", "warning")
        assert problem.remedy == "The operator of the broker must renew its certificate."
        assert caplog.text.count("problem began: the certificate of the broker of link cloud expires") == 1
        link.up, link.last_error = False, ("connection refused", 0.0)
        assert {problem.kind for problem in await current_problems(bridge)} == {"certificate", "link"}
        link.certificate_expiry -= 2 * 86_400
        (problem,) = await current_problems(bridge)
        assert (problem.kind, problem.severity) == ("certificate", "error")
