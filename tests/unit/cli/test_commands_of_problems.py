"""The commands that problems name, with the options by which the user's command reached the bridge."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bridge import service
from bridge.administration.answers import Problem, ProblemKind
from bridge.cli.administration import as_typed, print_problem
from bridge.cli.options import settings
from bridge.service.problems import REMEDIES
from tests.helpers.command_line import Invoke

TEXTS = [
    *REMEDIES.values(),
    *((Path(service.__file__).parent / f"{name}.py").read_text() for name in ("problems", "limit_problems")),
]
COMMANDS = sorted({command for text in TEXTS for command in re.findall(r"[`\"](mqbridge [^`\"\n]+)[`\"]", text)})


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who typed both options."""
    monkeypatch.setattr(settings, "config", Path("a plant.yaml"))
    monkeypatch.setattr(settings, "data_dir", Path("data"))


def test_commands_take_the_options_that_they_are_shown_with(
    place: None, invoke: Invoke, subtests: pytest.Subtests
) -> None:
    assert len(COMMANDS) > 30
    for command in COMMANDS:
        with subtests.test(command=command):
            words = shlex.split(as_typed(command))[1:]
            names = [word for word in words[:3] if re.fullmatch("[a-z-]+", word) and word[0] != "-"]
            while (help_run := invoke(*names, "--help")).exit_code:
                names.pop()
            assert names
            for option in {"-c", "--data-dir"} & {*words}:
                assert re.search(rf"^ +{option}\b", help_run.output, re.M), (option, help_run.output)


def test_the_commands_of_a_remedy_have_these_options(place: None, capsys: pytest.CaptureFixture[str]) -> None:
    remedy = (
        "Run `mqbridge dlq show ID`, `mqbridge check`, `mqbridge explain MQB3012E`, or `echo X | mqbridge mqsc run -`."
    )
    print_problem(Problem("error", ProblemKind.DEAD_LETTERS, "D", "a letter", "mqbridge dlq list", 0.0, remedy))
    first, second = capsys.readouterr().out.splitlines()
    assert first == "PROBLEM (error): a letter; see `mqbridge dlq list -c 'a plant.yaml' --data-dir data`"
    assert second.partition(". ")[2] == (
        "Run `mqbridge dlq show ID -c 'a plant.yaml' --data-dir data`, `mqbridge check -c 'a plant.yaml'`,"
        " `mqbridge explain MQB3012E`, or `echo X | mqbridge mqsc run - -c 'a plant.yaml' --data-dir data`."
    )
