"""A report as one HTML page that needs nothing else: no network, no script, readable in light and dark."""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import Any, Final

from bridge.archive.report.charts import bars, columns, number
from bridge.archive.report.section import Report, Section

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2024; --faint: #60646c; --line: #d9dce1;
        --s0: #0a62b5; --s1: #b35900; --s2: #5b8c00; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #15181c; --ink: #e8eaed; --faint: #a3a9b3; --line: #363b43; --s0: #6cb2ff; --s1: #ffab5e; --s2: #a9d65a; }
}
body { margin: 2rem auto; max-width: 84rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
       font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 0 0 .6rem; }
p { color: var(--faint); margin-top: 0; }
section { border-top: 1px solid var(--line); padding: 1.2rem 0; }
.both { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 2rem; align-items: start; }
@media (max-width: 60rem) { .both { grid-template-columns: minmax(0, 1fr); } }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; } svg .value { fill: var(--faint); }
.grid { stroke: var(--line); } .s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); }
.legend span { display: inline-block; margin-right: 1.2rem; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { position: absolute; left: -999rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; } td:first-child { font-weight: normal; }
""".strip()


def page(report: Report) -> str:
    """Return the whole page."""
    sections = "\n".join(_section(section) for section in report.sections)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>MQ–MQTT bridge: report</title>
<style>
{_STYLE}
</style>
</head>
<body>
<h1>MQ–MQTT bridge: report</h1>
<p>{escape(period(report.start, report.end))}; {number(report.rows)} messages in the archive</p>
{sections}
</body>
</html>
"""


def period(start: datetime | None, end: datetime | None) -> str:
    """Return a time span in words."""
    if start is None and end is None:
        return "all there is"
    words = [f"{word} {value:%Y-%m-%d %H:%M:%S} UTC" for word, value in (("from", start), ("to", end)) if value is not None]
    return " ".join(words)


def cell(value: Any) -> str:
    """Return a value of a table as text."""
    if value is None:
        return "–"
    return number(value) if isinstance(value, int | float) else str(value)


def drawn(section: Section) -> str:
    """Return the chart of a section that has rows, as SVG."""
    labels = [f"QoS {row[0]}" if section.columns[0] == "qos" else cell(row[0]) for row in section.rows]
    places = [section.columns.index(name) for name in section.chart]
    series = [[row[place] or 0 for row in section.rows] for place in places]
    draw = columns if section.key == "hour" else bars
    return draw(section.title, labels, series)


def _section(section: Section) -> str:
    title = escape(section.title)
    if not section.rows:
        return f"<section><h2>{title}</h2><p>none</p></section>"
    legend = "".join(
        f'<span><i class="s{index}" style="background: var(--s{index})"></i>{escape(name)}</span>'
        for index, name in enumerate(section.chart)
    )
    return f"""<section><h2>{title}</h2><div class="both">
<div><div class="legend" aria-hidden="true">{legend}</div>{drawn(section)}</div>
<div class="scroll">{_table(section)}</div></div></section>"""


def _table(section: Section) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in section.columns)
    body = "".join(
        f'<tr><th scope="row">{escape(cell(row[0]))}</th>'
        + "".join(f"<td>{escape(cell(value))}</td>" for value in row[1:])
        + "</tr>"
        for row in section.rows
    )
    return f"<table><caption>{escape(section.title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
