"""`mqbridge replay`: archived publications are put again, in order, once, and marked."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from bridge.archive import replay as replay_module
from bridge.archive.replay import ReplayDestination
from bridge.archive.schema import json_of
from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.conversion import from_mq
from bridge.telemetry.message import Destination, Message
from bridge.wire import cmqc
from bridge.wire.mq import RFH2, decode_chain
from tests.helpers.archive import NOON, Story, write

COUNT = 25
Replay = Callable[..., Result]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    story = Story()
    for number in range(COUNT):
        story.put(
            number,
            f"plant/{number % 2}",
            b"%d" % number,
            number % 3,
            packet_id=number % 3 and number + 1,
            retain=number == 4,
        )
    story.put(100, "other", b"not me")
    write(tmp_path / "archive", story.rows[:10])
    return write(tmp_path / "archive", story.rows[10:], moment=NOON + timedelta(hours=1))


@pytest.fixture
def replay(invoke: Callable[..., Result], archive: Path, queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> Replay:
    """Run `mqbridge replay` on the archive, at the queue manager."""
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))
    return lambda *arguments: invoke("replay", "--archive", archive, "--filter", "plant/#", *arguments)


def messages_on(queue_manager: Any, queue: str) -> list[tuple[Any, dict[str, Any], bytes]]:
    """Return all messages of a queue: MQMD, folders of the RFH2, body."""
    connection = queue_manager.connection
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    messages = []
    try:
        while True:
            message = connection.get(
                handle, GetOptions(Options=cmqc.MQGMO_NO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
            )
            chain = decode_chain(message.md.Format, message.md.Encoding, message.md.CodedCharSetId, message.data)
            folders = [folder for header in chain.headers if isinstance(header, RFH2) for folder in header.folders]
            messages.append((message.md, {folder.name: folder.content for folder in folders}, chain.body))
    except MQError as error:
        assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
    finally:
        connection.close(handle)
    return messages


def test_publications_are_put_to_a_queue(replay: Replay, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    result = replay("--to-queue", queue, "--run", f"to-{queue}")
    assert result.exit_code == 0, result.output
    assert f"{COUNT} messages put (replay to-{queue})" in result.stdout
    messages = messages_on(queue_manager, queue)
    assert [body for _, _, body in messages] == [b"%d" % number for number in range(COUNT)]
    md, folders, _ = messages[4]
    assert md.Persistence == cmqc.MQPER_PERSISTENT
    assert folders["mqtt"] == {"clientId": "p", "qos": 1, "msgid": 5}
    assert folders["usr"] == {"replayed": f"to-{queue}", "published": "2026-03-02T12:00:04+00:00"}
    assert folders["mqps"]["Top"] == "plant/0"
    assert [md.Persistence for md, _, _ in messages[:3]] == [0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "topics"), [([], ["plant/0", "plant/1"]), (["--to-topic", "again/"], ["again/plant/0"])]
)
def test_publications_are_put_to_their_topics(
    replay: Replay, queue_manager: Any, arguments: list[str], topics: list[str]
) -> None:
    queue = queue_manager.queue()
    for topic in topics:
        name = queue_manager.name("SUB")
        (response,) = queue_manager.connection.command(f"DEFINE SUB({name}) TOPICSTR('{topic}') DEST({queue})")
        assert response.ok
    assert replay("--run", queue, *arguments).exit_code == 0
    messages = messages_on(queue_manager, queue)
    assert len(messages) == (COUNT if len(topics) == 2 else (COUNT + 1) // 2)
    assert {folders["mqps"]["Top"] for _, folders, _ in messages} == set(topics)
    assert all(folders["usr"]["replayed"] == queue for _, folders, _ in messages)


def test_messages_of_mappings_are_put(
    invoke: Callable[..., Result], queue_manager: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))
    story = Story().put(1, "a", b"no").mapped(2, "m", "a", b"from a client", publisher="p", packet_id=7)
    story.mapped(3, "m", "Q", b"from an application", publisher="").mapped(4, "other", "a", b"no")
    queue = queue_manager.queue()
    result = invoke("replay", "--archive", story.write(tmp_path), "--mapping", "m", "--to-queue", queue, "--run", queue)
    assert result.exit_code == 0, result.output
    messages = messages_on(queue_manager, queue)
    assert [body for _, _, body in messages] == [b"from a client", b"from an application"]
    assert [folders["mqtt"] for _, folders, _ in messages] == [{"clientId": "p", "qos": 1, "msgid": 7}, {"qos": 1}]


def test_an_interrupted_replay_continues(replay: Replay, queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = queue_manager.queue()
    monkeypatch.setattr(replay_module, "UNIT_MESSAGES", 4)
    real = replay_module.message_of
    rows = []

    def interrupted(row: Any, run: str, target: ReplayDestination) -> Any:
        rows.append(row)
        if len(rows) == 11:  # in the third unit of work
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "cut")
        return real(row, run, target)

    monkeypatch.setattr(replay_module, "message_of", interrupted)
    interrupted_result = replay("--to-queue", queue)
    assert interrupted_result.exit_code == 1 and "MQRC_CONNECTION_BROKEN" in interrupted_result.output
    queue_manager.until(lambda: queue_manager.depth(queue) == 8)
    result = replay("--to-queue", queue)
    assert f"8 of {COUNT} messages put; the same command continues" in interrupted_result.output
    assert "continues after 8 messages" in result.output
    assert f"{COUNT - 8} messages put" in result.output
    assert [body for _, _, body in messages_on(queue_manager, queue)] == [b"%d" % number for number in range(COUNT)]


def test_a_completed_replay_is_not_repeated_without_an_option(replay: Replay, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    assert replay("--to-queue", queue, "--client", "p").exit_code == 0
    result = replay("--to-queue", queue, "--client", "p")
    assert result.exit_code == 0
    assert f"is complete: {COUNT} messages were put; --again puts them again" in result.output
    assert queue_manager.depth(queue) == COUNT
    assert replay("--to-queue", queue, "--client", "p", "--again").exit_code == 0
    assert queue_manager.depth(queue) == 2 * COUNT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["while it puts", "while it pauses"])
def test_a_stopped_replay_continues(
    replay: Replay, queue_manager: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, where: str
) -> None:
    queue = queue_manager.queue()
    real = replay_module.message_of
    calls: list[object] = []

    def signalled(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == (2 if where == "while it pauses" else 7):
            signal.raise_signal(number)
        return real(*arguments) if arguments[1:] else None

    if where == "while it pauses":
        # Only the sleep of this module: other threads sleep before the handlers are installed.
        monkeypatch.setattr(replay_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=signalled))
    else:
        monkeypatch.setattr(replay_module, "message_of", signalled)
    before = signal.getsignal(number)
    result = replay("--to-queue", queue, "--rate", "50")
    assert result.exit_code == 128 + number
    assert f"10 of {COUNT} messages put; the same command continues" in result.output
    assert queue_manager.depth(queue) == 10
    assert signal.getsignal(number) is before
    assert f"{COUNT - 10} messages put" in replay("--to-queue", queue).output


def test_the_time_of_the_first_start_applies(replay: Replay, queue_manager: Any, archive: Path) -> None:
    queue = queue_manager.queue()
    result = replay("--to-queue", queue)
    assert f"{COUNT} messages put" in result.output
    (begin,) = re.findall(r"the run was started at (\S+); use that time", result.output)
    start = datetime.fromisoformat(begin)
    story = Story()
    for number in range(100):  # sequence numbers after those of the archive
        story.put(number, "plant/0", b"")
    story.put(200, "plant/0", b"in no finished file then")
    story.put((start - NOON).total_seconds() + 1, "plant/0", b"later")
    write(archive, [story.rows[100]], moment=NOON + timedelta(hours=2))
    write(archive, [story.rows[101]], moment=start + timedelta(hours=1))
    assert "1 message put" in replay("--to-queue", queue).output
    assert f"is complete: {COUNT + 1} messages were put" in replay("--to-queue", queue).output
    assert [body for _, _, body in messages_on(queue_manager, queue)][COUNT:] == [b"in no finished file then"]
    assert "1 message put" in replay("--to-queue", queue, "--from", begin, "--to", "2099-01-01").output
    assert [body for _, _, body in messages_on(queue_manager, queue)] == [b"later"]


@pytest.mark.parametrize(
    ("arguments", "status", "texts"),
    [
        (["--filter", "none"], 3, ["no row of archive", "(publications of clients, filter none, to 2"]),
        (["--client", "x", "--client", "y"], 3, ["publications of clients from client x or y"]),
        (["--mapping", "m", "--from", "-40s"], 3, ["source messages of mapping m, filter plant/#, from 2"]),
        (["--to", "2026-03-01"], 3, ["filter plant/#, to 2026-03-01T00:00:00+00:00"]),
        (["--to-queue", "NOPE"], 3, ["MQRC_UNKNOWN_OBJECT_NAME"]),
    ],
)
def test_an_archive_without_matching_messages_is_reported(
    replay: Replay, queue_manager: Any, arguments: list[str], status: int, texts: list[str]
) -> None:
    result = replay("--run", "nothing", *arguments)
    assert result.exit_code == status
    for text in texts:
        assert text in result.output
    assert f"/{COUNT}" not in result.output  # no progress bar was printed
    assert "messages put" not in result.output


@pytest.mark.parametrize("known", [True, False])
def test_messages_from_a_queue_need_a_destination(
    invoke: Callable[..., Result], queue_manager: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    source = "SOURCE" if known else queue_manager.queue()
    archive = Story().mapped(1, "m", source, b"a", publisher="").write(tmp_path / "archive")
    queue_manager_section = f"queue_manager: {{data_directory: {queue_manager.directory}}}\n"
    file = tmp_path / "bridge.yaml"
    file.write_text(
        queue_manager_section + ("mappings: {m: {from: {queue: SOURCE}, to: {mqtt: t}}}\n" if known else "")
    )
    words = ("replay", "--archive", archive, "--config", file, "--mapping", "m", "--run", source)
    result = invoke(*words)
    assert result.exit_code == 2
    assert f"the source of mapping m is queue {source}\n" in result.output
    assert f"hint: specify the destination with --to-queue {source}" in result.output
    assert "1 message put" in invoke(*words, "--to-topic", "elsewhere").output


def test_a_period_limits_the_messages(replay: Replay, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    result = replay("--to-queue", queue, "--from", "2026-03-02T12:00:05", "--to", "2026-03-02T13:00:12+01:00")
    assert result.exit_code == 0, result.output
    assert [body for _, _, body in messages_on(queue_manager, queue)] == [b"%d" % number for number in range(5, 12)]


def test_a_rate_limits_the_speed(replay: Replay, queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    # A clock that advances only with these pauses: the machine needs no time.
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append)
    monkeypatch.setattr(replay_module, "time", clock)
    queue = queue_manager.queue()
    assert replay("--to-queue", queue, "--rate", "50").exit_code == 0
    assert slept == pytest.approx([0.1] * 5), "units of five, a tenth of a second for each"


@pytest.mark.parametrize(
    ("retain", "payload", "expected"),
    [(False, b"x", (False, False)), (True, b"x", (True, False)), (True, b"", (False, True))],
)
def test_retained_publications_are_retained_on_request(
    retain: bool, payload: bytes, expected: tuple[bool, bool]
) -> None:
    values = {"topic": "t", "qos": 0, "retain": True, "payload": payload, "received": NOON}
    values |= {"publisher": "p", "publisher_message_id": 0, "properties": None}
    replayed = replay_module.message_of(values, "run", ReplayDestination(retain=retain))
    assert (replayed.retain, replayed.clear) == expected
    assert replayed.destination == Destination("t", is_topic=True)
    assert isinstance(replayed.message, Message)


def test_replayed_messages_have_their_original_properties() -> None:
    publish_properties = PublishProperties(
        payload_format_indicator=1, content_type="t", correlation_data=b"c", user_property=(("a", "1"), ("a", "2"))
    )
    values = {"topic": "t", "qos": 1, "retain": False, "payload": b"x", "received": NOON, "publisher": "p"}
    values |= {"publisher_message_id": 3, "properties": json_of(publish_properties)}
    for run in ("one", "two"):
        replayed = replay_module.message_of(values, run, ReplayDestination(queue="Q")).message
        properties_of_replayed = from_mq(replayed, with_properties=True).properties
        marks = (("replayed", run), ("published", NOON.isoformat()))
        assert properties_of_replayed == msgspec.structs.replace(
            publish_properties, user_property=(*publish_properties.user_property, *marks)
        )
        values["properties"] = json_of(properties_of_replayed)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to-queue", "Q", "--to-topic", "t"], "--to-queue and --to-topic exclude each other"),
        (["--filter", "a/#/b"], "# must be at the end of a topic filter"),
        (["--archive", "."], "replay takes one directory"),
        (["--from", "now"], "--from: expected a time"),
    ],
)
def test_wrong_usage(replay: Replay, arguments: list[str], text: str) -> None:
    result = replay(*arguments)
    assert result.exit_code == 2
    assert text in result.output


def test_an_archive_without_payloads_is_rejected(
    invoke: Callable[..., Result], queue_manager: Any, tmp_path: Path
) -> None:
    story = Story().put(1, "t", b"a")
    story.rows = [(*row[:11], None, *row[12:]) for row in story.rows]
    directory = story.write(tmp_path / "without")
    queue = queue_manager.queue()
    result = invoke("replay", "--archive", directory, "--to-queue", queue, "--data-dir", queue_manager.directory)
    assert result.exit_code == 1
    assert "contains no payloads" in result.output
