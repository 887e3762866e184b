"""The sections of a report, and its self-contained HTML page without scripts, in light and dark styles."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bridge.charts import Chart, bar_chart, column_chart, number


class ReportSection(msgspec.Struct):
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
    sections: list[ReportSection]


def cell(value: Any) -> str:
    """Format a value of a table."""
    if value is None:
        return "–"
    return number(value) if isinstance(value, int | float) else str(value)


def period(start: datetime | None, end: datetime | None) -> str:
    """Describe a time range."""
    if start is None and end is None:
        return "all there is"
    words = [
        f"{word} {value:%Y-%m-%d %H:%M:%S} UTC" for word, value in (("from", start), ("to", end)) if value is not None
    ]
    return " ".join(words)


def page(report: Report) -> str:
    """Return the report as HTML."""
    templates = environment(Path(__file__).parent / "templates", {"cell": cell, "number": number, "chart": chart})
    return templates.get_template("report.html").render(report=report, period=period)


def chart(section: ReportSection) -> Chart:
    """Return the chart of a section. The section must have rows."""
    places = [section.columns.index(name) for name in section.chart]
    series = [(name, [row[place] for row in section.rows]) for name, place in zip(section.chart, places, strict=True)]
    labels = [f"QoS {row[0]}" if section.columns[0] == "qos" else cell(row[0]) for row in section.rows]
    draw = column_chart if section.key == "hour" else bar_chart
    return draw(section.title, labels, series)


def environment(directory: Path, filters: Mapping[str, Any]) -> Environment:
    """Return the environment of the templates in a directory."""
    template_environment = Environment(
        loader=FileSystemLoader(directory),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template_environment.filters |= filters
    return template_environment
