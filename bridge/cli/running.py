"""Commands for a bridge that runs: read its configuration again, and say what its mappings are doing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure

if TYPE_CHECKING:
    from bridge.service.control import Answer
    from bridge.service.mappings.status import Status

Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="Configuration file of the bridge, if it was started with one."),
]


def reload(config: Config = None, data_dir: options.DataDirectory = None) -> None:
    """Have the running bridge read its configuration file again.

    Mappings and links that are added, changed, removed, enabled or disabled take effect; the others go on
    untouched. A file with mistakes changes nothing: each is one line on standard error, exit status 1.
    """
    try:
        answer = _asked("reload", config, data_dir)
    except Failure as failure:
        raise Failure(failure.text, FAILED) from failure
    for line in answer.lines:
        typer.echo(line, err=not answer.ok)
    if not answer.ok:
        raise typer.Exit(1)


def mappings(
    config: Config = None,
    data_dir: options.DataDirectory = None,
    json: options.Json = False,
) -> None:
    """Show what the mappings of a running bridge do and did."""
    answer = _asked("mappings", config, data_dir)
    if json:
        import msgspec

        for status in answer.mappings:
            typer.echo(msgspec.json.encode(status).decode())
        return
    if not answer.mappings:
        typer.echo("the bridge has no mappings")
        return
    _print(answer.mappings)


def _print(statuses: list[Status]) -> None:
    heads = ("mapping", "state", "taken", "moved", "filtered", "cut", "dead letters", "backouts")
    rows = [(one.name, str(one.state), *map(str, _counts(one))) for one in statuses]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            f"{cell:<{width}}" if index < 2 else f"{cell:>{width}}" for index, (cell, width) in _cells(row, widths)
        ]
        typer.echo("  ".join(cells).rstrip())
    for one in statuses:
        if one.last_error_at is not None:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.last_error_at))
            typer.echo(f"{one.name}: last error at {when}: {one.last_error}")


def _counts(one: Status) -> tuple[int, ...]:
    return one.taken, one.moved, one.filtered, one.cut, one.dead_lettered, one.backouts


def _cells(row: tuple[str, ...], widths: list[int]) -> enumerate[tuple[str, int]]:
    return enumerate(zip(row, widths, strict=True))


def _asked(command: str, config: Path | None, data_dir: Path | None) -> Answer:
    from bridge.cli.queue_manager import configuration_in
    from bridge.cli.service import configured
    from bridge.service.control import NoBridge, Request, ask

    file = configuration_in(config) if config is not None else None
    path = configured(file, data_dir, None, None).control_socket_path
    if path is None:
        raise Failure(
            f"{config} names no control_socket, which a bridge on IBM MQ needs for this; `kill -HUP` makes it reload, too",
            WRONG_USAGE,
        )
    try:
        return ask(path, Request(command))  # type: ignore[arg-type]
    except NoBridge as error:
        raise Failure(str(error)) from error
