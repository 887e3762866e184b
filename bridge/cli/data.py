"""`mqbridge data`: back up, restore and repair the embedded queue manager, and verify files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bridge.administration.answers import counted, moment
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, YES, argument, flag, settings, takes
from bridge.cli.output import confirm, print_error, print_record, progress, say
from bridge.cli.queue_manager import CONFIGURATION_VARIABLE, configuration, data_directory

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.mq.database import Contents, DatabaseFindings

#: Lines about damage that are printed.
_MAX_LINES = 50


@takes(BRIDGE | OUTPUT)
def backup(
    file: Annotated[Path, argument("FILE", "The file to create, outside the data directory.")],
    force: Annotated[bool, flag("Replace an existing file.", "--force")] = False,
) -> None:
    """Copy the embedded queue manager to a file, while the bridge is running.

    The backup contains everything that was committed when the command started: definitions, persistent messages, retained
    publications, durable subscriptions and sessions. It does not contain data in memory (QoS 0, and messages for clean
    sessions), the configuration, certificates, password files or the archive. Copy those separately. The backup is verified
    before it gets its name. Only its owner may read it. If root runs the command, that is the owner of its directory.
    """
    from bridge.mq.database import backup as copy

    directory = _data_directory()
    with progress(f"backing up {directory}"):
        contents = copy(directory, file, replace=force)
    _print(contents, f"{file} contains {directory}:")
    if settings.output == "table":
        for spool in _spools(directory):
            say(f"not in the backup: messages that a pipeline has taken off its queue. Copy {spool.parent}, too")


@takes(BRIDGE | OUTPUT | YES)
def restore(
    file: Annotated[Path, argument("FILE", "The backup.")],
    force: Annotated[
        bool, flag("Move an existing queue manager to a subdirectory before-restore-…", "--force")
    ] = False,
    accept_loss: Annotated[
        bool, flag("Continue without spools of pipelines that the backup records.", "--accept-loss")
    ] = False,
) -> None:
    """Restore a backup to a data directory. The bridge must not be running.

    Everything that happened after the backup is discarded: messages delivered since are delivered again, those
    published since are lost, and sessions are as they were. Packet identifiers that clients had not released (QoS 2)
    are forgotten, so that no later publication is taken for a repetition: a message may be duplicated. A damaged
    backup, or one with another schema, is rejected. A directory that contains a queue manager is rejected without
    --force. If root runs the command, it acts as the owner of the directory, or of the parent directory if it does not
    exist.

    A backup does not contain the spools of pipelines: messages that they have taken off their queues and not processed.
    If the data directory lacks them, the backup is rejected without --accept-loss. Copy the directories of the pipelines
    there first.
    """
    from bridge.mq.database import restore as make

    directory = _data_directory()
    if not accept_loss and (absent := _absent_spools(file, directory)):
        raise Failure(
            f"{file} records spools of pipelines that are not in {directory}: {absent}",
            FAILED,
            hint="copy the directories of the pipelines there first; --accept-loss continues without the messages that these "
            "pipelines had taken off their queues and not processed",
        )
    if force:
        confirm(f"Replace the queue manager in {directory}?")
    with progress(f"restoring {directory}"):
        contents, former = make(file, directory, force=force)
    _print(contents, f"restored {directory}:")
    if settings.output == "table":
        if former is not None:
            say(f"the previous queue manager is in {former}")
        say("messages delivered since the backup are delivered again, and those published since are lost")


@takes(BRIDGE)
def verify(
    directory: Annotated[
        Path | None, argument("[DIR]", "A data directory, the directory of an archive, or a spool of a pipeline.")
    ] = None,
) -> None:
    """Check that files are undamaged and complete. Running bridges and pipelines are not affected.

    Without DIR, it checks the database of the queue manager, the archive, and the spools of all pipelines.

    Exit status 0 if everything is undamaged, contains all acknowledged commits, segments and files, and the database has the
    schema of this release. Otherwise exit status 1, with a line for each damaged, missing or unexpected part.
    """
    failures = [failure for check in _checks(directory) if (failure := check()) is not None]
    for failure in failures[:-1]:
        print_error(failure)
    if failures:
        raise failures[-1]


def _checks(directory: Path | None) -> Iterator[Callable[[], Failure | None]]:
    """Yield the checks of `verify`. Raises Failure if there is nothing to check."""
    from bridge.archive.completeness import is_archive
    from bridge.spark.environment import CHECKPOINT, SPOOL
    from bridge.spark.spool_inventory import is_spool

    if directory is not None:
        if is_archive(directory):
            yield partial(_verify_archive, directory)
        elif is_spool(directory):
            yield partial(_verify_spool, directory, None)
        else:
            yield partial(_verify_database, directory)
        return
    configured = configuration()
    archive = None if configured is None else configured.archive.directory
    pipelines = {} if configured is None else _pipelines(configured)
    if configured is None or configured.queue_manager.type == "embedded" or not (archive or pipelines):
        yield partial(_verify_database, _data_directory())
    if archive is not None and archive.is_dir():
        yield partial(_verify_archive, archive)
    for pipeline in pipelines.values():
        yield partial(_verify_spool, pipeline / SPOOL, pipeline / CHECKPOINT)


def _pipelines(configuration: Configuration) -> dict[str, Path]:
    """Return the directories of pipelines that have a spool."""
    from bridge.cli.pipeline import environment_in

    file = settings.config or os.environ.get(CONFIGURATION_VARIABLE)
    return environment_in(configuration, Path(file or "")).spool_directories(configuration.pipelines)


def _spools(directory: Path) -> list[Path]:
    """Return the directories of the spools of pipelines that use a data directory."""
    from bridge.config.models import PIPELINES
    from bridge.spark.environment import SPOOL

    configured = configuration()
    spools = [] if configured is None else [pipeline / SPOOL for pipeline in _pipelines(configured).values()]
    return sorted({*spools, *(directory / PIPELINES).glob(f"*/{SPOOL}")})


def _absent_spools(database: Path, directory: Path) -> str:
    """Return a list of the spools that a database records and a data directory lacks. Raises StoreError."""
    from bridge.config.queue_manager import MAPPING_STATE_QUEUE
    from bridge.mq.database import messages_on
    from bridge.spark.spool_inventory import absent_spools

    absent = absent_spools(messages_on(MAPPING_STATE_QUEUE, database), _spools(directory))
    return ", ".join(f"queue {spool.queue} ({spool.last} segments, {spool.owner})" for spool in absent)


def _verify_database(directory: Path) -> Failure | None:
    from bridge.mq.data_directory import StoreError
    from bridge.mq.database import verify as examine

    try:
        with progress(f"checking {directory}"):
            findings = examine(directory)
    except StoreError as error:
        return Failure(str(error), FAILED)
    _print_findings(findings)
    if findings.missing:
        return Failure(
            f"{directory} is incomplete",
            FAILED,
            hint="`mqbridge data restore --force FILE` restores a backup; "
            f"`mqbridge data salvage --accept-loss {directory} NEW` continues without the missing commits",
        )
    if findings.damage:
        return Failure(
            f"{directory} is damaged",
            FAILED,
            hint=f"`mqbridge data salvage {directory} NEW` copies the undamaged parts",
        )
    return None


def _verify_archive(directory: Path) -> Failure | None:
    from bridge.archive.completeness import losses

    hint = "restore its files from a copy; audit, report and replay continue without them with --accept-loss"
    return _verify_files(f"archive {directory}", (loss.text for loss in losses(directory)), hint)


def _verify_spool(directory: Path, checkpoint: Path | None) -> Failure | None:
    from bridge.spark.spool_inventory import damage_of

    hint = "the messages exist nowhere else, so restore its files from a copy; see failOnDataLoss"
    return _verify_files(f"spool {directory}", damage_of(directory, checkpoint), hint)


def _verify_files(name: str, damage: Iterator[str], hint: str) -> Failure | None:
    with progress(f"checking {name}"):
        lines = list(damage)
    _print_damage(lines)
    if lines:
        return Failure(f"{name} is damaged", FAILED, hint=hint)
    typer.echo(f"{name} is undamaged")
    return None


def salvage(
    directory: Annotated[Path, argument("DIR", "The damaged data directory. It is not changed.")],
    new: Annotated[Path, argument("NEW", "The data directory to create.")],
    accept_loss: Annotated[
        bool, flag("Continue without commits that were acknowledged and are missing.", "--accept-loss")
    ] = False,
) -> None:
    """Create a data directory from the undamaged parts of another.

    The bridge must not be running. A line is printed for each lost part. If commits at the end of the log are missing, the
    command fails without --accept-loss.
    """
    from bridge.mq.data_directory import DATABASE
    from bridge.mq.database import salvage as keep

    findings = keep(directory, new, accept_loss=accept_loss)
    _print_findings(findings)
    if absent := _absent_spools(new / DATABASE, new):
        say(f"spools of pipelines are not in {new}: {absent}. Copy the directories of the pipelines there")
    say(f"{new} contains the undamaged parts: mqbridge run --data-dir {new}")


def _data_directory() -> Path:
    """Return the data directory that the options specify. Raises Failure if the queue manager is IBM MQ."""
    configured = configuration()
    if configured is not None and configured.queue_manager.type == "ibm" and settings.data_dir is None:
        raise Failure("the bridge uses IBM MQ, which has its own backup commands", WRONG_USAGE)
    return data_directory(settings.data_dir, configured)


def _print(contents: Contents, head: str) -> None:
    def text(contents: Contents) -> None:
        typer.echo(head)
        typer.echo(
            f"  as of {moment(contents.taken) or 'an unknown time'}, layout {contents.version}, {contents.size} bytes"
        )
        subscriptions = counted(contents.subscriptions, "durable subscription")
        typer.echo(f"  {counted(contents.messages, 'persistent message')}, {subscriptions}")
        typer.echo(f"  {counted(contents.queues, 'queue')}, {counted(contents.definitions, 'other definition')}")

    print_record(contents, moment(contents.taken), text)


def _print_findings(findings: DatabaseFindings) -> None:
    if findings.missing:
        typer.echo(findings.missing)
    _print_damage(findings.damage)
    typer.echo(
        f"undamaged: {counted(len(findings.objects), 'definition')}, {findings.batches} batches of the log, "
        f"{counted(findings.messages, 'persistent message')} put, {findings.left} of them still on their queues"
    )


def _print_damage(lines: list[str]) -> None:
    for line in lines[:_MAX_LINES]:
        typer.echo(line)
    if len(lines) > _MAX_LINES:
        typer.echo(f"... and {len(lines) - _MAX_LINES} more")
