"""Files of tables: changes are noticed, and the previous rows stay in use if the file is invalid."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.config.table import TableConfig
from bridge.mapping.table import Table, table_of
from bridge.service import table_files
from bridge.service.table_files import TableFiles
from tests.helpers.patience import happens


class Devices:
    """A table, its file, and the part that updates it."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "devices.csv"
        self.write("id,site\n1,a\n")
        self.config = TableConfig(file=str(self.file), key="id")
        table_of(self.config)
        self.files = TableFiles({"devices": self.config})

    def write(self, content: str) -> None:
        new = self.file.with_name("new")
        new.write_text(content)
        new.rename(self.file)

    @property
    def sites(self) -> list[str]:
        assert isinstance(self.config.content.rows, Table)
        return [row[1] for row in self.config.content.rows._rows.values()]

    @property
    def problem(self) -> str:
        return self.files.files["devices"].problem

    async def until(self, sites: list[str], problem: str = "") -> None:
        await happens(lambda: self.sites == sites and bool(problem) == bool(self.problem) and problem in self.problem)


@pytest.fixture
async def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Devices]:
    monkeypatch.setattr(table_files, "INTERVAL", 0.01)
    devices = Devices(tmp_path)
    with devices.files.watched():
        yield devices


async def test_a_changed_file_is_read(devices: Devices, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    devices.write("id,site\n1,b\n2,c\n")
    await devices.until(["b", "c"])
    assert f"MQB5012I table devices: 2 rows of {devices.file} are in use" in caplog.text


async def test_an_invalid_file_is_a_problem_until_it_is_corrected(
    devices: Devices, caplog: pytest.LogCaptureFixture
) -> None:
    for count, (content, problem) in enumerate(
        [
            ("id,site\n1\n", "devices.csv:2: expected 2 columns"),
            ("id\n1\n", "devices.csv:1: column 'site' is missing"),
            ("id,site\n1,x\n1,y\n", "devices.csv:3: the key '1' again"),
        ],
        1,
    ):
        devices.write(content)
        await devices.until(["a"], problem)
        assert devices.files.files["devices"].failures == count
    await asyncio.sleep(0.1)
    assert devices.files.files["devices"].failures == 3
    assert caplog.text.count("MQB5013E table devices: the former rows stay in use: ") == 3
    devices.write("id,site,more\n1,b,x\n")
    await devices.until(["b"])


async def test_the_previous_content_may_return(devices: Devices) -> None:
    """Also with the same times, for example from a backup."""
    former = devices.file.with_name("former")
    os.link(devices.file, former)
    devices.write("id,site\n1\n")
    await devices.until(["a"], "expected 2 columns")
    former.rename(devices.file)
    await devices.until(["a"])


async def test_a_missing_file_is_a_problem(devices: Devices) -> None:
    devices.file.unlink()
    await devices.until(["a"], "devices.csv cannot be read: No such file or directory")
    await asyncio.sleep(0.1)
    assert devices.files.files["devices"].failures == 1
    devices.write("id,site\n1,b\n")
    await devices.until(["b"])


async def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    """Its size differs between two inspections."""
    devices = Devices(tmp_path)
    with devices.file.open("a") as file:
        for number in range(2, 10):
            file.write(f"{number},b\n")
            file.flush()
            await devices.files._review("devices", devices.config)
            assert devices.sites == ["a"]
    await devices.files._review("devices", devices.config)
    assert devices.sites == ["a", *["b"] * 8]


async def test_files_that_changed_while_a_bridge_stood_by_are_read_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    devices = Devices(tmp_path)
    devices.write("id,site\n1,b\n")
    await devices.files.refresh()
    assert devices.sites == ["b"]
    devices.write("id,site\n1\n")
    await devices.files.refresh()
    assert devices.sites == ["b"] and "expected 2 columns" in devices.problem
    devices.file.unlink()
    await devices.files.refresh()
    assert devices.sites == ["b"] and "cannot be read" in devices.problem


async def test_reloaded_tables(devices: Devices, tmp_path: Path) -> None:
    """The failures of a table are still counted, and files of removed tables are no longer inspected."""
    devices.write("id,site\n1\n")
    await devices.until(["a"], "expected 2 columns")
    (tmp_path / "more.csv").write_text("id,site\n1,x\n")
    more = TableConfig(file=str(tmp_path / "more.csv"), key="id")
    table_of(more)
    devices.write("id,site\n1,b\n")
    devices.files.use({"devices": devices.config, "more": more})
    await devices.until(["b"])
    assert devices.files.files["devices"].failures == 1
    devices.files.use({"more": more})
    devices.write("id,site\n1,c\n")
    (tmp_path / "more.csv").write_text("id,site\n1,y\n2,z\n")
    await happens(lambda: len(more.content.rows) == 2)
    assert devices.sites == ["b"]
