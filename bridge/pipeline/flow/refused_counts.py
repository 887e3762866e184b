"""Counts of the rows that a destination has refused, from the sink to the process that watches the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "refused.jsonl"


class RefusedCount(msgspec.Struct, frozen=True):
    """Rows of a batch that went to the dead letters at a destination, and why the first of them did."""

    batch: int
    rows: int
    why: str


def write(directory: Path, count: RefusedCount) -> None:
    """Write down what was refused, once a batch is done. Raises OSError."""
    with (directory / _FILE).open("ab") as file:
        file.write(msgspec.json.encode(count) + b"\n")


def read(directory: Path) -> dict[int, RefusedCount]:
    """Return what was written down, by batch. Raises OSError."""
    try:
        lines = (directory / _FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    return {one.batch: one for one in (msgspec.json.decode(line, type=RefusedCount) for line in lines)}


def remove(directory: Path) -> None:
    """Remove what was written down, before a run. Raises OSError."""
    (directory / _FILE).unlink(missing_ok=True)
