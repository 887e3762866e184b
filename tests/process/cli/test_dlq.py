"""`mqbridge dlq`."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.cli import dlq as dlq_commands
from bridge.mq.dead_letter import OriginContext, dead_letter
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE, until

BODY = bytes(range(256))
Send = Callable[..., None]


@pytest.fixture
def letters(queue_manager: Any) -> str:
    return str(queue_manager.queue())


@pytest.fixture
def dlq(invoke: Any, queue_manager: Any, letters: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a `mqbridge dlq` command at the queue manager, with a dead-letter queue of this test."""
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))
    return lambda name, *words: invoke("dlq", name, *words, "--queue", letters)


@pytest.fixture
def send(queue_manager: Any, letters: str) -> Send:
    def put(queue: str, data: bytes = BODY, reason: int = cmqc.MQRC_Q_FULL, persistence: int = 1) -> None:
        md = MQMD(Format=b"MYFMT", Encoding=cmqc.MQENC_NATIVE, CodedCharSetId=1208, Persistence=persistence)
        letter = dead_letter(md, data, reason, queue, "QM1", OriginContext.now("putter"))
        queue_manager.put(letters, letter)

    return put


def objects(result: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_list_and_show_print_the_reason_and_the_remedy(dlq: Any, send: Send) -> None:
    send("ORDERS")
    listed = dlq("list")
    assert listed.exit_code == 0 and "MQRC_Q_FULL (2053)" in listed.stdout and "ORDERS at QM1" in listed.stdout
    (letter,) = objects(dlq("list", "--json"))
    assert (letter["reason"], letter["destination"], letter["size"]) == (2053, "ORDERS", len(BODY))
    invocation = dlq("show", letter["id"])
    assert invocation.exit_code == 0
    for words in ("MAXDEPTH", "what to do", "MQDLH", "MYFMT", "putter"):
        assert words in invocation.stdout
    (whole,) = objects(dlq("show", letter["id"].lower(), "--json"))
    assert base64.b64decode(whole["body"]) == BODY and whole["dlh"]["ReasonName"] == "MQRC_Q_FULL"
    assert dlq("show", "00" * 24).exit_code == 3


def test_list_shows_a_limited_number_and_reports_that_there_are_more(dlq: Any, send: Send) -> None:
    for _ in range(3):
        send("ORDERS")
    assert "there may be more" in dlq("list", "--limit", 2).stderr
    invocation = dlq("list", "--limit", 2, "--json")
    assert len(objects(invocation)) == 2 and "there may be more" in invocation.stderr
    assert "no such messages" in dlq("list", "--reason", "MQRC_NOT_AUTHORIZED").stdout


def test_retry_reports_the_numbers_of_retried_and_returned_messages(
    dlq: Any, send: Send, queue_manager: Any, letters: str
) -> None:
    room = queue_manager.queue()
    for queue in (room, "NO.SUCH.QUEUE", room):
        send(queue)
    result = dlq("retry", "--all")
    assert result.exit_code == 1
    assert (
        "retried 3 messages: 2 delivered, 1 stayed" in result.stdout and f"delivered to queue {room}" in result.stdout
    )
    assert "stayed on the dead-letter queue" in result.stderr and "MQRC_UNKNOWN_OBJECT_NAME" in result.stderr
    assert (queue_manager.depth(room), queue_manager.depth(letters)) == (2, 1)
    (stays,) = objects(dlq("retry", "--bound-for", "NO.*", "--json"))
    assert stays["failure"].startswith("MQRC_UNKNOWN_OBJECT_NAME")
    result = dlq("retry", "--bound-for", "NO.*", "--to", room)
    assert result.exit_code == 0 and queue_manager.depth(room) == 3
    result = dlq("retry", "--all")
    assert result.exit_code == 3 and "no such messages" in result.stderr


@pytest.mark.parametrize("command", ["retry", "delete"])
def test_nothing_is_changed_without_a_selection(
    dlq: Any, send: Send, queue_manager: Any, letters: str, command: str
) -> None:
    send("ORDERS")
    result = dlq(command)
    assert result.exit_code == 2 and "--all" in result.stderr
    assert queue_manager.depth(letters) == 1


@pytest.mark.parametrize(
    "words", [("--reason", "NONSENSE"), ("--older-than", "soon"), ("--topic", "a/#/b"), ("--newer-than", "3 weeks")]
)
def test_an_option_without_effect_is_an_error(dlq: Any, words: tuple[str, ...]) -> None:
    result = dlq("list", *words)
    assert result.exit_code == 2 and words[0] in result.stderr


def test_delete_first_prints_what_it_would_delete(dlq: Any, send: Send, queue_manager: Any, letters: str) -> None:
    send("ORDERS")
    send("OTHER")
    result = dlq("delete", "--bound-for", "ORDERS", "--dry-run")
    assert result.exit_code == 0 and "1 message would be deleted" in result.stdout
    assert queue_manager.depth(letters) == 2
    (letter,) = objects(dlq("delete", "--bound-for", "ORDERS", "--json"))
    assert letter["destination"] == "ORDERS" and queue_manager.depth(letters) == 1


@pytest.mark.parametrize("directory", [False, True])
def test_an_export_contains_the_complete_messages(
    dlq: Any, invoke: Any, send: Send, queue_manager: Any, letters: str, tmp_path: Path, directory: bool
) -> None:
    for number in range(3):
        send("ORDERS", BODY + bytes([number]))
    place = tmp_path / "letters"
    if directory:
        place.mkdir()
    assert dlq("export", place, "--all").exit_code == 0
    assert queue_manager.depth(letters) == 3
    if not directory:
        again = dlq("export", place, "--all", "--delete")
        assert again.exit_code == 1 and "exists" in again.stderr.lower()
        assert queue_manager.depth(letters) == 3
    files = list(place.iterdir()) if directory else [place]
    written = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(base64.b64decode(letter["body"]) for letter in written) == [
        BODY + bytes([number]) for number in range(3)
    ]
    assert {letter["letter"]["reason_name"] for letter in written} == {"MQRC_Q_FULL"}
    assert all(base64.b64decode(letter["data"])[172:] == base64.b64decode(letter["body"]) for letter in written)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)


