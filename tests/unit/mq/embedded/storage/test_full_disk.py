"""A full disk stays full until there is clearly enough space: acceptance of messages does not flap."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.storage.recovery_log import MIN_RESERVE_BYTES, RESERVE_BYTES

MIB = 2**20
BLOCK = 4096


@pytest.fixture
def reserve(tmp_path: Path) -> Any:
    manager = QueueManager("QM1", tmp_path)
    yield manager.recovery_log.reserve
    manager.close()


def use_disk(monkeypatch: pytest.MonkeyPatch, size: int, free: int) -> None:
    """Make all file systems have this size, and this number of free bytes."""
    blocks = BLOCK, BLOCK, size // BLOCK, free // BLOCK, free // BLOCK
    disk = os.statvfs_result((*blocks, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: disk)


@pytest.mark.parametrize(
    ("size", "free", "spare", "recovers"),
    [
        (1000 * MIB, MIN_RESERVE_BYTES - 1, 1000 * MIB, False),  # not enough space for the reserve
        (1000 * MIB, RESERVE_BYTES, 0, False),  # the next messages would fill the disk again
        (1000 * MIB, RESERVE_BYTES + 49 * MIB, 0, False),
        (1000 * MIB, RESERVE_BYTES + 51 * MIB, 0, True),
        (1000 * MIB, RESERVE_BYTES, 51 * MIB, True),  # applications have removed messages
        (100_000 * MIB, RESERVE_BYTES + 65 * MIB, 0, True),
        (40 * MIB, RESERVE_BYTES + 3 * MIB, 0, True),
    ],
)
def test_a_disk_that_was_full(
    reserve: Any, monkeypatch: pytest.MonkeyPatch, size: int, free: int, spare: int, recovers: bool
) -> None:
    reserve.keep()
    reserve.give_up()
    assert reserve.full
    use_disk(monkeypatch, size, free)
    monkeypatch.setattr(type(reserve._store), "spare_bytes", lambda _self: spare)
    monkeypatch.setattr(type(reserve._store), "log_bytes", lambda _self: 0)
    reserve._retry_at = 0.0
    reserve.retry()
    assert reserve.full is not recovers


def test_a_start_needs_space_for_the_reserve_only(reserve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_disk(monkeypatch, 1000 * MIB, RESERVE_BYTES)
    reserve.keep()
    assert not reserve.full
