"""What commands print: messages as bytes, tables and other formats, notes, prompts and progress."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import typer

from bridge.cli.failures import Failure
from bridge.cli.options import Format, settings

T = TypeVar("T")


def write(text: str | bytes) -> None:
    """Write a line of standard output, independent of the terminal's character set.

    Returns when the line has left the process. Only then may a message be committed.
    """
    line = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    write_bytes(line if line.endswith(b"\n") else line + b"\n")


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output unchanged. Returns when they have left the process."""
    sys.stdout.flush()
    stream = sys.stdout.buffer
    stream.write(data)
    stream.flush()


def write_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    write(msgspec.json.encode(value))


def note(text: str) -> None:
    """Print a line on standard error, unless --quiet is set."""
    if not settings.quiet:
        print(text, file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print the confirmation of an action, unless --quiet is set."""
    if not settings.quiet:
        typer.echo(text)


def print_error(failure: Failure) -> None:
    """Print an error message and its hint."""
    for line in failure.lines:
        typer.echo(line, err=True)
    if failure.text:
        first, *more = failure.text.splitlines()
        typer.echo(f"mqbridge: {styled('error:', 'red', err=True)} {first}", err=True)
        for line in more:
            typer.echo(line, err=True)
    if failure.hint:
        typer.echo(f"{styled('hint:', 'cyan', err=True)} {failure.hint}", err=True)


def styled(text: str, color: str | None = None, *, bold: bool = False, err: bool = False) -> str:
    """Return a text in colour or bold if it goes to a terminal."""
    stream = sys.stderr if err else sys.stdout
    if not settings.colored or not stream.isatty():
        return text
    return typer.style(text, fg=color, bold=bold or None)


# Results -------------------------------------------------------------------------------------------------------------


def print_records(
    records: Iterable[T],
    name: Callable[[T], object],
    *,
    table: Callable[[list[T]], None] | None = None,
    each: Callable[[T], None] | None = None,
) -> int:
    """Print records in the chosen format, and return their number.

    The format table is printed by `table` in the end, or by `each` as they come. `name` returns what `-o name` prints.
    """
    if settings.output is Format.table and table is not None:
        rows = list(records)
        table(rows)
        return len(rows)
    count = 0
    for record in records:
        match settings.output:
            case Format.table:
                assert each is not None
                each(record)
            case Format.name:
                write(str(name(record)))
            case Format.jsonl:
                write_json(record)
            case Format.json:
                lines = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
                write(f"{',' if count else '['}\n{lines}")
            case Format.yaml:
                write(_yaml([record]))
        count += 1
    if settings.output is Format.json:
        write("]" if count else "[]")
    return count


def print_record(record: T, name: object, text: Callable[[T], None]) -> None:
    """Print one record in the chosen format. `text` prints the format table, and `name` is what `-o name` prints."""
    match settings.output:
        case Format.table:
            text(record)
        case Format.name:
            write(str(name))
        case Format.jsonl:
            write_json(record)
        case Format.json:
            write(msgspec.json.format(msgspec.json.encode(record), indent=2))
        case Format.yaml:
            write(_yaml(record))


def _yaml(value: Any) -> str:
    import yaml

    # By way of JSON, so that both formats have the same names and values.
    return str(yaml.safe_dump(msgspec.json.decode(msgspec.json.encode(value)), sort_keys=False, allow_unicode=True))


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | int]],
    nothing: str = "",
    *,
    title: str = "",
    numbers: bool = False,
) -> None:
    """Print rows with their headings, or `nothing` if there are none.

    Integers are right-aligned. `numbers` right-aligns all columns except the first.
    """
    if not rows:
        say(nothing)
        return
    if title:
        typer.echo(f"\n{styled(title, bold=True)}")
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right_aligned = [all(isinstance(cell, int) for cell in column) for column in zip(*rows, strict=True)]
    if numbers:
        right_aligned[1:] = [True] * (len(right_aligned) - 1)
    for number, row in enumerate((list(heads), *cells)):
        columns = zip(row, widths, right_aligned, strict=True)
        line = "  ".join(f"{cell:{'>' if is_right else '<'}{width}}" for cell, width, is_right in columns).rstrip()
        typer.echo(styled(line, bold=True) if not number else line)


def table_of(records: Iterable[Any], columns: Mapping[str, Any]) -> tuple[list[str], list[list[str | int]]]:
    """Return the headings and rows of a table. A column is the name of an attribute, or a function of the record."""
    cells: list[Any] = [attrgetter(column) if isinstance(column, str) else column for column in columns.values()]
    return [*columns], [[cell(record) for cell in cells] for record in records]


def print_facts(facts: Iterable[tuple[str, object]], width: int) -> None:
    """Print names and values, without those that are empty."""
    for name, value in facts:
        if value != "":
            typer.echo(f"{name:<{width}} {printable(str(value))}")


def shortened(text: str, max_length: int = 60) -> str:
    """Return a text of at most `max_length` characters, for a table."""
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."


def printable(text: str) -> str:
    """Return a text with control characters escaped, because clients choose their names and topics."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


# Terminals -----------------------------------------------------------------------------------------------------------


def asks() -> bool:
    """Return whether `confirm` asks the user."""
    return not settings.yes and sys.stdin.isatty()


def confirm(question: str) -> None:
    """Ask before a destructive action, on a terminal and without --yes. Raises Failure if the answer is no."""
    if asks() and not typer.confirm(question, err=True):
        raise Failure("nothing was changed")


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show on a terminal that the block is running."""
    if settings.quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True, no_color=not settings.colored).status(text):
        yield
