"""The report of the archive: what passed, how long it took, what could not pass. A process of its own reads the files."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.archive.report.page import drawn
from bridge.archive.report.section import Report, cell
from bridge.console.access import Who
from bridge.console.console import Console
from bridge.console.problem import Problem

#: Time spans that can be asked for, in words, and as `mqbridge report --from` has them.
SPANS: Final = {"1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days"}
#: Seconds that a report may take, and for which one that was made is shown again; reports that are kept.
_TIMEOUT: Final = 120.0
_FRESH: Final = 60.0
_KEPT: Final = 8
_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?)?")


class DrawnSection(msgspec.Struct, frozen=True):
    """A section of the report as the page has it."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    chart: Markup
    series: list[str]


class Reports:
    """Makes reports, one at a time, and keeps the last ones."""

    def __init__(self) -> None:
        self._making = asyncio.Lock()
        #: by directory and options: when it was made, and the report, or why there is none
        self._made: dict[tuple[str, ...], tuple[float, Report | str]] = {}

    async def report(self, directory: Path, options: list[str]) -> Report | str:
        """Return the report of an archive, or in words why there is none. Raises Problem where it takes too long."""
        key = (str(directory), *options)
        async with self._making:
            made = self._made.pop(key, None)
            if made is None or time.monotonic() - made[0] > _FRESH:
                made = time.monotonic(), await _report(directory, options)
            self._made[key] = made
            while len(self._made) > _KEPT:
                del self._made[next(iter(self._made))]
        return made[1]


def routes(console: Console) -> list[Route]:
    """Return the routes."""
    reports = Reports()

    async def page(request: Request, who: Who) -> Response:
        asked = request.query_params
        directory = console.configuration.archive.directory
        start, end, span = asked.get("from", ""), asked.get("to", ""), asked.get("span", "")
        options = _options(start, end, span)
        found: Report | str = ""
        # Without a question there is no answer: an archive may be large.
        if directory is not None and (span or start or end):
            found = await reports.report(directory, options)
        return console.render(
            "archive.html",
            request,
            who,
            directory=directory,
            spans=SPANS,
            span=span,
            start=start,
            end=end,
            report=found if isinstance(found, Report) else None,
            why=found if isinstance(found, str) else "",
            sections=_sections(found) if isinstance(found, Report) else [],
        )

    return [console.page("/archive", page)]


def _options(start: str, end: str, span: str) -> list[str]:
    """Return a time span as options of `mqbridge report`. Raises Problem."""
    if span and span not in SPANS:
        raise Problem(400, f"?span= is one of {', '.join(SPANS)}")
    for moment in (start, end):
        if moment and not _MOMENT.fullmatch(moment):
            raise Problem(400, "A time is 2026-11-21 or 2026-11-21T14:30, in UTC")
    if span:
        return [f"--from=-{span}"]
    return [f"--from={start}"] * bool(start) + [f"--to={end}"] * bool(end)


async def _report(directory: Path, options: list[str]) -> Report | str:
    command = [sys.executable, "-m", "bridge", "report", "--json", f"--archive={directory}", *options]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            written, errors = await process.communicate()
    except TimeoutError as error:
        raise Problem(504, f"The report takes longer than {_TIMEOUT:g} s", ["Ask for a shorter time."]) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        return errors.decode("utf-8", "replace").strip()[-1_000:] or f"mqbridge report ends with {process.returncode}"
    return msgspec.json.decode(written, type=Report)


def _sections(report: Report) -> list[DrawnSection]:
    return [
        DrawnSection(
            one.title,
            one.columns,
            [[cell(value) for value in row] for row in one.rows],
            drawn(one) if one.rows else Markup(),
            one.chart,
        )
        for one in report.sections
    ]
