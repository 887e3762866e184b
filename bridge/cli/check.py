"""`mqbridge check`: what is wrong with a configuration file, what it needs and is not there, and what the bridge will do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from bridge.cli.failures import FAILED, WRONG_USAGE, Failure, failure_of


class Findings(msgspec.Struct):
    """What `mqbridge check` has found; its JSON is what `--json` prints."""

    file: str
    ok: bool = False
    #: what is wrong with the file: each with file, line, column, key, expected, found
    mistakes: list[dict[str, Any]] = []
    #: what it makes the bridge do
    description: list[str] = []
    loops: list[str] = []
    notes: list[str] = []
    #: what it needs and is not there
    missing: list[str] = []
    #: with --connect: what the queue manager lacks, and what of that only clients with certain topics need
    queue_manager_lacks: list[str] = []
    queue_manager_notes: list[str] = []


def check(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration file.", show_default=False)],
    connect: Annotated[
        bool,
        typer.Option(
            "--connect", help="Connect to its queue manager as well, and see whether it has all that is needed."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all that is found as one object of JSON.")] = False,
) -> None:
    """Check a configuration file, and say what it makes the bridge do.

    Exit status 2 when it has mistakes; each is one line on standard error: file, line, key, what was expected
    and what was found.

    Exit status 1 when a file, variable or package that it needs is not there; each is a line on standard error.
    With --connect, also when the broker of a link or the queue manager cannot be reached, or the queue manager
    lacks something; each thing is one line on standard error: what is missing, and the MQSC that would create it.
    """
    findings, status = find(config, connect)
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
        raise typer.Exit(status)
    if findings.mistakes:
        raise Failure("\n".join(str(one["text"]) for one in findings.mistakes), status)
    for line in findings.description:
        typer.echo(line)
    for loop in findings.loops:
        typer.echo(f"loop: {loop}")
    for note in findings.notes:
        typer.echo(f"note: {note}")
    for line in findings.missing:
        typer.echo(line, err=True)
    for note in findings.queue_manager_notes:
        typer.echo(f"note: {note}", err=True)
    if findings.queue_manager_lacks:
        raise Failure("\n".join(findings.queue_manager_lacks), status)
    if findings.missing:
        raise Failure(f"{config} is right, and what it needs is not all there for this user", status)
    typer.echo(f"{config} is OK")


def find(config: Path, connect: bool) -> tuple[Findings, int]:
    """Return what is to be said of a configuration file, and the exit status."""
    from bridge.cli.queue_manager import read
    from bridge.cli.requirements import lacking_at_queue_manager
    from bridge.cli.surroundings import expiring, lacking, long_user_names, undefined_queues, unreachable
    from bridge.config import ConfigurationError, advice, describe
    from bridge.mapping.rules.check import loops_of, warnings_of

    findings = Findings(str(config))
    try:
        configuration = read(config)
    except ConfigurationError as error:
        names = ("line", "column", "key", "expected", "found")
        findings.mistakes = [
            {"text": str(one), "file": str(one.file)} | {name: getattr(one, name) for name in names}
            for one in error.problems
        ]
        return findings, WRONG_USAGE
    findings.description = list(describe(configuration))
    findings.loops = [str(loop) for loop in loops_of(configuration)]
    findings.notes = list(warnings_of(configuration))
    findings.notes += advice(configuration)
    findings.notes += long_user_names(configuration)
    findings.notes += expiring(configuration)
    findings.notes += undefined_queues(configuration)
    if not configuration.model_fields_set:
        findings.notes.append(f"{config} is empty: every setting has its default")
    findings.missing = list(lacking(configuration))
    if connect:
        findings.missing += unreachable(configuration)
        try:
            findings.queue_manager_lacks, findings.queue_manager_notes = lacking_at_queue_manager(configuration)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            findings.queue_manager_lacks = failure.text.splitlines()
        if not findings.queue_manager_lacks:
            but = ", except for the notes" if findings.queue_manager_notes else ""
            name = configuration.queue_manager.name
            findings.description.append(f"queue manager {name} has all that the bridge needs{but}")
    findings.ok = not findings.missing and not findings.queue_manager_lacks
    return findings, 0 if findings.ok else FAILED
