"""The help and the manual page: each command has examples with existing commands and options."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bridge.cli.examples import EXAMPLES as LISTED_EXAMPLES
from bridge.cli.program import SECTIONS, all_examples, program

EXAMPLES = all_examples()
COMMANDS = list(EXAMPLES)


def test_each_command_has_examples() -> None:
    assert [command for command, examples in EXAMPLES.items() if not examples] == []
    assert sorted(set(LISTED_EXAMPLES) - set(COMMANDS)) == []


def test_the_help_of_a_command_shows_its_examples() -> None:
    for command, examples in EXAMPLES.items():
        output = CliRunner().invoke(program, [*command.split(), "--help"]).output
        assert [example for example in examples if f"  {example}\n" not in output] == [], command
        assert not re.search(r"[a-z][.]{3}$", output, re.MULTILINE), "a description is cut off"


def test_examples_use_existing_commands_and_options() -> None:
    for example in (example for examples in EXAMPLES.values() for example in examples):
        for part in re.split(" [<>] ", example)[0].split(" | "):
            name, *words = shlex.split(part)
            assert name == "mqbridge"
            # --help ends the command after its words were parsed, before it does anything.
            result = CliRunner().invoke(program, [*words, "--help"])
            assert result.exit_code == 0, f"{example}: {result.output}"
            assert [word for word in words if word.startswith("--") and word not in result.output] == [], example


def test_the_sections_of_the_help_contain_all_commands() -> None:
    output = CliRunner().invoke(program, ["--help"]).output
    for heading, names in SECTIONS.items():
        below = output.split(f"\n{heading}:\n")[1].split("\n\n")[0]
        # The description of a command may continue on the next line.
        assert re.findall(r"^  (\S+)", below, re.M) == list(names)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("client list --rows 5", "`mqbridge client list --help` describes the command"),
        ("client lsit", "did you mean `mqbridge client list`?"),
        ("nonsense", "`mqbridge help` lists the commands"),
        ("client show", "`mqbridge client show --help` describes the command"),
    ],
)
def test_wrong_usage_has_a_hint(words: str, hint: str) -> None:
    result = CliRunner().invoke(program, words.split(), prog_name="mqbridge")
    assert (result.exit_code, result.stdout) == (2, "")
    error, last = result.stderr.splitlines()
    assert error.startswith("mqbridge: error: ")
    assert last == f"hint: {hint}"


def test_help_is_a_command() -> None:
    runner = CliRunner()
    assert runner.invoke(program, ["help"]).output == runner.invoke(program, ["--help"]).output
    invocation = runner.invoke(program, ["help", "client", "purge"])
    assert invocation.exit_code == 0
    assert invocation.output == runner.invoke(program, ["client", "purge", "--help"]).output
    assert runner.invoke(program, ["help", "nonsense"]).exit_code == 2


def test_the_version_is_an_option_and_a_command() -> None:
    runner = CliRunner()
    assert runner.invoke(program, ["-V"]).output == runner.invoke(program, ["version"]).output


def test_the_usage_line_shows_required_arguments_in_capitals() -> None:
    output = CliRunner().invoke(program, ["client", "show", "--help"], prog_name="mqbridge").output
    assert output.startswith("Usage: mqbridge client show [OPTIONS] CLIENT\n")


SCRIPT = Path(__file__).parents[3] / "deploy" / "man.py"
MAN_SECTIONS = (
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "COMMANDS",
    "EXIT STATUS",
    "FILES",
    "ENVIRONMENT",
    "EXAMPLES",
    "SEE ALSO",
)


def manual_page() -> str:
    """The page that the script prints."""
    return str(runpy.run_path(str(SCRIPT))["manual_page"]())


def test_the_sections_have_the_order_of_man_pages() -> None:
    """By man-pages(7)."""
    assert tuple(re.findall(r"^\.SH (.+)$", manual_page(), re.MULTILINE)) == MAN_SECTIONS


def test_a_script_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out == manual_page()
