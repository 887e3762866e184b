"""The help: each command has examples, and each example is a command that there is, with options that it has."""

from __future__ import annotations

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
