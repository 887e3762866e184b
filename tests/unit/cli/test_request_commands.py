"""Commands that are generated from administration requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
import typer
from msgspec import Meta
from typer.testing import CliRunner

from bridge.administration.protocol import Request
from bridge.cli import output, request_commands
from bridge.cli.options import BRIDGE, OUTPUT, YES, settings
from bridge.cli.request_commands import action, listing


class RingBell(Request[None], tag="bell ring"):
    """Ring a bell.

    It rings until someone answers.
    """

    CHANGES = True

    name: Annotated[str, Meta(description="Name of the bell.", examples=["front-door"])]
    tone: Annotated[Literal["high", "low"], Meta(description="Tone: high or low.", examples=["low"])]
    #: not an argument of the command
    times: int = 1


class Bell(msgspec.Struct):
    """A bell."""

    name: str
    rung: int


class ListBells(Request[list[Bell]], tag="bell list"):
    """List the bells."""


def run(command: Any, *words: str) -> Any:
    """Run a single command."""
    program = typer.Typer()
    program.command()(command)
    return CliRunner().invoke(program, words)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    requests: list[Any] = []
    monkeypatch.setattr(request_commands, "done", requests.append)
    settings.reset()
    return requests


def test_required_fields_are_arguments(sent: list[Any]) -> None:
    command: Any = action(RingBell)
    assert run(command, "front", "low").exit_code == 0
    assert sent == [RingBell(name="front", tone="low")]
    assert command.takes == BRIDGE
    assert command.examples == ("mqbridge bell ring front-door low",)
    assert run(command, "front").exit_code == run(command, "front", "middle").exit_code == 2


def test_the_help_is_the_docstring() -> None:
    help_text = run(action(RingBell), "--help").output
    for text in (
        "Ring a bell.",
        "It rings until someone answers.",
        "BELL",
        "Name of the bell.",
        "TONE",
        "Tone: high or low.",
    ):
        assert text in help_text
    assert "times" not in help_text


def test_a_command_with_a_question_must_be_confirmed(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []
    monkeypatch.setattr(output, "confirm", questions.append)
    command: Any = action(RingBell, "Ring {name} with a {tone} tone?")
    assert command.takes == BRIDGE | YES
    assert run(command, "front", "low").exit_code == 0
    assert (questions, len(sent)) == (["Ring front with a low tone?"], 1)


@pytest.mark.parametrize("bells", [[], [Bell("front", 3), Bell("back", 0)]])
def test_a_list_is_printed_as_a_table(monkeypatch: pytest.MonkeyPatch, bells: list[Bell]) -> None:
    settings.reset()
    monkeypatch.setattr(request_commands, "shown", lambda request: bells)
    command: Any = listing(
        ListBells, {"bell": "name", "rung": "rung"}, "no bells", lambda bell: [f"{bell.name}: mute"] * (not bell.rung)
    )
    assert command.takes == BRIDGE | OUTPUT
    expected = ["bell   rung", "front     3", "back      0", "back: mute"] if bells else ["no bells"]
    assert run(command).output.splitlines() == expected
