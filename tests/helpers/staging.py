"""Batches as Spark's tasks stage them, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.spark import task
from bridge.spark.staging import Staged, StagedBatch, stage_rows
from bridge.spark.task import BatchIdentity


def stage_partitions(stage: str, identity: BatchIdentity, *partitions: list[Any]) -> list[Staged]:
    """Return the commit messages of tasks. `partitions` are the record batches of each."""
    messages = []
    for number, partition in enumerate(partitions):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task, "partition", lambda: number)  # noqa: B023
            patch.setattr(task, "attempt", lambda: number)  # noqa: B023
            messages.append(stage_rows(stage, identity, "attempt", partition))
    return messages


def staged_batch(identity: BatchIdentity, *partitions: list[Any], stage: str = "") -> StagedBatch:
    """Return a batch."""
    return StagedBatch(stage, stage_partitions(stage, identity, *partitions))
