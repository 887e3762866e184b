"""Rows of a batch that its SELECT cannot be made of, written down in the directory of the pipeline.

The batch is run again with the same messages; those that are written down go to the dead letters then.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import msgspec

_FILE: Final = "diverted.json"


class Diverted(msgspec.Struct, frozen=True):
    """Why a row is a dead letter, and the number of the search that found it."""

    search: int
    why: str


class Diversion(msgspec.Struct, frozen=True):
    """What is written down: it counts for one batch, which has no number yet where there is nothing."""

    batch: int = -1
    #: by their keys, as `keys_of` has them
    rows: dict[str, Diverted] = {}

    def and_also(self, batch: int, found: dict[str, str]) -> Diversion:
        """Return a Diversion with rows that a further search has found, too (key: why).

        What counts for another batch is dropped.
        """
        known = self.rows if self.batch == batch else {}
        search = max((one.search for one in known.values()), default=0) + 1
        return Diversion(batch, known | {key: Diverted(search, why) for key, why in found.items()})


def load(directory: Path) -> Diversion:
    """Return the Diversion that is written down for a pipeline. Raises OSError."""
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Diversion)
    except FileNotFoundError:
        return Diversion()


def save(directory: Path, diversion: Diversion) -> None:
    """Write a Diversion down, durably. Raises OSError."""
    unfinished = directory / f".{_FILE}"
    with unfinished.open("wb") as file:
        file.write(msgspec.json.encode(diversion))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(directory / _FILE)


def keys_of(batch: Any) -> list[str]:
    """Return a key for each row of a source that tells it from the others.

    Of a message that is its MsgId, of a publication all that came with it. Publications that agree in all of that are the
    same to a SELECT, too.
    """
    if "headers" in batch.schema.names:
        queues, msg_ids = batch.column("queue").to_pylist(), batch.column("md").field("MsgId").to_pylist()
        return [f"{queue}/{msg_id.hex()}" for queue, msg_id in zip(queues, msg_ids, strict=True)]
    names = ("topic", "payload", "client_id", "message_id")
    # A time as a number, because Spark and Arrow have it in different time zones.
    times = batch.column("received").cast("int64").to_pylist()
    rows = zip(*(batch.column(name).to_pylist() for name in names), times, strict=True)
    return [hashlib.blake2b(repr(row).encode(), digest_size=16).hexdigest() for row in rows]
