"""Commands for a running bridge: its status, its configuration and its log level."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from bridge.administration.answers import age
from bridge.cli import options
from bridge.cli.administration.control import asked, done, shown
from bridge.cli.failures import FAILED, Failure

Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="Configuration file of the bridge, if it was started with one."),
]


def reload(
    config: Config = None, data_dir: options.DataDirectory = None, named: options.ConfigurationFile = None
) -> None:
    """Have the running bridge read its configuration file again.

    Channels, mappings and links that are added, changed, removed, enabled or disabled take effect, and so do certificates,
    channel authentication records, limits and the log; the others go on untouched. What takes a restart is named. A file with
    mistakes changes nothing: each is one line on standard error, exit status 1. So is it where all was taken over, and a
    channel does not listen.
    """
    from bridge.administration.requests import Reload

    try:
        answer = asked(Reload(), config or named, data_dir)
    except Failure as failure:
        raise Failure(failure.text, FAILED) from failure
    for line in answer.lines:
        typer.echo(line, err=not answer.ok)
    if not answer.ok:
        raise typer.Exit(1)


def status(
    config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None, json: options.Json = False
) -> None:
    """Show the status of the running bridge and any problems.

    The exit status is 0 if there is no problem, also for a standby, and 1 if there is one or no bridge answers.
    """
    from bridge.administration.answers import BridgeStatus
    from bridge.administration.requests import ShowStatus

    found = shown(ShowStatus(), BridgeStatus, config, data_dir)
    if json:
        from bridge.cli.output import write_json

        write_json(found)
    else:
        since = age(time.time() - found.started_at)
        typer.echo(f"mqbridge {found.version} is {found.state}, process {found.process_id}, for {since}")
        typer.echo(f"queue manager {found.queue_manager} ({found.queue_manager_type}) {found.queue_manager_state}")
        typer.echo(f"{found.channels_running} of {found.channels} channels listen")
        typer.echo(f"{found.clients} clients are connected, {found.sessions} sessions in all")
        typer.echo(f"{found.mappings} mappings; {found.units_of_work} units of work under way; log level {found.log_level}")
        for problem in found.problems:
            typer.echo(f"PROBLEM ({problem.severity}): {problem.what}; see `{problem.command}`")
    if found.problems:
        raise typer.Exit(FAILED)


def log_level(
    level: Annotated[options.LogLevel, typer.Argument(help="Least severe entries that are written.")],
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Set the level of the running bridge's log, until it ends or reads its configuration again."""
    from bridge.administration.requests import SetLogLevel

    done(SetLogLevel(level=level.value), config, data_dir)


def mappings(
    config: Config = None,
    data_dir: options.DataDirectory = None,
    named: options.ConfigurationFile = None,
    json: options.Json = False,
) -> None:
    """Print the state and counts of each mapping. This is an older name of `mapping list`."""
    from bridge.cli.administration.mapping import list_

    list_(config or named, data_dir, json)
