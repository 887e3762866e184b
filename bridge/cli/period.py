"""Times and places that commands share: `--from`, `--to`, `--archive`, and time spans such as `30d`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge import durations
from bridge.cli.failures import WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.config import Configuration

_AGO = re.compile(r"-([0-9]{1,20}(?:\.[0-9]{1,9})?) *([a-z]+)")
_DAY = {"d": 86_400}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_FORMS = "2026-11-21, 2026-11-21T14:30 (UTC, unless it says +01:00), or -40s, -90min, -2h, -7d before now"

From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help=f"Begin here: {_FORMS}. Without it: at the first row.", show_default=False),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="End before this time. Without it: at the last row.", show_default=False),
]
ReplayTo = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="TIME",
        help="End before this time. Without it: before the time at which the run was first started.",
        show_default=False,
    ),
]
Archives = Annotated[
    list[Path] | None,
    typer.Option(
        "--archive",
        metavar="DIR",
        help="Directory of the archive; given again, several count as one. Without it: what the configuration file says.",
        show_default=False,
    ),
]


def moment(text: str | None, name: str) -> datetime | None:
    """Return the time that an option says, or raise Failure when the option says none."""
    if text is None:
        return None
    try:
        if ago := _AGO.fullmatch(text):
            units = durations.UNITS
            if ago[2] in units:
                return datetime.now(UTC) - timedelta(seconds=float(ago[1]) * float(units[ago[2]]))
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):  # the latter: before the year 1
        raise Failure(f"{name}: expected a time such as {_FORMS}, found {text!r}", WRONG_USAGE) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def period(start: str | None, end: str | None) -> tuple[datetime | None, datetime | None]:
    """Return the times of `--from` and `--to`, which must be in that order."""
    first, last = moment(start, "--from"), moment(end, "--to")
    if first is not None and last is not None and first >= last:
        raise Failure(f"--from {first.isoformat()} is not before --to {last.isoformat()}", WRONG_USAGE)
    return first, last


def seconds(text: str | None, name: str) -> float | None:
    """Return a time span such as `30d`, which option `name` says, in seconds. Raises Failure."""
    if text is None:
        return None
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        return float(number) * _SECONDS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        raise Failure(f"{name}: expected a number with d, h, min or s, such as 30d, found {text!r}", WRONG_USAGE) from None


def archives(option: list[Path] | None, configuration: Configuration | None) -> list[Path]:
    """Return the directories of the archive: the option's, else that of the configuration.

    Raises Failure when there are none.
    """
    found = option or []
    if not found and configuration is not None and configuration.archive.directory is not None:
        found = [configuration.archive.directory]
    if not found:
        raise Failure(
            "no archive: name its directory by --archive, or a file that has archive.directory by --config", WRONG_USAGE
        )
    for directory in found:
        if not directory.is_dir():
            raise Failure(f"--archive: {directory} is no directory", WRONG_USAGE)
    return found
