"""The report of the archive, made by a separate process."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from bridge.archive.report_page import Report, ReportSection, cell, chart
from bridge.charts import Chart
from bridge.console.console import Routes, Visit
from bridge.console.forms import RequestProblem

routes = Routes()

#: Time ranges, in words, by the value of `mqbridge report --from`.
SPANS: Final = {"1h": "last hour", "24h": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days"}
#: Maximum time to make a report, time for which it is kept, both in seconds, and maximum number of reports kept.
_TIMEOUT: Final = 120.0
_FRESH: Final = 60.0
_KEPT: Final = 8

Moment = Annotated[str, msgspec.Meta(pattern="^([0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?)?)?$")]


class ArchiveQuery(msgspec.Struct):
    """A time range: a span, or the beginning and the end in UTC."""

    span: Literal["", "1h", "24h", "7d", "30d"] = ""
    start: Moment = ""
    end: Moment = ""

    def options(self) -> list[str]:
        """Return the options of `mqbridge report`."""
        if self.span:
            return [f"--from=-{self.span}"]
        return [f"--from={self.start}"] * bool(self.start) + [f"--to={self.end}"] * bool(self.end)


class ArchivePage(msgspec.Struct, kw_only=True):
    """The report of a time range."""

    #: blank without an archive
    directory: str
    report: Report | None = None
    #: the reason if the report is missing
    problem: str = ""

    @property
    def spans(self) -> dict[str, str]:
        """The time ranges to choose from."""
        return SPANS

    def chart(self, section: ReportSection) -> Chart:
        """Return the chart of a section."""
        return chart(section)

    def cell(self, value: object) -> str:
        """Return a value of a table for display."""
        return cell(value)


class Reports:
    """Makes one report at a time, and keeps the last ones."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        #: directory and options -> time of the report, and the report or the error
        self._reports: dict[tuple[str, ...], tuple[float, Report | str]] = {}

    async def report(self, directory: Path, options: list[str]) -> Report | str:
        """Return the report of an archive, or an error message. Raises RequestProblem if it takes too long."""
        key = (str(directory), *options)
        async with self._lock:
            entry = self._reports.pop(key, None)
            if entry is None or time.monotonic() - entry[0] > _FRESH:
                entry = time.monotonic(), await _report(directory, options)
            self._reports[key] = entry
            while len(self._reports) > _KEPT:
                del self._reports[next(iter(self._reports))]
        return entry[1]


_reports = Reports()


@routes.page("/archive", "archive.html")
async def archive(visit: Visit, query: ArchiveQuery) -> ArchivePage:
    """Return the report of the archive for a time range."""
    directory = visit.console.configuration.archive.directory
    if directory is None:
        return ArchivePage(directory="")
    page = ArchivePage(directory=str(directory))
    # An archive may be large, so a report needs a time range.
    if options := query.options():
        report = await _reports.report(directory, options)
        if isinstance(report, Report):
            page.report = report
        else:
            page.problem = report
    return page


async def _report(directory: Path, options: list[str]) -> Report | str:
    command = [sys.executable, "-m", "bridge", "report", "--json", f"--archive={directory}", *options]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_TIMEOUT):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise RequestProblem(
            504, f"The report took longer than {_TIMEOUT:g} s", ["Choose a shorter time range."]
        ) from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        return (
            errors.decode("utf-8", "replace").strip()[-1_000:]
            or f"mqbridge report ended with status {process.returncode}"
        )
    return msgspec.json.decode(output, type=Report)
