"""Rows of a batch that its SELECT cannot be made of, written down in the directory of the pipeline.

The batch is run again with the same messages; those that are written down go to the dead letters then.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.files import durable_file

_FILE: Final = "diverted.json"
#: Fields of an MQMD that are others when the message is browsed again.
_CHANGING: Final = frozenset(("Expiry", "BackoutCount"))


class DivertedRow(msgspec.Struct, frozen=True):
    """A row that is a dead letter: why, and the number of the search that found it."""

    search: int
    why: str


class DivertedRows(msgspec.Struct, frozen=True):
    """The rows that are written down. They count for one batch, which has no number yet where there are none."""

    batch: int = -1
    #: by their keys, as `keys_of` has them
    rows: dict[str, DivertedRow] = {}

    def and_also(self, batch: int, found: dict[str, str]) -> DivertedRows:
        """Return these rows and those that a further search has found (key: why).

        What counts for another batch is dropped.
        """
        known = self.rows if self.batch == batch else {}
        search = max((one.search for one in known.values()), default=0) + 1
        return DivertedRows(batch, known | {key: DivertedRow(search, why) for key, why in found.items()})


def load(directory: Path) -> DivertedRows:
    """Return the rows that are written down for a pipeline. Raises OSError."""
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=DivertedRows)
    except FileNotFoundError:
        return DivertedRows()


def save(directory: Path, diverted: DivertedRows) -> None:
    """Write the rows of a pipeline down, durably. Raises OSError."""
    with durable_file(directory / _FILE) as file:
        file.write(msgspec.json.encode(diverted))


def clear(directory: Path) -> None:
    """Forget the rows of a pipeline. Raises OSError."""
    (directory / _FILE).unlink(missing_ok=True)


def keys_of(batch: Any) -> list[str]:
    """Return a key for each row of a source that tells it from the others: of all that came with it and does not change.

    Rows that agree in that are the same to a SELECT, too.
    """
    if "headers" in batch.schema.names:
        names: tuple[str, ...] = ("queue", "headers", "body")
        time = "put_time"
        md = batch.column("md")
        fields = [md.field(field.name).to_pylist() for field in md.type if field.name not in _CHANGING]
    else:
        names, time, fields = ("topic", "payload", "client_id", "message_id"), "received", []
    # A time as a number, because Spark and Arrow have it in different time zones.
    times = batch.column(time).cast("int64").to_pylist()
    rows = zip(*(batch.column(name).to_pylist() for name in names), *fields, times, strict=True)
    return [hashlib.blake2b(repr(row).encode(), digest_size=16).hexdigest() for row in rows]
