"""The sections of a report, and the formatting of its values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from bridge.charts import number


class Section(msgspec.Struct):
    """A table of the report. The first column is the key of each row, and `chart` lists the columns to plot."""

    key: str
    title: str
    columns: list[str]
    rows: list[list[Any]]
    chart: list[str] = []
    unit: str = ""


class Report(msgspec.Struct):
    """All sections, for messages settled from `start` up to, but not including, `end`."""

    start: datetime | None
    end: datetime | None
    rows: int
    sections: list[Section]


def cell(value: Any) -> str:
    """Format a value of a table."""
    if value is None:
        return "–"
    return number(value) if isinstance(value, int | float) else str(value)


def period(start: datetime | None, end: datetime | None) -> str:
    """Describe a time range."""
    if start is None and end is None:
        return "all there is"
    words = [f"{word} {value:%Y-%m-%d %H:%M:%S} UTC" for word, value in (("from", start), ("to", end)) if value is not None]
    return " ".join(words)
