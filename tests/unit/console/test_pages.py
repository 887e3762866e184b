"""Texts of the console."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bridge.administration.answers import Problem, ProblemKind
from bridge.console.console import commands
from bridge.console.operation import Overview
from bridge.service.problems import REMEDIES


def test_commands_in_a_text_are_marked_as_code() -> None:
    assert commands("run `mqbridge <x>` & wait") == "run <code>mqbridge &lt;x&gt;</code> &amp; wait"


@pytest.mark.parametrize("kind", ProblemKind)
def test_each_kind_of_problem_has_a_page_a_remedy_and_an_alert(kind: ProblemKind) -> None:
    problem = Problem("warning", kind, "subject", "what", "command")
    words, page = Overview.details(cast(Any, None), problem)
    assert words and page.startswith("/")
    assert REMEDIES[kind] or kind is ProblemKind.LIMIT  # whose remedies depend on the limit
    alerts = (Path(__file__).parents[3] / "deploy" / "alerts.yaml").read_text()
    assert f'mqbridge_problem{{kind="{kind}"}} > 0' in alerts
