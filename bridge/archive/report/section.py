"""What a report consists of."""

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