def test_exported_messages_are_deleted_after_they_are_on_disk(
    dlq: Any, send: Send, queue_manager: Any, letters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        send("ORDERS")

    def fails(_export: object) -> None:
        assert queue_manager.depth(letters) == 0  # got, not committed
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(dlq_commands.Export, "sync", fails)
        assert dlq("export", tmp_path / "one", "--all", "--delete").exit_code == 1
    assert queue_manager.depth(letters) == 3
    assert dlq("export", tmp_path / "two", "--all", "--delete").exit_code == 0
    assert queue_manager.depth(letters) == 0
    assert len((tmp_path / "two").read_text().splitlines()) == 3
    assert (
        dlq("export", tmp_path / "three", "--all", "--delete").stdout
        == f"exported 0 messages to {tmp_path / 'three'}\n"
    )


def test_try_accepts_an_exported_message(send: Send, dlq: Any, tmp_path: Path) -> None:
    from bridge.cli.trial import message_in

    send("ORDERS")
    assert dlq("export", tmp_path / "one.json", "--all").exit_code == 0
    message = message_in(tmp_path / "one.json", None, None)
    assert (message.md.Format, message.md.CodedCharSetId, message.data) == (b"MYFMT", 1208, BODY)


def test_a_kill_during_an_export_neither_loses_nor_duplicates_a_message(
    start: Any, send: Send, queue_manager: Any, letters: str
) -> None:
    room = queue_manager.queue("MAXDEPTH(100000)")
    for number in range(300):
        send(room, b"%d" % number)
    process = start(
        "dlq", "retry", "--all", "--queue", letters, "--data-dir", queue_manager.directory, MQBRIDGE_DATA_DIR=""
    )
    until(lambda: queue_manager.depth(room) >= 20)
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    until(lambda: queue_manager.depth(room) + queue_manager.depth(letters) == 300)
    assert queue_manager.depth(letters) > 0
    again = start("dlq", "retry", "--all", "--queue", letters, "--data-dir", queue_manager.directory)
    assert again.wait(PATIENCE) == 0
    numbers = sorted(int(stored.message.data) for stored in queue_manager.itself.objects.queues[room].messages())
    assert numbers == list(range(300))


def test_without_a_dead_letter_queue_the_error_names_the_option(
    invoke: Any, queue_manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))
    before = queue_manager.command("DISPLAY QMGR DEADQ")[0]["DEADQ"]
    queue_manager.connection.command("ALTER QMGR DEADQ(' ')")
    try:
        result = invoke("dlq", "list")
        assert result.exit_code == 3 and "DEADQ" in result.stderr
    finally:
        queue_manager.connection.command(f"ALTER QMGR DEADQ('{before}')")


def test_a_message_without_an_mqdlh_is_listed(dlq: Any, queue_manager: Any, letters: str) -> None:
    queue_manager.put(letters, Message(MQMD(), b"stray"))
    assert "no MQDLH" in dlq("list").stdout
