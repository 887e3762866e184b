"""The spools of pipelines, Spark programs and `mqbridge lake`: `mqbridge pipeline spool`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from bridge.cli.failures import NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, OUTPUT, YES, argument, option, takes
from bridge.cli.output import confirm, print_records, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.spark.spool_inventory import Positions, SpoolContents
SpoolDirectory = Annotated[
    str | None,
    option("DIR", "Spool of a Spark program or of `mqbridge lake`. Default: the spools of pipelines.", "--spool"),
]
Checkpoint = Annotated[
    Path | None, option("DIR", "Checkpoint of that program. Default: the directory checkpoint next to the spool.")
]


class Spooled(msgspec.Struct, frozen=True):
    """The spools of one query."""

    #: name of the pipeline, or "" for another query
    pipeline: str
    #: directory or URL
    below: str
    positions: Positions
    #: the queue or topic filter that the pipeline reads, or None if unknown
    sources: list[str] | None = None
    #: of a pipeline
    directory: Path | None = None


@takes(BRIDGE | OUTPUT)
def list_(
    names: Annotated[list[str] | None, argument("NAME…", "Pipelines. Default: all, also removed ones.")] = None,
    spool: SpoolDirectory = None,
    checkpoint: Checkpoint = None,
) -> None:
    """List the messages in spools that are in no finished batch.

    A streaming query takes messages off their queue, or acknowledges publications, before it processes them. Until then
    they are in its spool. `read` is no if the pipeline no longer reads the queue or topic: it then refuses to start.
    The command does not connect to the queue manager.
    """
    records = []
    for query in _queries(names, spool, checkpoint):
        for contents in _inventory(query):
            is_read = None if query.sources is None else contents.source in query.sources
            if contents.messages or is_read:
                records.append({"pipeline": query.pipeline, "read": is_read, **msgspec.to_builtins(contents)})
    print_records(records, lambda record: record["source"], table=_print)


@takes(BRIDGE | YES)
def return_(
    source: Annotated[
        str, argument("QUEUE", "Queue, subscription or topic filter, as `pipeline spool list` prints it.")
    ],
    pipeline: Annotated[str | None, option("NAME", "The pipeline, if several have messages of the queue.")] = None,
    to: Annotated[
        str | None, option("QUEUE", "Put the messages on another queue. Required for a topic filter.")
    ] = None,
    spool: SpoolDirectory = None,
    checkpoint: Checkpoint = None,
    target: Annotated[
        str | None, option("TARGET", "Target of `mqbridge lake`. Default: the directory of a spool named .spool.")
    ] = None,
) -> None:
    """Put messages of a spool back on their queue, each exactly once.

    Each message has its MQMD again, including identifiers, context and priority. It is put behind the messages that are on
    the queue now. The query must not run. If the command is interrupted, run it again: it continues.
    """
    from bridge.cli.queue_manager import connected
    from bridge.lake import settle
    from bridge.spark.administration import runs
    from bridge.spark.segment import SpoolDamaged
    from bridge.spark.spool import SpoolBusy
    from bridge.spark.spool_return import NotReturned, put_back

    queries = _queries([pipeline] if pipeline else None, spool, checkpoint)
    candidates = [(query, contents) for query in queries for contents in _inventory(query) if contents.source == source]
    if not candidates:
        raise Failure(f"no spool has messages of {source}", NOT_FOUND, hint="`mqbridge pipeline spool list` lists them")
    if len(candidates) > 1:
        names = ", ".join(query.pipeline for query, _ in candidates)
        raise Failure(
            f"several pipelines have a spool of {source}: {names}", WRONG_USAGE, hint="choose with --pipeline"
        )
    query, contents = candidates[0]
    if query.directory is not None and (process := runs(query.directory)) is not None:
        hint = f"stop it first: mqbridge pipeline stop {query.pipeline}"
        raise Failure(f"process {process} runs {query.pipeline}", hint=hint)
    confirm(f"Put {contents.messages} messages of {source} back on {f'queue {to}' if to else 'their queue'}?")
    if target is None and Path(query.below).name == ".spool":
        target = str(Path(query.below).parent)
    more: dict[str, Any] = {} if target is None else {"settle": partial(settle, target)}
    try:
        with connected() as connection:
            count = put_back(connection, query.below, source, query.positions, to=to, **more)
    except (NotReturned, SpoolBusy, SpoolDamaged) as error:
        raise Failure(str(error)) from error
    say(f"put {count} messages of {source} back")


def _inventory(query: Spooled) -> list[SpoolContents]:
    from bridge.spark.spool_inventory import Directory, inventory

    if "://" not in query.below:
        return inventory(query.below, query.positions, Directory)
    from bridge.spark.spool import SpoolPlace

    return inventory(query.below, query.positions, SpoolPlace)


def _queries(names: Iterable[str] | None, spool: str | None, checkpoint: Path | None) -> list[Spooled]:
    """Return the queries whose spools the options choose. Raises Failure."""
    from bridge.spark.spool_inventory import Positions

    if spool is not None:
        if (
            checkpoint is None
            and "://" not in spool
            and (beside := Path(spool).absolute().parent / "checkpoint").is_dir()
        ):
            checkpoint = beside
        below = spool if "://" in spool else str(Path(spool).absolute())
        return [Spooled("", below, Positions.of(checkpoint))]
    if checkpoint is not None:
        raise Failure("--checkpoint: belongs to --spool", WRONG_USAGE)
    from bridge.cli.pipeline import configured, environment_in
    from bridge.spark.environment import CHECKPOINT, SPOOL

    file, configuration = configured()
    environment = environment_in(configuration, file)
    directories = environment.spool_directories(configuration.pipelines)
    if unknown := [name for name in names or () if name not in directories and name not in configuration.pipelines]:
        raise Failure(f"no pipeline {', '.join(unknown)}", NOT_FOUND)
    queries = []
    for name, directory in directories.items():
        if not names or name in names:
            config = configuration.pipelines.get(name)
            sources = [] if config is None else environment.sources_of(name, config)
            positions = Positions.of(directory / CHECKPOINT)
            queries.append(Spooled(name, str(directory / SPOOL), positions, sources, directory))
    return queries


def _print(records: list[dict[str, Any]]) -> None:
    from bridge.cli.pipeline import when

    heads = ("pipeline", "queue or topic", "read", "messages", "bytes", "in an unfinished batch", "oldest", "directory")
    words = {True: "yes", False: "no", None: ""}
    rows = [
        (
            spool["pipeline"],
            spool["source"],
            words[spool["read"]],
            spool["messages"],
            spool["bytes"],
            spool["planned"],
            when(spool["oldest"]),
            spool["directory"],
        )
        for spool in records
    ]
    print_table(heads, rows, "no spool has messages")
