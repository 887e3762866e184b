"""The rows of archives in any order, a batch at a time, by pyarrow: for what counts them. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from bridge.archive import directory as archive_directory
from bridge.archive.schema import arrow_schema

#: Most rows of a table.
BATCH_ROWS: Final = 65_536


class NoRows(Exception):
    """There is no archive, or it has no rows in the time asked for."""


def moment(microseconds: int) -> datetime:
    """Return a time of a row as a datetime in UTC."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


class Within(NamedTuple):
    """Rows whose number, or time in microseconds, is from `low` to `high`, both included."""

    column: str
    low: int
    high: int


class Only(NamedTuple):
    """Rows that have one of some values."""

    column: str
    values: Sequence[Any]


class Scan:
    """The rows that were written from the hour of `start` to the hour of `end`; several directories are one archive.

    Raises NoRows where there are no files.
    """

    def __init__(self, directories: Sequence[Path], start: datetime | None = None, end: datetime | None = None) -> None:
        self._files = [one for directory in directories for one in archive_directory.files(directory, start, end)]
        if not self._files:
            places = ", ".join(map(str, directories))
            raise NoRows(f"{places}: no rows of an archive in that time (files {archive_directory.SUFFIX} in date=…/hour=…)")
        self._schema = arrow_schema()

    def tables(self, columns: Sequence[str], within: Within | None = None, only: Only | None = None) -> Iterator[Any]:
        """Yield rows as tables of these columns; times and QoS are int64, the times in microseconds.

        Columns that an earlier version did not write are null. Those that say which rows are wanted are to be among them.
        Raises OSError and pyarrow.ArrowException.
        """
        for path in self._files:
            # Not a dataset: that reads ahead up to a gigabyte while its rows are worked on.
            with pa.parquet.ParquetFile(path) as file:
                there = [name for name in columns if name in file.schema_arrow.names]
                for group in range(file.num_row_groups):
                    if within is not None and not _may_be(file, group, within):
                        continue
                    # One by one, for what a reader has read of them is in memory until its last.
                    for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=there):
                        rows = _wanted(self._table(batch, columns), within, only)
                        if rows.num_rows:
                            yield rows

    def _table(self, batch: Any, columns: Sequence[str]) -> Any:
        made = []
        for name in columns:
            kind = self._schema.field(name).type
            column = batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows, kind)
            made.append(column.cast(pa.int64()) if pa.types.is_timestamp(kind) or name == "qos" else column)
        return pa.table(made, list(columns))


def _wanted(rows: Any, within: Within | None, only: Only | None) -> Any:
    if within is not None:
        column = rows[within.column]
        rows = rows.filter(pc.and_(pc.greater_equal(column, within.low), pc.less_equal(column, within.high)))
    return rows if only is None else rows.filter(pc.is_in(rows[only.column], pa.array(only.values)))


def _may_be(file: Any, group: int, within: Within) -> bool:
    """Return whether a row group has rows that are wanted, as far as its statistics tell."""
    found = file.metadata.row_group(group).column(file.schema_arrow.names.index(within.column)).statistics
    return found is None or not found.has_min_max or (found.min_raw <= within.high and found.max_raw >= within.low)
