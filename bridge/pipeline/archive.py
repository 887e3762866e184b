"""An archive as Spark reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from bridge.archive import directory as archive_directory
from bridge.archive.schema import NAMES, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

#: Times of Spark are microseconds since the epoch already; this is how they are had as numbers.
TIMES = ("received", "sent", "settled")


class NoRows(Exception):
    """There is no archive, or it has no rows in the time asked for."""


def moment(microseconds: int) -> datetime:
    """Return a time of a row as a datetime in UTC."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)


def read(
    spark: SparkSession, directories: Sequence[Path], start: datetime | None = None, end: datetime | None = None
) -> DataFrame:
    """Return the rows of archives that were written from the hour of `start` to the hour of `end`; times as numbers.

    Raises NoRows where there are none.
    """
    found = [one for directory in directories for one in archive_directory.files(directory, start, end)]
    if not found:
        places = ", ".join(map(str, directories))
        raise NoRows(f"{places}: no rows of an archive in that time (files {archive_directory.SUFFIX} in date=…/hour=…)")
    # One path to a directory of an hour, or Spark lists each file by itself.
    hours = sorted({str(one.parent.absolute()) for one in found})
    rows = spark.read.schema(from_arrow_schema(arrow_schema())).parquet(*hours)
    return rows.select([_number(name) if name in TIMES else rows[name] for name in NAMES])


def _number(name: str) -> Any:
    from pyspark.sql import functions as f

    return f.unix_micros(name).alias(name)
