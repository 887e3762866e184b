"""Spools of pipelines, which a backup does not contain: a restore needs them, or acceptance of the loss."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from bridge.cli.program import program
from bridge.config.queue_manager import MAPPING_STATE_QUEUE
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.state import StateQueue
from bridge.spark.segment import SpoolState, state_mark
from bridge.spark.spool import Spool
from tests.helpers.damaged_database import started


def mqbridge(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


@pytest.fixture
def data_directory(tmp_path: Path) -> Path:
    """A data directory with a pipeline that has got messages from queue Q, and one that has got none from NEW."""
    directory = tmp_path / "data"
    manager = started(directory)
    connection = EmbeddedConnection(manager)
    states = StateQueue(connection, MAPPING_STATE_QUEUE)
    for source, last in (("Q", 3), ("NEW", 0)):
        spool = Spool(str(directory / "pipelines" / "p" / "spool"), source)
        state = SpoolState(source, "process 7 on here", spool.id, last, [(1, spool.run)])
        states.put(state_mark(spool.id), msgspec.msgpack.encode(state))
        spool.close()
    connection.commit()
    manager.close()
    return directory


@pytest.fixture
def backup(data_directory: Path, tmp_path: Path) -> Path:
    result = mqbridge("data", "backup", tmp_path / "b.db", "--data-dir", data_directory)
    assert result.exit_code == 0 and f"Copy {data_directory / 'pipelines' / 'p'}, too" in result.output, result.output
    return tmp_path / "b.db"


def test_a_restore_needs_the_spools_that_the_backup_records(backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    result = mqbridge("data", "restore", backup, "--data-dir", new)
    assert result.exit_code == 1 and not new.exists()
    assert f"pipelines that are not in {new}: queue Q (3 segments, process 7 on here)\n" in result.output
    assert "NEW" not in result.output and "--accept-loss" in result.output
    assert mqbridge("data", "restore", backup, "--data-dir", new, "--accept-loss").exit_code == 0


def test_a_restore_finds_copied_spools(data_directory: Path, backup: Path, tmp_path: Path) -> None:
    shutil.copytree(data_directory / "pipelines", tmp_path / "new" / "pipelines")
    result = mqbridge("data", "restore", backup, "--data-dir", tmp_path / "new")
    assert result.exit_code == 0, result.output


def test_a_restore_finds_spools_named_in_the_configuration(data_directory: Path, backup: Path, tmp_path: Path) -> None:
    (data_directory / "pipelines" / "p").rename(tmp_path / "elsewhere")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""\
queue_manager: {{data_directory: {tmp_path / "new"}}}
pipelines:
  p: {{from: {{mq: {{queue: Q}}}}, select: SELECT text FROM input, to: {{mq: {{queue: OUT}}}},
      checkpoint: {tmp_path / "elsewhere"}}}
"""
    )
    result = mqbridge("data", "restore", backup, "--config", config)
    assert result.exit_code == 0, result.output


def test_a_restore_into_the_same_directory_keeps_them(data_directory: Path, backup: Path) -> None:
    result = mqbridge("data", "restore", backup, "--data-dir", data_directory, "--force", "--yes")
    assert result.exit_code == 0, result.output


def test_a_salvage_names_the_spools_to_copy(data_directory: Path, tmp_path: Path) -> None:
    result = mqbridge("data", "salvage", data_directory, tmp_path / "new")
    assert result.exit_code == 0, result.output
    assert f"not in {tmp_path / 'new'}: queue Q (3 segments, process 7 on here). Copy" in result.output
