"""An archive as a DuckDB view. DuckDB spills to temporary files when it exceeds its memory limit. Requires duckdb."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb

from bridge.archive.completeness import Loss, complete_files, refuse
from bridge.archive.schema import COLUMNS, SUFFIX, Direction, Row
from bridge.archive.schema import row as row_of
from bridge.telemetry.outcome import Outcome

#: Memory limit of DuckDB's tables and joins. The libraries need about 100 MB more.
MEMORY: Final = "180MB"
#: Each thread needs memory of its own, and the bridge may run on the same machine.
_THREADS: Final = 2
#: Column types -> DuckDB types.
_TYPES: Final = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int8": "TINYINT",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "time": "TIMESTAMPTZ",
}


class NoRows(Exception):
    """The archive does not exist, or has no rows in the requested time."""


def moment(microseconds: int) -> datetime:
    """Return a time of a row as a datetime in UTC."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


class Database:
    """An in-memory database with the view `archive`. Methods raise duckdb.Error."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def rows(self, query: str, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Run a query and yield its rows."""
        cursor = self._connection.execute(query, parameters or None)
        while batch := cursor.fetchmany(10_000):
            yield from batch

    def records(self, query: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Run a query and yield its rows as dictionaries by column name."""
        cursor = self._connection.execute(query, parameters or None)
        names = [column[0] for column in cursor.description or ()]
        while batch := cursor.fetchmany(10_000):
            for row in batch:
                yield dict(zip(names, row, strict=True))

    def run(self, statement: str) -> None:
        """Run a statement without a result."""
        self._connection.execute(statement)

    def create_table(self, name: str, columns: dict[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Create a table with these columns (name -> type) and rows."""
        contents = zip(*rows, strict=True) if rows else ([] for _ in columns)
        fields = ", ".join(f"unnest(${column}::{kind}[]) AS {column}" for column, kind in columns.items())
        parameters = {column: list(content) for column, content in zip(columns, contents, strict=True)}
        self._connection.execute(f"CREATE TABLE {name} AS SELECT {fields}", parameters)


@contextlib.contextmanager
def opened(
    directories: Sequence[Path],
    start: datetime | None = None,
    end: datetime | None = None,
    memory: str = MEMORY,
    report: Callable[[Loss], None] = refuse,
) -> Iterator[Database]:
    """Open a database whose view `archive` contains the rows written from the hour of `start` to the hour of `end`.

    Several directories count as one archive. Columns that an earlier version did not write are null. Temporary files are in
    TMPDIR. `report` is called for each file that is missing or damaged. If it returns, these rows are a gap. Raises NoRows if
    there are no files, ArchiveDamaged, OSError, and duckdb.Error.
    """
    losses: list[Loss] = []

    def accept(loss: Loss) -> None:
        report(loss)
        losses.append(loss)

    files = [file for directory in directories for file in complete_files(directory, start, end, accept)]
    if not files:
        places = ", ".join(map(str, directories))
        raise NoRows(f"{places}: no rows of an archive in that time (files {SUFFIX} in date=…/hour=…)")
    with tempfile.TemporaryDirectory(prefix="mqbridge-") as temporary:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "memory_limit": memory,
            "preserve_insertion_order": False,
            "temp_directory": temporary,
            "threads": _THREADS,
        }
        with duckdb.connect(config=settings) as connection:
            # The progress bar would go to standard output.
            connection.execute("SET enable_progress_bar = false")
            columns = ", ".join(f"{column.name} {_TYPES[column.type]}" for column in COLUMNS)
            connection.execute(f"CREATE TABLE other_rows ({columns})")
            for loss in losses:
                placeholders = ", ".join("?" for _ in COLUMNS)
                connection.execute(f"INSERT INTO other_rows VALUES ({placeholders})", _gap(loss))
            names = ", ".join(_quoted(file) for file in files)
            parquet = f"read_parquet([{names}], union_by_name = true, hive_partitioning = false)"
            connection.execute(
                f"CREATE VIEW archive AS SELECT * FROM other_rows UNION ALL BY NAME SELECT * FROM {parquet}"
            )
            yield Database(connection)


def _gap(loss: Loss) -> Row:
    """Return a row that reports lost rows. Their number is unknown."""
    return row_of(
        sequence=0, direction=Direction.ARCHIVE, outcome=Outcome.GAP, size=None, received=loss.first, settled=loss.end
    )


def _quoted(file: Path) -> str:
    # DuckDB would expand wildcards in directory names.
    name = "".join(f"[{character}]" if character in "*?[" else character for character in str(file))
    return "'" + name.replace("'", "''") + "'"
