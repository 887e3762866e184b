"""`mqbridge mq verify` and `mqbridge mq salvage`: check and repair of an embedded queue manager's database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.cli.failures import FAILED, Failure
from bridge.cli.queue_manager import data_directory

_SHOWN = 50


def verify(
    directory: Annotated[
        Path | None, typer.Argument(help="The data directory; else as for the other commands.", show_default=False)
    ] = None,
) -> None:
    """Check the database of a queue manager.

    A running bridge is not disturbed. Exit status 0: the database is undamaged, and its schema is the bridge's. Exit status
    1: a line is printed for each damaged or unexpected part.
    """
    from bridge.mq.data_directory import StoreError
    from bridge.mq.database import verify as examine

    place = data_directory(directory, None)
    try:
        findings = examine(place)
    except StoreError as error:
        raise Failure(str(error)) from error
    _tell(findings)
    if findings.damage:
        raise Failure(f"{place} is damaged; `mqbridge mq salvage {place} NEW-DIRECTORY` keeps what is whole", FAILED)


def salvage(
    directory: Annotated[Path, typer.Argument(help="The damaged data directory; it stays as it is.")],
    new: Annotated[Path, typer.Argument(help="The directory to make; `mqbridge run --data-dir` takes it then.")],
) -> None:
    """Create a data directory from the undamaged contents of another.

    The bridge must not be running on it. A line is printed for each part that is lost.
    """
    from bridge.mq.data_directory import StoreError
    from bridge.mq.database import salvage as keep

    try:
        findings = keep(directory, new)
    except (StoreError, OSError) as error:
        raise Failure(str(error)) from error
    _tell(findings)
    typer.echo(f"{new} holds what is whole: mqbridge run --data-dir {new}")


def _tell(findings: Any) -> None:
    for line in findings.damage[:_SHOWN]:
        typer.echo(line)
    if len(findings.damage) > _SHOWN:
        typer.echo(f"... and {len(findings.damage) - _SHOWN} more")
    typer.echo(
        f"whole: {len(findings.objects)} definitions, {findings.batches} batches of the log, "
        f"{findings.messages} persistent messages put, {findings.left} of them still there"
    )
