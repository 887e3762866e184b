"""`mqbridge mqsc run` and `display`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_a_script(mq: Any, queue_manager: Any, tmp_path: Path) -> None:
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
    assert queue_manager.depth(queue) == 0  # what could be done was done


@pytest.mark.parametrize(
    ("content", "complaint"), [(None, "No such file or directory"), (b"* ok\n\xff", "2: expected text in UTF-8")]
)
def test_scripts_that_cannot_be_read(mq: Any, tmp_path: Path, content: bytes | None, complaint: str) -> None:
    script = tmp_path / "objects.mqsc"
    if content is not None:
        script.write_bytes(content)
    result = mq("run", script)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"mqbridge: error: {script}:")
    assert complaint in result.stderr


@pytest.mark.parametrize("words", [("QLOCAL({})", "CURDEPTH"), ("QLOCAL", "({})", "CURDEPTH"), ("qlocal({}) curdepth",)])
def test_display(mq: Any, queue_manager: Any, words: tuple[str, ...]) -> None:
    queue = queue_manager.queue()
    words = tuple(word.format(queue) for word in words)
    text = mq("display", *words)
    assert (text.exit_code, text.stderr) == (0, "")
    assert text.stdout.startswith("AMQ8409I: ")
    assert f"QUEUE({queue})" in text.stdout
    assert "CURDEPTH(0)" in text.stdout
    as_json = mq("display", *words, "--json")
    assert [json.loads(line) for line in as_json.stdout.splitlines()] == [{"QUEUE": queue, "TYPE": "QLOCAL", "CURDEPTH": 0}]


@pytest.mark.parametrize(
    ("words", "status", "complaint"), [("QLOCAL(NONE)", 3, "AMQ8147E: "), ("CHEESE(*)", 1, "AMQ8405I: ")]
)
def test_display_of_nothing(mq: Any, words: str, status: int, complaint: str) -> None:
    result = mq("display", words)
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith("mqbridge: error: " + complaint)
