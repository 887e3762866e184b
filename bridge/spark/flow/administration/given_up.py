"""Which batches of a pipeline can never be run again: those in its commit log, and all of checkpoints that were given up."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from bridge.files import durable_file
from bridge.spark.flow.environment import CHECKPOINT

_FILE: Final = "given-up.json"


def note_given_up(directory: Path, query: str) -> None:
    """Note that the checkpoint of a query is no more. Raises OSError."""
    known = _given_up(directory)
    if query not in known:
        with durable_file(directory / _FILE) as file:
            file.write(msgspec.json.encode([*known, query]))


def done(directory: Path) -> dict[str, int | None]:
    """Return the queries that a pipeline has had, each with the last batch that is done; None: all are. Raises OSError."""
    found: dict[str, int | None] = dict.fromkeys(_given_up(directory))
    checkpoint = directory / CHECKPOINT
    numbers = [int(one.name) for one in checkpoint.glob("commits/*") if one.name.isdigit()]
    if numbers:
        found[msgspec.json.decode((checkpoint / "metadata").read_bytes())["id"]] = max(numbers)
    return found


def _given_up(directory: Path) -> list[str]:
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=list[str])
    except FileNotFoundError:
        return []
