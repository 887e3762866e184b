"""The HTML page of a report. It is self-contained: no network access and no scripts, with light and dark styles."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bridge.archive.report.section import Report, Section, cell, number, period


def page(report: Report) -> str:
    return _environment().get_template("report.html").render(report=report, period=period)


def drawn(section: Section) -> Markup:
    """Return the chart of a section as SVG. The section must have rows."""
    charts: Any = _environment().get_template("charts.html").module
    return Markup(charts.chart(section))


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
    made.filters |= {"cell": cell, "number": number, "place": _place, "most": _most}
    return made


def _place(name: str, columns: list[str]) -> int:
    return columns.index(name)


def _most(rows: list[list[Any]], places: list[int]) -> float:
    """Return the maximum of some columns, or 1 if all values are 0: the scale of a chart."""
    return max((row[place] or 0 for row in rows for place in places), default=0) or 1
