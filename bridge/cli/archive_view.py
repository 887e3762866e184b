"""Audit and report as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bridge.archive.report.section import cell, period

if TYPE_CHECKING:
    from bridge.archive.audit.audit import Audit
    from bridge.archive.audit.verdict import Counts
    from bridge.archive.report.section import Report

#: Rows of clients and topics that are shown; JSON has all.
SHOWN = 20
_ALWAYS = ("expected", "delivered", "lost", "doubled", "disordered", "late")
_SOMETIMES = (
    "missing", "repeated", "pending", "ended", "dead_lettered", "discarded", "unknown", "unmatched",
)  # fmt: skip


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=max(console.width, 160), highlight=False)


def show_audit(audit: Audit) -> None:
    """Print the totals by QoS, the findings with breaches first, examples, and the verdict."""
    console = _console()
    columns = [*_ALWAYS, *(name for name in _SOMETIMES if getattr(audit.totals, name))]
    table = Table(title=f"Deliveries, {period(audit.start, audit.end)}", title_justify="left")
    table.add_column("QoS")
    for name in columns:
        table.add_column(name.replace("_", "-"), justify="right")
    for qos, counts in audit.by_qos.items():
        table.add_row(qos, *_numbers(counts, columns))
    table.add_section()
    table.add_row("all", *_numbers(audit.totals, columns))
    console.print(table)
    broken = [one for one in audit.findings if one.first or (audit.late_limit is not None and one.counts.late)]
    if broken:
        table = Table(title="Where the promise was broken", title_justify="left")
        for name in ("client", "topic", "QoS"):
            table.add_column(name, overflow="fold")
        for name in columns:
            table.add_column(name.replace("_", "-"), justify="right")
        for one in broken[:SHOWN]:
            table.add_row(one.client_id, one.topic, str(one.qos), *_numbers(one.counts, columns))
        console.print(table)
        if len(broken) > SHOWN:
            console.print(f"and {len(broken) - SHOWN} more; --json has all")
    if audit.mappings:
        table = Table(title="What mappings took", title_justify="left")
        table.add_column("mapping", overflow="fold")
        names = ("taken", "put", "dead_lettered", "discarded", "doubled", "late")
        for name in names:
            table.add_column(name.replace("_", "-"), justify="right")
        for mapping in audit.mappings:
            table.add_row(mapping.mapping, *(f"{getattr(mapping, name):,}" for name in names))
        console.print(table)
    for example in audit.examples:
        row = " ".join(f"{name}={value}" for name, value in example.row.items())
        console.print(f"{example.breach}, for example: {row}", markup=False)
    for gap in audit.gaps:
        what = "the bridge was killed: rows may be missing" if gap["rows"] is None else f"{gap['rows']} rows are missing"
        console.print(f"{what} in the archive between {gap['from']} and {gap['to']}", markup=False)
    console.print(verdict(audit), style="bold", soft_wrap=True)


def verdict(audit: Audit) -> str:
    """Return in words whether the promise held, and how far that can be said."""
    if audit.is_empty:
        return "No client had to get a message in that time, and none got one: there is no promise to judge."
    unknown, expected = audit.totals.unknown, audit.totals.expected
    if not unknown:
        return "The promise held." if audit.held else "The promise was broken."
    since = max((gap["to"] for gap in audit.gaps), default=None)
    return (
        ("Nothing broken was seen, but " if audit.held else "The promise was broken, and besides ")
        + f"{unknown:,} deliveries cannot be judged ({expected:,} were expected), because rows are missing in the archive."
        + (f" What was published after that can be: --from {since.isoformat()}" if since is not None else "")
    )


def _numbers(counts: Counts, columns: list[str]) -> list[str]:
    return [f"{getattr(counts, name):,}" for name in columns]


def show_report(report: Report) -> None:
    """Print each section as a table, and a section without rows in a word."""
    console = _console()
    console.print(f"{period(report.start, report.end)}: {report.rows:,} messages", markup=False)
    for section in report.sections:
        if not section.rows:
            console.print(f"{section.title}: none", markup=False)
            continue
        table = Table(title=section.title, title_justify="left")
        for place, name in enumerate(section.columns):
            table.add_column(name, justify="right" if place else "left", overflow="fold")
        for row in section.rows:
            table.add_row(*[cell(value) for value in row])
        console.print(table)
