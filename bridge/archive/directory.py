"""The directory structure of an archive: `date=YYYY-MM-DD/hour=HH/NAME.parquet`, by the time of the rows in UTC."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

#: Prefix of files that are being written, or that a killed bridge left behind. Readers ignore them.
UNFINISHED: Final = "."
SUFFIX: Final = ".parquet"


def partition(directory: Path, moment: datetime) -> Path:
    """Return the directory for rows of the hour that contains `moment`."""
    moment = moment.astimezone(UTC)
    return directory / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"


def files(directory: Path, start: datetime | None = None, end: datetime | None = None) -> list[Path]:
    """Return the files with rows settled from the hour of `start` to the hour of `end`, both included, in order."""
    first = partition(Path(), start) if start is not None else None
    last = partition(Path(), end) if end is not None else None
    found = []
    for hour in sorted(directory.glob("date=*/hour=*")):
        relative = hour.relative_to(directory)
        if (first is None or relative >= first) and (last is None or relative <= last):
            found += sorted(one for one in hour.glob(f"*{SUFFIX}") if not one.name.startswith(UNFINISHED))
    return found


def unfinished(directory: Path) -> Iterator[Path]:
    """Return the unfinished files, left behind by killed processes."""
    return directory.glob(f"date=*/hour=*/{UNFINISHED}*")


def expired(directory: Path, retention: timedelta, now: datetime) -> list[Path]:
    """Return the directories of days that are entirely older than `retention`."""
    oldest = (now.astimezone(UTC) - retention).date()
    found = []
    for day in sorted(directory.glob("date=????-??-??")):
        try:
            if date.fromisoformat(day.name.removeprefix("date=")) < oldest:
                found.append(day)
        except ValueError:
            continue  # not created by the archive
    return found


def remove(day: Path) -> None:
    """Remove the directory of a day with all its files."""
    shutil.rmtree(day)
