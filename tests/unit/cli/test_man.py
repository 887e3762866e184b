"""The manual page mqbridge(1): made of the help, complete, and nothing that groff complains of."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from bridge.cli.examples import EXAMPLES
from bridge.cli.man import manual_page

SECTIONS = (
    "NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "FILES", "ENVIRONMENT", "EXAMPLES", "SEE ALSO",
)  # fmt: skip


def rendered(page: bytes) -> str:
    """The page as a terminal shows it, without bold and underlined letters; groff has nothing to complain of."""
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-rLL=200n"], input=page, capture_output=True)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout.decode())


@pytest.fixture(scope="module")
def page() -> str:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    return rendered(manual_page().encode("ascii"))


def test_the_sections_are_there_in_the_order_of_man_pages() -> None:
    """As man-pages(7) has them."""
    assert tuple(re.findall(r"^\.SH (.+)$", manual_page(), re.MULTILINE)) == SECTIONS


@pytest.mark.parametrize("command", EXAMPLES)
def test_each_command_is_in_it_with_its_examples(page: str, command: str) -> None:
    """A command has a heading of its own, and its examples are as one types them."""
    assert re.search(rf"^   {re.escape(command)} \S*", page, re.MULTILINE)
    for example in EXAMPLES[command]:
        assert re.search(rf"^ +{re.escape(example)}$", page, re.MULTILINE), example


def test_it_is_printed_by_a_module() -> None:
    """As the packages make it."""
    done = subprocess.run([sys.executable, "-m", "bridge.cli.man"], capture_output=True, text=True, check=True)
    assert done.stdout == manual_page()


def test_man_has_nothing_to_complain_of(tmp_path: object) -> None:
    """`man --warnings`, where it is installed."""
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    path = f"{tmp_path}/mqbridge.1"
    with open(path, "w", encoding="ascii") as file:
        file.write(manual_page())
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
