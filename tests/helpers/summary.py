"""The end of a run: tests that were skipped because a program is missing, and with --times, the durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath

import pytest

from tests.helpers import documented_commands
from tests.helpers.installed import NOT_INSTALLED

#: Levels of a path in the table of times. Deeper directories are part of their parent.
DEPTH = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", action="store_true", help="print the ten slowest tests and the time of each directory")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after the summary of pytest itself
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
    yield
    reports = [
        report
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport)
    ]
    if terminalreporter.config.getoption("times"):
        _print_times(terminalreporter, reports)
        terminalreporter.section(documented_commands.share())
    absent = Counter(reason for report in reports if (reason := _absent(report)))
    for reason, count in sorted(absent.items()):
        terminalreporter.write_line(f"{count} tests skipped, {reason}", yellow=True)


def _absent(report: pytest.TestReport) -> str:
    """Return why a test was skipped if a program is missing, otherwise blank."""
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    return reason.removeprefix("Skipped: ") if NOT_INSTALLED in reason else ""


def _print_times(terminal: pytest.TerminalReporter, reports: list[pytest.TestReport]) -> None:
    tests: Counter[str] = Counter()
    directories: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for report in reports:
        # Seconds of set-up, test and tear-down. A fixture of several tests counts for the first one.
        tests[report.nodeid.partition("@")[0]] += report.duration  # type: ignore[assignment]
        directory = "/".join(PurePosixPath(report.nodeid.partition("::")[0]).parent.parts[:DEPTH])
        directories[directory] += report.duration  # type: ignore[assignment]
        counts[directory] += report.when == "call"
    terminal.section("slowest tests")
    for name, seconds in tests.most_common(10):
        terminal.write_line(f"{seconds:7.1f} s  {name}")
    terminal.section("time of each directory, all processes together")
    for name, seconds in directories.most_common():
        terminal.write_line(f"{seconds:7.1f} s  {counts[name]:5} tests  {name}")
