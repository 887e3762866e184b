"""Output formats, confirmation, quiet and debug output, and options before the command."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from bridge.cli.failures import Failure
from bridge.cli.options import settings
from bridge.cli.output import confirm, styled


@pytest.fixture
def queues(queue_manager: Any) -> list[str]:
    return [queue_manager.queue() for _ in range(2)]


def display(invoke: Any, queue_manager: Any, format_: str, name: str) -> Any:
    words = ["mqsc", "display", f"QLOCAL({name})", "CURDEPTH", "-o", format_]
    result = invoke(*words, "--data-dir", queue_manager.directory)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_formats(invoke: Any, queue_manager: Any, queues: list[str]) -> None:
    expected = [{"QUEUE": queue, "TYPE": "QLOCAL", "CURDEPTH": 0} for queue in queues]
    for queue, attributes in zip(queues, expected, strict=True):
        assert json.loads(display(invoke, queue_manager, "json", queue)) == [attributes]
        assert json.loads(display(invoke, queue_manager, "jsonl", queue)) == attributes
        assert yaml.safe_load(display(invoke, queue_manager, "yaml", queue)) == [attributes]
        assert display(invoke, queue_manager, "name", queue) == f"{queue}\n"
    by_name = {row["QUEUE"]: row for row in json.loads(display(invoke, queue_manager, "json", "*"))}
    assert [by_name[queue] for queue in queues] == expected
    assert len(yaml.safe_load(display(invoke, queue_manager, "yaml", "*"))) == len(by_name)
    assert set(display(invoke, queue_manager, "name", "*").split()) == set(by_name)


def test_no_records_are_an_empty_list(invoke: Any, queue_manager: Any, queues: list[str]) -> None:
    result = invoke("mq", "get", queues[0], "-o", "json", "--data-dir", queue_manager.directory)
    assert (result.exit_code, json.loads(result.stdout)) == (3, [])


def test_an_unknown_format_is_rejected(invoke: Any) -> None:
    result = invoke("client", "list", "-o", "xml")
    assert result.exit_code == 2 and "'xml' is not one of" in result.stderr


def test_options_before_the_command_apply_to_it(invoke: Any, queue_manager: Any, queues: list[str]) -> None:
    result = invoke("--data-dir", queue_manager.directory, "mqsc", "display", f"QLOCAL({queues[0]})")
    assert result.exit_code == 0, result.stderr
    # The option after the command overrides it.
    result = invoke("--data-dir", "/nowhere", "mqsc", "display", "QMGR", "--data-dir", queue_manager.directory)
    assert result.exit_code == 0, result.stderr
    # A value does not apply to the next command.
    assert invoke("mqsc", "display", "QMGR").exit_code == 4


def test_quiet_prints_results_only(invoke: Any, queue_manager: Any, queues: list[str]) -> None:
    result = invoke("mq", "sub", "a", "--wait", "0", "--quiet", "--data-dir", queue_manager.directory)
    assert (result.exit_code, result.output) == (0, "")


def test_debug_prints_a_traceback(invoke: Any) -> None:
    result = invoke("mqsc", "display", "QMGR", "--debug", "--data-dir", "/nowhere")
    assert result.exit_code == 4
    assert "Traceback" in result.stderr and "mqbridge: error: MQRC_Q_MGR_NOT_AVAILABLE" in result.stderr


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "yes", "answer", "asks"), [
    (True, False, True, True), (True, False, False, True), (True, True, False, False), (False, False, False, False),
])  # fmt: skip
def test_destructive_commands_ask_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, yes: bool, answer: bool, asks: bool
) -> None:
    questions: list[str] = []

    def ask(question: str, err: bool) -> bool:
        questions.append(question)
        return answer

    settings.reset()
    monkeypatch.setattr(settings, "yes", yes)
    monkeypatch.setattr("typer.confirm", ask)
    if terminal:
        monkeypatch.setattr("sys.stdin", Terminal())
    if asks and not answer:
        with pytest.raises(Failure, match="nothing was changed"):
            confirm("Delete?")
    else:
        confirm("Delete?")
    assert questions == ["Delete?"] * asks


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.reset()
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled("x", "red") == "x"
    monkeypatch.setattr("sys.stdout", Terminal())
    assert styled("x", "red") != "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", "red") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setattr(settings, "no_color", True)
    assert styled("x", "red") == "x"
