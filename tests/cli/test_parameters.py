"""What is taken without typer is what typer makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    "words",
    [
        "get",
        "get Q --wait 0",
        "get Q --wait 0.25 --count 00",
        "get Q --wait -1",
        "get Q --wait nan",
        "get Q --wait 2147484",
        "get Q --count 1.5",
        "get Q --count ²",
        "get Q --count 99999999999999999999",
        "get Q --data-dir",
        "put Q x --priority 9 --expiry 1 --property a=b --property c=d",
        "put Q x --priority 10",
        "put Q x --priority x",
        "put Q x --ccsid 0",
        "put Q x --property a",
        "display",
        "display A B",
    ],
)
def test_typer_says_the_same(words: str, invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    taken = invoke("mq", *words.split())
    monkeypatch.setattr("bridge.cli.commands.shorten", lambda parameters: None)
    told = invoke("mq", *words.split())
    assert taken.exit_code in (1, 2)
    assert (taken.exit_code, taken.output) == (told.exit_code, told.output)


def test_a_path_that_cannot_be_read(invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    refused = invoke("check", tmp_path)
    assert refused.exit_code == 2
    assert "is not readable" in refused.output
