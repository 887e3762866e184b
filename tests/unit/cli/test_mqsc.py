"""`mqbridge mqsc`: scripts, DISPLAY, the interactive session, and the dump of all definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.cli.options import settings
from bridge.mq.mqsc import is_complete
from tests.helpers.served_queue_manager import ServedQueueManager


def test_a_script_is_run(mq: Any, queue_manager: Any, tmp_path: Path) -> None:
    queue = queue_manager.name("QUEUE")
    script = tmp_path / "objects.mqsc"
    script.write_text(f"* what we need\nDEFINE QLOCAL({queue}) +\n  DESCR('für uns')\nDISPLAY QLOCAL({queue}) DESCR\n")
    result = mq("run", script)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("     2 : DEFINE QLOCAL(")
    assert lines[1].startswith("AMQ8006I: ")
    assert lines[2] == f"     4 : DISPLAY QLOCAL({queue}) DESCR"
    assert f"QUEUE({queue})" in result.stdout
    assert "DESCR(für uns)" in result.stdout
    assert lines[-1] == "2 MQSC commands run, 0 failed."


def test_failing_commands_are_named_by_their_line(mq: Any, queue_manager: Any, tmp_path: Path) -> None:
    queue = queue_manager.name("QUEUE")
    script = tmp_path / "objects.mqsc"
    script.write_text(f"DELETE QLOCAL({queue})\nDEFINE QLOCAL({queue})\nDEFINE CHEESE(X)\n")
    result = mq("run", script)
    assert result.exit_code == 1
    first, second, error = result.stderr.splitlines()
    assert error == "mqbridge: error: 2 of 3 MQSC commands failed"
    assert first.startswith(f"{script}:1: AMQ8147E: ")
    assert second.startswith(f"{script}:3: AMQ8405I: ")
    assert result.stdout.splitlines()[-1] == "3 MQSC commands run, 2 failed."
    assert queue_manager.depth(queue) == 0  # other commands were executed


@pytest.mark.parametrize(
    ("content", "complaint"), [(None, "No such file or directory"), (b"* ok\n\xff", "2: expected text in UTF-8")]
)
def test_unreadable_scripts_are_reported(mq: Any, tmp_path: Path, content: bytes | None, complaint: str) -> None:
    script = tmp_path / "objects.mqsc"
    if content is not None:
        script.write_bytes(content)
    result = mq("run", script)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"mqbridge: error: {script}:")
    assert complaint in result.stderr


@pytest.mark.parametrize(
    "words", [("QLOCAL({})", "CURDEPTH"), ("QLOCAL", "({})", "CURDEPTH"), ("qlocal({}) curdepth",)]
)
def test_display_prints_objects(mq: Any, queue_manager: Any, words: tuple[str, ...]) -> None:
    queue = queue_manager.queue()
    words = tuple(word.format(queue) for word in words)
    text = mq("display", *words)
    assert (text.exit_code, text.stderr) == (0, "")
    assert text.stdout.startswith("AMQ8409I: ")
    assert f"QUEUE({queue})" in text.stdout
    assert "CURDEPTH(0)" in text.stdout
    as_json = mq("display", *words, "--json")
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [
        {"QUEUE": queue, "TYPE": "QLOCAL", "CURDEPTH": 0}
    ]


@pytest.mark.parametrize(
    ("words", "status", "complaint"), [("QLOCAL(NONE)", 3, "AMQ8147E: "), ("CHEESE(*)", 1, "AMQ8405I: ")]
)
def test_display_without_results_has_a_message(mq: Any, words: str, status: int, complaint: str) -> None:
    result = mq("display", words)
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith("mqbridge: error: " + complaint)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("DISPLAY QMGR\n", True),
        ("DEFINE QLOCAL(A) +\n", False),
        ("DEFINE QLOCAL(A) +\nREPLACE\n", True),
        ("DEFINE QLOCAL(A\n", False),
        ("DEFINE QLOCAL(A) DESCR('(')\n", True),
        ("* a comment +\n", True),
    ],
)
def test_a_command_may_continue_on_the_next_line(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_a_script_is_read_from_standard_input(invoke: Any, queue_manager: Any) -> None:
    queue = queue_manager.name("QUEUE")
    script = f"DEFINE QLOCAL({queue})\n".encode()
    result = invoke("mqsc", "--data-dir", queue_manager.directory, input=script)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"AMQ8006I: Queue {queue} created." in result.stdout
    assert result.stdout.splitlines()[-1] == "1 MQSC command run, 0 failed."
    assert queue_manager.depth(queue) == 0


def test_a_dump_defines_the_same_objects_at_another_queue_manager(invoke: Any, tmp_path: Path) -> None:
    # Not the queue manager of the other tests: a dump cannot express that default objects or authorities are missing.
    first, second = tmp_path / "first", tmp_path / "second"
    commands = (
        "DEFINE QLOCAL(DUMP.QUEUE) DESCR('it''s (here)') NOSHARE MAXDEPTH(7)",
        "DEFINE QALIAS(DUMP.ALIAS) TARGET(DUMP.QUEUE)",
        "DEFINE QREMOTE(DUMP.REMOTE) RNAME(X) RQMNAME(dev)",
        "DEFINE NAMELIST(DUMP.NAMES) NAMES(A,DUMP.QUEUE)",
        "DEFINE TOPIC(DUMP.TOPIC) TOPICSTR('dump/t') DEFPRTY(3)",
        "DEFINE SUB('dump sub') TOPICSTR('dump/#') DEST(DUMP.QUEUE)",
        "DEFINE CHANNEL(DUMP.MQTT) CHLTYPE(MQTT) PORT(1884)",
        "DEFINE CHANNEL(DUMP.SVRCONN) CHLTYPE(SVRCONN)",
        "SET CHLAUTH('DUMP.*') TYPE(ADDRESSMAP) ADDRESS('10.*') USERSRC(NOACCESS)",
        "SET AUTHREC PROFILE(DUMP.QUEUE) OBJTYPE(QUEUE) GROUP('plant') AUTHADD(PUT,GET)",
        "ALTER QMGR DESCR('dumped') MAXMSGL(104857600)",
    )
    script = tmp_path / "all.mqsc"
    script.write_text("\n".join(commands))
    for directory in (first, second):
        directory.mkdir()
        with ServedQueueManager(directory, "QM1"):
            result = invoke("mqsc", "run", script, "--data-dir", directory)
            assert result.exit_code == 0, result.stderr
            dumped = invoke("mqsc", "dump", "--data-dir", directory)
            assert dumped.exit_code == 0, dumped.output
            every = invoke("mqsc", "dump", "--all", "--data-dir", directory)
        if directory == first:
            script.write_text(dumped.stdout)
    assert dumped.stdout == script.read_text()
    assert "DESCR('it''s (here)')" in dumped.stdout and "MAXMSGL(104857600)" in dumped.stdout
    assert len(every.stdout) > len(dumped.stdout)


def test_a_command_is_an_argument(invoke: Any, queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))
    queue = queue_manager.name("QUEUE")
    created = invoke("mqsc", f"DEFINE QLOCAL({queue})")
    assert (created.exit_code, created.stdout) == (0, f"AMQ8006I: Queue {queue} created.\n")
    assert invoke("mqsc", "alter", f"QLOCAL({queue})", "DESCR('two words')", "--yes").exit_code == 0
    invocation = invoke("mqsc", f"DISPLAY QLOCAL({queue}) DESCR", "-o", "jsonl")
    assert json.loads(invocation.stdout)["objects"] == [{"QUEUE": queue, "TYPE": "QLOCAL", "DESCR": "two words"}]
    failed = invoke("mqsc", f"DEFINE QLOCAL({queue})")
    assert failed.exit_code == 1 and "AMQ8150E" in failed.stdout
    assert failed.stderr == "mqbridge: error: 1 of 1 MQSC commands failed\n"
    assert "did you mean `mqbridge mqsc display`?" in invoke("mqsc", "dislay", "X").stderr


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (("mqsc", "DELETE QLOCAL(NONE)"), "Run DELETE QLOCAL(NONE)?"),
        (("mqsc", "DELETE QLOCAL(NONE)", "--yes"), ""),
        (("mqsc", "DISPLAY QLOCAL(NONE)"), ""),
        (("mqsc", "run", "SCRIPT"), "Run 2 MQSC commands that change something?"),
        (("mqsc", "run", "SCRIPT", "--yes"), ""),
    ],
)
def test_changes_are_confirmed_on_a_terminal(
    invoke: Any,
    queue_manager: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    question: str,
) -> None:
    questions: list[str] = []
    monkeypatch.setattr("bridge.cli.output.asks", lambda: not settings.yes)
    monkeypatch.setattr("typer.confirm", lambda text, err: questions.append(text))
    monkeypatch.setenv("MQBRIDGE_DATA_DIR", str(queue_manager.directory))
    script = tmp_path / "s.mqsc"
    script.write_text("DELETE QLOCAL(NONE)\nDISPLAY QMGR\nDELETE QLOCAL(NONE)\n")
    result = invoke(*(str(script) if word == "SCRIPT" else word for word in words))
    assert (result.exit_code, "".join(questions)) == (1, question)
    assert ("nothing was changed" in result.stderr) is bool(question)


def test_a_script_is_previewed(mq: Any, queue_manager: Any, tmp_path: Path) -> None:
    queue = queue_manager.name("QUEUE")
    script = tmp_path / "s.mqsc"
    script.write_text(f"DEFINE QLOCAL({queue}) MAXDEPTH(7)\nALTER QMGR DESCR('x')\n")
    result = mq("run", script, "--dry-run")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            f"     1 : create   QLOCAL {queue}",
            "         MAXDEPTH: 5000 -> 7",
            "     2 : left out ALTER QMGR DESCR('x'): ALTER QMGR is not run here: use `mqbridge mqsc`",
        ],
    )
    assert mq("display", f"QLOCAL({queue})").exit_code == 3, "nothing was changed"
    script.write_text(f"DEFINE QLOCAL({queue})\nDELETE QLOCAL(NONE)\n")
    result = mq("run", script, "--dry-run")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].startswith(f"{script}:2: AMQ8147E")
    assert [
        json.loads(line)["effect"] for line in mq("run", script, "--dry-run", "-o", "jsonl").stdout.splitlines()
    ] == [
        "create",
        "error",
    ]
