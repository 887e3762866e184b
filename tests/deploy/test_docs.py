"""The pages of docs/: what they tell to type is there, and the reference has all that there is."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from bridge.cli.examples import EXAMPLES
from bridge.cli.program import program
from bridge.config import load
from bridge.config.json_schema import json_schema
from bridge.log_messages.catalogue import catalogue
from bridge.service.metrics.catalogue import METRICS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    return {name: page() for name, page in module("reference").PAGES.items()}


def commands() -> list[tuple[str, str]]:
    return [
        (page.name, line.partition("#")[0].strip())
        for page in PAGES
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for line in re.findall(r"^\$ (mqbridge .*)$", block, re.M)
    ]


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_that_are_told_exist(page: str, line: str) -> None:
    _, *words = shlex.split(line)
    shown = CliRunner().invoke(program, [*words, "--help"])
    assert shown.exit_code == 0, shown.output
    assert all(word in shown.output for word in words if word.startswith("--")), (page, line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_configurations_that_are_told_are_right(page: Path, tmp_path: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        file = tmp_path / "bridge.yaml"
        file.write_text(block, encoding="utf-8")
        load(file)


def test_the_reference_has_every_option(reference: dict[str, str]) -> None:
    schema = json_schema()
    for model in [schema, *schema["$defs"].values()]:
        for name in model.get("properties", {}):
            assert f"| `{name}` |" in reference["configuration"], name


def test_the_reference_has_every_command_message_and_metric(reference: dict[str, str]) -> None:
    assert [name for name in EXAMPLES if f"\n### {name}\n" not in reference["commands"]] == []
    assert [name for name in catalogue() if f"\n## {name}\n" not in reference["messages"]] == []
    assert [one.name for one in METRICS if f"| `{one.name}` |" not in reference["metrics"]] == []


def test_what_pages_take_from_the_readme_is_there() -> None:
    for page, text in module("hooks").pages_of_readme().items():
        assert len(text) > 500, page
        assert not re.search(r"\]\((?!https?:)", text), page


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_pages_are_built_without_a_broken_link() -> None:
    done = subprocess.run(
        ["make", "docs", f"VENV={Path(sys.executable).parents[1]}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "build" / "docs" / "how-to" / "moving-from-mqxr.html").is_file()
