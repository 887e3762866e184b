"""Tables on a terminal: columns as wide as what is in them, numbers to the right."""

from __future__ import annotations

import time
from collections.abc import Sequence

import typer

#: Seconds of each unit in which an age is told, the longest first.
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str | int]], nothing: str) -> None:
    """Print rows below their heads, or the words for `nothing` where there are none."""
    if not rows:
        typer.echo(nothing)
        return
    cells = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    numbers = [all(isinstance(one, int) for one in column) for column in zip(*rows, strict=True)]
    for row in (list(heads), *cells):
        columns = zip(row, widths, numbers, strict=True)
        line = [f"{cell:>{width}}" if is_number else f"{cell:<{width}}" for cell, width, is_number in columns]
        typer.echo("  ".join(line).rstrip())


def printable(text: str) -> str:
    """Return a text with what a terminal would obey as escapes: clients choose their names and topics."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def moment(seconds: float) -> str:
    """Return a time of seconds since the epoch, in the time zone of this machine; blank for 0.0."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else ""


def age(seconds: float) -> str:
    """Return a time span in its two largest units, such as `3 d 4 h`."""
    left = int(seconds)
    words: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or (unit == "s" and not words):
            words.append(f"{count} {unit}")
        if len(words) == 2:
            break
    return " ".join(words)
