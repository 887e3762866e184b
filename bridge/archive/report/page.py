"""The HTML page of a report. It is self-contained: no network access and no scripts, with light and dark styles."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bridge.archive.report.section import Report, Section, cell, period
from bridge.charts import Chart, bar_chart, column_chart, number


def page(report: Report) -> str:
    return _environment().get_template("report.html").render(report=report, period=period)


def chart(section: Section) -> Chart:
    """Return the chart of a section. The section must have rows."""
    places = [section.columns.index(name) for name in section.chart]
    series = [(name, [row[place] for row in section.rows]) for name, place in zip(section.chart, places, strict=True)]
    labels = [f"QoS {row[0]}" if section.columns[0] == "qos" else cell(row[0]) for row in section.rows]
    draw = column_chart if section.key == "hour" else bar_chart
    return draw(section.title, labels, series)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"cell": cell, "number": number}
    made.filters["chart"] = chart
    return made
