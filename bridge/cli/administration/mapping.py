"""`mqbridge mapping`: the mappings of a running bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import moment
from bridge.cli import options
from bridge.cli.administration import completion
from bridge.cli.administration.control import done, shown
from bridge.cli.table import print_table

if TYPE_CHECKING:
    from bridge.administration.mapping_status import Status

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the mapping.", autocompletion=completion.mappings)]


def list_(
    config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None, json: options.Json = False
) -> None:
    """Print the state and counts of each mapping of a running bridge, and its last error."""
    from bridge.administration.mapping_status import Status
    from bridge.administration.requests import ListMappings

    statuses = shown(ListMappings(), list[Status], config, data_dir)
    if json:
        from bridge.cli.output import write_json

        for status in statuses:
            write_json(status)
        return
    heads = ("mapping", "state", "taken", "moved", "filtered", "cut", "dead letters", "backouts")
    print_table(heads, [(one.name, str(one.state), *_counts(one)) for one in statuses], "the bridge has no mappings")
    for one in statuses:
        if one.last_error_at is not None:
            typer.echo(f"{one.name}: last error at {moment(one.last_error_at)}: {one.last_error}")
        for queue in one.blocked:
            typer.echo(f"{one.name}: since {moment(queue.since)}, {queue}")
        if one.blocked:
            typer.echo(f"{one.name}: backlog of {one.backlog:,} messages, those for other destinations included")


def pause(name: Name, config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None) -> None:
    """Pause a mapping after its current unit of work. New messages wait at its source.

    It stays paused until you resume it, restart the bridge, or reload a configuration in which the mapping has changed.
    """
    from bridge.administration.requests import PauseMapping

    done(PauseMapping(name=name), config, data_dir)


def resume(name: Name, config: options.ConfigurationFile = None, data_dir: options.DataDirectory = None) -> None:
    """Resume a paused mapping, starting with the messages that have arrived meanwhile."""
    from bridge.administration.requests import ResumeMapping

    done(ResumeMapping(name=name), config, data_dir)


def _counts(one: Status) -> tuple[int, ...]:
    return one.taken, one.moved, one.filtered, one.cut, one.dead_lettered, one.backouts
