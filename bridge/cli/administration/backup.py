"""`mqbridge backup` and `mqbridge restore`: the embedded queue manager in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import moment
from bridge.cli import options
from bridge.cli.failures import WRONG_USAGE, Failure
from bridge.cli.queue_manager import configuration_of, data_directory

if TYPE_CHECKING:
    from bridge.mq.database import Contents


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to make, outside the data directory.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file where it is there already.")] = False,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Copy the embedded queue manager to a file, while it runs.

    In it is all that was committed when the command began: definitions, persistent messages, retained publications, durable
    subscriptions and sessions. Not in it are what is in memory only (QoS 0 and messages for clean sessions), the
    configuration, its certificates and password files, and the archive: copy those by other means. The bridge continues
    meanwhile. The file is checked as by `mqbridge mq verify` before it gets its name. Only its owner may read it; if root
    runs the command, that is the owner of its directory.
    """
    from bridge.mq.data_directory import StoreError
    from bridge.mq.database import backup as copy

    place = _place(data_dir, config)
    try:
        contents = copy(place, file, replace=force)
    except StoreError as error:
        raise Failure(str(error)) from error
    _tell(contents, json, f"{file} holds {place}:")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    force: Annotated[
        bool, typer.Option("--force", help="Keep a queue manager that is there aside, in a directory below.")
    ] = False,
    json: options.Json = False,
    data_dir: options.DataDirectory = None,
    config: options.ConfigurationFile = None,
) -> None:
    """Restore a backup to a data directory. The bridge must not be running on it.

    Everything that happened after the backup is discarded: messages delivered since are delivered again, those published
    since are lost, and sessions are as they were. The backup is checked first: one that is damaged, or whose schema is not
    the bridge's, is rejected. So is a directory that has a queue manager. If root runs the command, it acts as the owner of
    the directory, or of the parent of one that does not exist.
    """
    from bridge.mq.data_directory import StoreError
    from bridge.mq.database import restore as make

    place = _place(data_dir, config)
    try:
        contents, kept = make(file, place, force=force)
    except StoreError as error:
        raise Failure(str(error)) from error
    _tell(contents, json, f"{place} is restored:")
    if not json:
        if kept is not None:
            typer.echo(f"the queue manager that was there is kept in {kept}")
        typer.echo("messages delivered since the backup come again, and those published since are lost")


def _place(data_dir: Path | None, config: Path | None) -> Path:
    """Return the data directory that the options name. Raises Failure where the queue manager is IBM MQ."""
    configuration = configuration_of(config, data_dir)
    if configuration is not None and configuration.queue_manager.type == "ibm" and data_dir is None:
        raise Failure("the configuration has a queue manager of IBM MQ, which has its own means for backups", WRONG_USAGE)
    return data_directory(data_dir, configuration)


def _tell(contents: Contents, json: bool, head: str) -> None:
    if json:
        from bridge.cli.output import write_json

        write_json(contents)
        return
    typer.echo(head)
    typer.echo(f"  as of {moment(contents.taken) or 'an unknown time'}, layout {contents.version}, {contents.size} bytes")
    typer.echo(f"  {contents.messages} persistent messages, {contents.subscriptions} durable subscriptions")
    typer.echo(f"  {contents.queues} queues, {contents.definitions} other definitions")
