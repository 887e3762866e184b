"""`mqbridge` as a process: its exit status, and its end if other processes end first."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import pytest

import bridge
from bridge.compilation import PURE
from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE


def ended(process: Any, typed: bytes = b"") -> tuple[int, str, str]:
    output, errors = process.communicate(typed, timeout=PATIENCE)
    return process.returncode, output.decode(), errors.decode()


def test_version(start: Any) -> None:
    status, output, errors = ended(start("version"))
    assert (status, errors) == (0, "")
    first, second, third = output.splitlines()
    assert first == f"mqbridge {bridge.__version__} ({f'pure Python: {PURE}' if PURE else 'compiled'})"
    assert second.startswith(f"Python {platform.python_version()} ")
    assert third == platform.platform()


@pytest.mark.parametrize(
    "arguments",
    [
        ("mq", "put", "Q", "x"),
        ("mq", "get", "Q", "--wait", "1"),
        ("mq", "pub", "t", "x"),
        ("mq", "sub", "t"),
        ("mqsc", "display", "QMGR"),
    ],
)
def test_commands_report_that_no_bridge_is_running(start: Any, arguments: tuple[str, ...], tmp_path: Path) -> None:
    status, output, errors = ended(start(*arguments))
    assert (status, output) == (4, "")
    assert errors.startswith("mqbridge: error: MQRC_Q_MGR_NOT_AVAILABLE (2059): no bridge answers at data (")
    assert len(errors.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("way", ["option", "variable", "file", "option over all"])
def test_the_address_of_the_queue_manager_has_several_sources(
    start: Any, queue_manager: Any, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "bridge.yaml"
    right, wrong = queue_manager.directory, tmp_path / "wrong"
    path.write_text(f"queue_manager: {{data_directory: {right if way == 'file' else wrong}}}")
    arguments: list[Any] = ["--config", path] if way in ("file", "option over all") else []
    if way in ("option", "option over all"):
        arguments += ["--data-dir", right]
    variable = right if way == "variable" else wrong
    status, output, errors = ended(start("mqsc", "display", "QMGR", *arguments, MQBRIDGE_DATA_DIR=variable))
    assert (status, errors) == (0, "")
    assert "QMNAME(QM1)" in output


def test_an_invalid_configuration_file_is_reported(start: Any, tmp_path: Path) -> None:
    path = tmp_path / "bridge.yaml"
    path.write_text("channels: 7")
    status, output, errors = ended(start("mq", "get", "Q", "--config", path))
    assert (status, output) == (2, "")
    assert errors.startswith(f"{path}:1:")
    assert errors.splitlines()[1:] == [f"mqbridge: error: {path}: 1 mistake"]


@pytest.mark.parametrize(
    "arguments", [("put", "\udcff", "x"), ("pub", "a\udcff", "x"), ("sub", "a\udcff"), ("display", "QLOCAL(\udcff)")]
)
def test_arguments_that_are_not_utf_8_are_rejected(start: Any, queue_manager: Any, arguments: tuple[str, ...]) -> None:
    group = "mqsc" if arguments[0] == "display" else "mq"
    status, output, errors = ended(start(group, *arguments, MQBRIDGE_DATA_DIR=queue_manager.directory))
    assert (status, output) == (2, "")
    assert errors.startswith("mqbridge: error: expected arguments in UTF-8, found ")
    assert len(errors.splitlines()) == 1


def test_standard_input_may_be_binary(start: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    everything = bytes(range(256))
    status, _, _ = ended(start("mq", "put", queue, MQBRIDGE_DATA_DIR=queue_manager.directory), everything)
    assert status == 0
    status, output, _ = ended(start("mq", "get", queue, MQBRIDGE_DATA_DIR=queue_manager.directory))
    assert status == 0
    assert output.splitlines()[4] == "00000040  " + everything[64:80].hex(" ") + "  |@ABCDEFGHIJKLMNO|"


def test_text_is_utf_8_in_another_locale(start: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    there = {"MQBRIDGE_DATA_DIR": queue_manager.directory, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    assert ended(start("mq", "put", queue, "grün", **there))[0] == 0
    assert ended(start("mq", "get", queue, **there)) == (0, "grün\n", "")


def test_a_message_that_was_not_printed_stays_on_the_queue(start: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    queue_manager.put(queue, Message(MQMD(), b"precious"))
    reading, writing = os.pipe()
    os.close(reading)
    process = start("mq", "get", queue, "--data-dir", queue_manager.directory, stdout=writing)
    os.close(writing)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert b"Traceback" not in errors
    queue_manager.until(lambda: ended(start("mq", "get", queue, MQBRIDGE_DATA_DIR=queue_manager.directory))[0] == 0)
