"""The manual page as a terminal shows it."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from bridge.cli.program import all_examples
from tests.helpers import installed


def rendered(page: bytes) -> str:
    """Return the page as a terminal shows it, without bold and underlined characters. groff reports no errors."""
    process = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-rLL=200n"], input=page, capture_output=True)
    assert (process.returncode, process.stderr.decode()) == (0, "")
    return re.sub(r"\x1b\[[0-9;]*m|.\x08", "", process.stdout.decode())


@pytest.fixture(scope="module")
def page() -> str:
    installed.program("groff")
    script = Path(__file__).parents[3] / "deploy" / "man.py"
    return rendered(runpy.run_path(str(script))["manual_page"]().encode("ascii"))


def test_the_page_contains_each_command_with_its_examples(page: str) -> None:
    for command, examples in all_examples().items():
        assert re.search(rf"^   {re.escape(command)} \S*", page, re.MULTILINE), command
        for example in examples:
            assert re.search(rf"^ +{re.escape(example)}$", page, re.MULTILINE), example
