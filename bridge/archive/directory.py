"""The directory of an archive: `date=YYYY-MM-DD/hour=HH/NAME.parquet`, by the time of the rows in UTC."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

#: What begins like this is being written, or was when the bridge was killed; readers pass it over.
UNFINISHED: Final = "."
SUFFIX: Final = ".parquet"


def partition(directory: Path, moment: datetime) -> Path:
    """Return the directory of the files with rows of this hour."""
    moment = moment.astimezone(UTC)
    return directory / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"


def files(directory: Path, start: datetime | None = None, end: datetime | None = None) -> list[Path]:
    """Return the files whose rows were settled from the hour of `start` to the hour of `end`, both included, in order."""
    first = partition(Path(), start) if start is not None else None
    last = partition(Path(), end) if end is not None else None
    found = []
    for hour in sorted(directory.glob("date=*/hour=*")):
        relative = hour.relative_to(directory)
        if (first is None or relative >= first) and (last is None or relative <= last):
            found += sorted(one for one in hour.glob(f"*{SUFFIX}") if not one.name.startswith(UNFINISHED))
    return found


def unfinished(directory: Path) -> Iterator[Path]:
    """Return the files that a bridge that was killed left behind."""
    return directory.glob(f"date=*/hour=*/{UNFINISHED}*")


def expired(directory: Path, retention: timedelta, now: datetime) -> list[Path]:
    """Return the days that lie wholly further back than `retention`."""
    oldest = (now.astimezone(UTC) - retention).date()
    found = []
    for day in sorted(directory.glob("date=????-??-??")):
        try:
            if date.fromisoformat(day.name.removeprefix("date=")) < oldest:
                found.append(day)
        except ValueError:
            continue  # not of this archive's making
    return found


def remove(day: Path) -> None:
    """Remove a day with all its files."""
    shutil.rmtree(day)
