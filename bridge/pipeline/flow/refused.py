"""How many rows of a batch a destination has refused, told by the sink to the process that watches the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "refused.jsonl"


class Refused(msgspec.Struct, frozen=True):
    """Rows of a batch that went to the dead letters at a destination, and why the first of them did."""

    batch: int
    rows: int
    why: str


def tell(directory: Path, refused: Refused) -> None:
    """Write down what was refused, once a batch is done. Raises OSError."""
    with (directory / _FILE).open("ab") as file:
        file.write(msgspec.json.encode(refused) + b"\n")


def told(directory: Path) -> dict[int, Refused]:
    """Return what was written down, by batch. Raises OSError."""
    try:
        lines = (directory / _FILE).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    return {one.batch: one for one in (msgspec.json.decode(line, type=Refused) for line in lines)}


def forget(directory: Path) -> None:
    """Remove what was written down, before a run. Raises OSError."""
    (directory / _FILE).unlink(missing_ok=True)
