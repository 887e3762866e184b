"""The help: each command has examples, and each example is a command that there is, with options that it has."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner

from bridge.cli.examples import EXAMPLES
from bridge.cli.program import GROUPS, BridgeCommands, program

COMMANDS = [group.PREFIX + name for group in (BridgeCommands, *GROUPS.values()) for name in group.FUNCTIONS]


def test_each_command_has_examples() -> None:
    assert sorted(EXAMPLES) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_shows_them_and_they_are_commands(command: str) -> None:
    shown = CliRunner().invoke(program, [*command.split(), "--help"]).output
    for example in EXAMPLES[command]:
        assert f"  {example}\n" in shown
        for part in example.partition(" > ")[0].split(" | "):
            name, *words = shlex.split(part)
            assert name == "mqbridge"
            # Its words are parsed, up to the --help that ends it before it does anything.
            done = CliRunner().invoke(program, [*words, "--help"])
            assert done.exit_code == 0, f"{example}: {done.output}"
            known = [word for word in words if word.startswith("--")]
            assert all(word in done.output for word in known), example


def test_each_command_is_below_one_heading_that_a_newcomer_understands() -> None:
    placed = [name for section in BridgeCommands.SECTIONS.values() for name in section]
    assert sorted(placed) == sorted({*BridgeCommands.FUNCTIONS, *GROUPS})
    shown = CliRunner().invoke(program, ["--help"]).output
    for heading, names in BridgeCommands.SECTIONS.items():
        below = shown.split(f"\n{heading}:\n")[1].split("\n\n")[0]
        # What is said of a command may go on below it.
        assert re.findall(r"^  (\S+)", below, re.M) == list(names)


def test_an_older_name_of_a_command_works_and_is_not_in_the_help() -> None:
    assert re.findall(r"^  (mapping\S*)", CliRunner().invoke(program, ["--help"]).output, re.M) == ["mapping"]
    done = CliRunner().invoke(program, ["mappings", "--help"])
    assert done.exit_code == 0 and "older name of `mapping list`" in " ".join(done.output.split())


def test_the_help_tells_the_exit_statuses() -> None:
    shown = " ".join(CliRunner().invoke(program, ["--help"]).output.split())
    assert "Exit status: 0 when all was done, 1 when something could not be done, 2 when the command" in shown
