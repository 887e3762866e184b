"""Reloads of the configuration file: applied settings, rejected files, and settings that require a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.config.document import load
from bridge.config.models import Configuration
from bridge.mapping.check import problems
from bridge.service.reload import ConfigurationReload, ConfigurationSource, ReloadRefused

FILE = """\
channels: [{name: A, port: 0}]
mappings:
  a: {from: {mqtt: "a/#"}, to: {queue: OUT}}
"""
WRONG = {
    "not YAML": ("mappings: [", "bridge.yaml:"),
    "a queue's name": (FILE.replace("OUT", "'no queue'"), "bridge.yaml:3:"),
    "a template": (FILE.replace("OUT", "'{unclosed'"), "bridge.yaml:3:"),
    "an unknown link": (FILE.replace('"a/#"', '"a/#", link: none'), "bridge.yaml:3:"),
    "a port": (FILE.replace("port: 0", "port: 70000"), "bridge.yaml:1:"),
    "a channel twice": (FILE.replace("port: 0}", "port: 0}, {name: A, port: 0}"), "bridge.yaml:1:"),
    "a section": (FILE + "lmits: {}\n", "bridge.yaml:4:"),
}
#: Sections that a running bridge does not apply, each with a change.
RESTART = {
    "queue_manager": "queue_manager: {listener: {port: 1414}}\n",
    "transmission_queue": "transmission_queue: OTHER\n",
    "control_socket": "control_socket: /tmp/other.sock\n",
    "admin": "admin: {port: 8080}\n",
    "archive": "archive: {directory: /tmp/archive}\n",
}


class Taken:
    """A bridge that applies or rejects each configuration, and records it."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Configuration, Configuration]] = []
        self.refusal = ""
        #: number of concurrent calls, now and at most
        self.under_way = self.most = 0

    async def __call__(self, before: Configuration, after: Configuration) -> list[str]:
        if self.refusal:
            raise ReloadRefused(self.refusal)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self.pairs.append((before, after))
        return ["taken"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "bridge.yaml"
    path.write_text(FILE)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def source_of(path: Path) -> ConfigurationSource:
    def read(path: Path) -> Configuration:
        return load(path, problems)

    return ConfigurationSource(path, read(path), read)


@pytest.mark.parametrize("wrong", WRONG)
async def test_an_invalid_file_changes_nothing_and_is_reported(path: Path, wrong: str) -> None:
    applied = Taken()
    reload = ConfigurationReload(source_of(path), applied)
    text, place = WRONG[wrong]
    write(path, text)
    ok, lines = await reload()
    assert not ok
    assert place in lines[0]
    assert lines[-1] == "nothing has changed"
    assert not applied.pairs


@pytest.mark.parametrize("text", ["", "# all of it\n", "---\n"])
async def test_an_empty_file_changes_nothing(path: Path, text: str) -> None:
    """It is probably being written."""
    applied = Taken()
    reload = ConfigurationReload(source_of(path), applied)
    write(path, text)
    ok, lines = await reload()
    assert not ok
    assert "is empty" in lines[0]
    assert not applied.pairs


async def test_sections_that_cannot_be_applied_are_compared_with_the_last_applied_ones(path: Path) -> None:
    applied = Taken()
    reload = ConfigurationReload(source_of(path), applied)
    applied.refusal = "no such certificate"
    write(path, FILE.replace("a:", "b:"))
    assert await reload() == (False, ["no such certificate", "nothing has changed"])
    applied.refusal = ""
    assert await reload() == (True, ["taken"])
    assert await reload() == (True, ["taken"])
    assert [(list(before.mappings), list(after.mappings)) for before, after in applied.pairs] == [
        (["a"], ["b"]),
        (["b"], ["b"]),
    ]


@pytest.mark.parametrize("section", RESTART)
async def test_a_required_restart_is_reported_until_the_file_is_as_at_the_start(path: Path, section: str) -> None:
    reload = ConfigurationReload(source_of(path), Taken())
    write(path, FILE + RESTART[section])
    restart = f"{section} in {path} has changed, too: this needs a restart"
    assert await reload() == (True, ["taken", restart])
    assert await reload() == (True, ["taken", restart])
    write(path, FILE)
    assert await reload() == (True, ["taken"])


async def test_reloads_wait_for_each_other(path: Path) -> None:
    applied = Taken()
    reload = ConfigurationReload(source_of(path), applied)
    answers = await asyncio.gather(*(reload() for _ in range(5)))
    assert answers == [(True, ["taken"])] * 5
    assert applied.most == 1


async def test_without_a_file_nothing_is_reloaded() -> None:
    ok, lines = await ConfigurationReload(None, Taken())()
    assert (ok, lines) == (False, ["the bridge was started without a configuration file; nothing is reloaded"])
