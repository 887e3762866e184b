"""The parts of a report, and how its values are written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Section(msgspec.Struct):
    """A table of the report: the first column is what the others are of. `chart` names the columns to draw."""

    key: str
    title: str
    columns: list[str]
    rows: list[list[Any]]
    chart: list[str] = []
    unit: str = ""


class Report(msgspec.Struct):
    """All sections, for the time from `start` to before `end` by when messages were settled."""

    start: datetime | None
    end: datetime | None
    rows: int
    sections: list[Section]


def number(value: float) -> str:
    """Return a number as a person reads it."""
    if isinstance(value, float) and value != int(value):
        return f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"
    return f"{int(value):,}"


def cell(value: Any) -> str:
    """Return a value of a table as text."""
    if value is None:
        return "–"
    return number(value) if isinstance(value, int | float) else str(value)


def period(start: datetime | None, end: datetime | None) -> str:
    """Return a time span in words."""
    if start is None and end is None:
        return "all there is"
    words = [f"{word} {value:%Y-%m-%d %H:%M:%S} UTC" for word, value in (("from", start), ("to", end)) if value is not None]
    return " ".join(words)
