"""Tables on a terminal: columns as wide as what is in them, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

import typer


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
