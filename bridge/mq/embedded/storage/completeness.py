"""Detection of missing commits: comparison of a database with its witness (`bridge.witness`).

The number of a commit is the id of its row in the log. A database and its witness contain the same identity. A restored or
salvaged database has a new identity.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from bridge.mq.embedded.storage.batch import decode
from bridge.witness import WitnessDamaged, WitnessPosition, read

#: Name of the fact with the identity. Databases of release 0.2.0 and older have neither an identity nor a witness.
IDENTITY = "identity"
#: Name of the fact with the identity since the last restore or salvage, or 0 if there was none.
EPOCH = "epoch"


def witness_path(database: Path) -> Path:
    """Return the path of a database's witness."""
    return database.with_suffix(".witness")


def new_identity() -> int:
    """Return the identity of a new database."""
    return secrets.randbits(62) + 1


class End(NamedTuple):
    """The contents of a witness. Read it before the database, which a queue manager may be using."""

    #: None if the witness is missing or damaged
    position: WitnessPosition | None
    #: why the witness cannot be used. Blank if it can be used, or if it is missing
    damage: str = ""

    @classmethod
    def of(cls, database: Path) -> End:
        """Read the witness of a database. Raises OSError."""
        try:
            return cls(read(witness_path(database)))
        except WitnessDamaged as error:
            return cls(None, str(error))

    def missing(self, database: sqlite3.Connection, path: Path) -> str:
        """Return a sentence about commits that are or may be missing in a database, or "".

        Raises sqlite3.Error.
        """
        if self.damage:
            return f"commits may be missing: {self.damage}"
        facts: dict[str, int] = dict(database.execute("SELECT name, value FROM fact"))
        identity, position = facts.get(IDENTITY), self.position
        if position is None:
            # The first start with this release creates the witness. Afterwards, it must exist.
            return f"commits may be missing: {witness_path(path)} is missing" if identity is not None else ""
        if identity is not None and identity != position.identity:
            return f"commits may be missing: {witness_path(path)} belongs to another database"
        (last,) = database.execute("SELECT coalesce(max(id), 0) FROM batch").fetchone()
        if last < position.number:
            commits = (
                f"commit {last + 1} is"
                if last + 1 == position.number
                else f"commits {last + 1} to {position.number} are"
            )
            return f"{commits} missing: {_since(database)}, and the last commit was made at {_moment(position.time)}"
        if facts.get("starts", 0) < position.starts:
            return f"commits may be missing: start {position.starts} of the queue manager was not recorded"
        return ""


def _since(database: sqlite3.Connection) -> str:
    row = database.execute("SELECT id, body FROM batch ORDER BY id DESC LIMIT 1").fetchone()
    if row is None:
        return "the log is empty"
    committed = 0.0
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, TypeError):
        committed = decode(row[1]).committed
    return (
        f"commit {row[0]} of {_moment(committed)} is the last one found"
        if committed
        else f"commit {row[0]} is the last one found"
    )


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
