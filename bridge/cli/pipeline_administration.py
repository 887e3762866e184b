"""Pipelines from another process than theirs: `mqbridge pipeline show`, `stop`, `drain`, `reset` and `compact`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.output import write, write_json
from bridge.cli.pipeline import chosen_of, configuration_of, environment_of

if TYPE_CHECKING:
    from bridge.spark.flow.administration.request import Request

Names = Annotated[
    list[str] | None, typer.Argument(metavar="NAME…", help="Pipelines; without any, all.", show_default=False)
]
#: Seconds between two looks at a pipeline that is to end, and between two requests.
_LOOK, _AGAIN = 0.1, 1.0
#: Seconds that a process may take to end beside those of its batch.
_PATIENCE = 60.0
_HEADS = (
    "pipeline", "state", "since", "process", "last batch",
    "in", "out", "dead letters", "late", "rows/s", "waiting", "oldest",
)  # fmt: skip
#: Columns that are text, and begin at the left.
_TEXTS = 5


def show(
    names: Names = None,
    json: options.Json = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Show what pipelines do and did, whether a process runs them or not.

    Rows in and out, dead letters and late rows are of one run of the command, rows/s of its last minute. What waits is on the
    queue (CURDEPTH) or in the spool, with the messages of the batch under way; since when the oldest of it waits, the last
    batch has told. A state `killed` is of a process that ended
    without a word: `pipeline run` goes on where it was.
    """
    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    chosen = chosen_of(configuration, names) if names else configuration.pipelines
    from bridge.spark.flow.administration.condition import StatusDamaged, condition

    now = time.time()
    try:
        found = {name: condition(name, one, environment, now) for name, one in chosen.items()}
    except StatusDamaged as damaged:
        raise Failure(str(damaged), WRONG_USAGE) from damaged
    if json:
        for one in found.values():
            write_json(one)
        return
    if not found:
        write("the configuration file has no pipelines")
        return
    rows = [_HEADS, *(_cells(one) for one in found.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        write("  ".join(f"{cell:{'<' if at < _TEXTS else '>'}{width}}" for at, (cell, width) in enumerate(cells)).rstrip())
    for name, one in found.items():
        if (error := one["last_error"]) is not None:
            to_do = f"; to do: {error['remedy']}" if error["remedy"] else ""
            write(f"{name}: last error at {_when(error['at'])}: {error['what']}{to_do}")
        if (unknown := one["waiting_unknown"]) is not None:
            write(f"{name}: what waits is unknown: {unknown}")


def stop(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Pipelines that run.", show_default=False)],
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Have pipelines that run end the batch under way, and no more; return when they have.

    The others of the same `pipeline run` go on. What waits is read when they are run again.
    """
    _end(names, "stop", config, data_dir)


def drain(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Pipelines that run.", show_default=False)],
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Have pipelines that run go on until nothing is left to read, and end then; return when they have.

    It is `pipeline run --once` for one that runs. What comes after a moment when nothing was left is not read. Ctrl-C ends
    the wait, and the pipeline still ends when it is drained.
    """
    _end(names, "drain", config, data_dir)


def reset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A pipeline that does not run.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Give up how far a pipeline is, which nobody runs: the next run begins anew, with what waits.

    It says first what that gives up, and asks. Then it removes the checkpoint, with the state of the SELECT, and what the
    pipeline keeps on the state queue of the queue manager, which has to run. What came from a broker and is in no batch
    stays, and so do subscriptions and sessions.
    """
    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    (chosen,) = chosen_of(configuration, [name]).values()
    from bridge.files import Locked, lock
    from bridge.spark.flow.administration.status import LOCK

    directory = environment.directory_of(name, chosen)
    if not directory.is_dir():
        write(f"{name} has not run, and has nothing to give up")
        return
    try:
        held = lock(directory / LOCK)
    except Locked as error:
        command = f"mqbridge pipeline stop {name}"
        raise Failure(f"{name}: process {error.process} runs it; end it first ({command})", FAILED) from error
    from bridge.spark.errors import OptionError
    from bridge.spark.flow.administration.reset import Reset
    from bridge.spark.spool import SpoolDamaged

    try:
        one = Reset(name, chosen, environment)
        if not one.needed:
            write(f"{name} has nothing to give up")
            return
        for line in one.losses():
            write(line)
        if not yes and not typer.confirm(f"give up the checkpoint of {name}?", err=True):
            raise Failure("nothing was changed", FAILED)
        removed = one.do()
    except (SpoolDamaged, OptionError, ValueError) as error:
        raise Failure(f"{name}: {error}", FAILED) from error
    finally:
        held.close()
    write(f"{name}: reset; {removed} message{'s' if removed != 1 else ''} of it removed from the state queue")


def compact(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A pipeline with an archive.", show_default=False)],
    target: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a file, about.")] = "128 MB",
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Join the small Parquet files that a pipeline has written, of each hour that ended an hour ago or more.

    The pipeline may run meanwhile. Each row is there once, whatever is killed when: an hour is made anew, and exchanged for
    the old one at once. A reader that has listed the old files and not yet read them gets an error, and reads again.
    """
    from datetime import UTC, datetime

    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    (chosen,) = chosen_of(configuration, [name]).values()
    if chosen.destination is None or chosen.destination.archive is None:
        raise Failure(f"pipeline {name} writes no archive: (only such a destination is compacted)", WRONG_USAGE)
    directory = chosen.destination.archive.resolve()
    done: dict[str, int | None] = {}
    from bridge.spark.flow.administration.given_up import done as done_of

    for other, one in configuration.pipelines.items():
        source, to = one.source.archive, None if one.destination is None else one.destination.archive
        if source is not None and directory.is_relative_to(source.resolve()):
            sentence = f"pipeline {other} streams {source}: it would take files that are made anew for new rows"
            raise Failure(f"{sentence}, so nothing below that is compacted", WRONG_USAGE)
        if to is not None and to.resolve() == directory:
            done |= done_of(environment.directory_of(other, one))
    size = _size(target)
    if not directory.is_dir():
        write(f"{directory} is not there yet")
        return
    import pyarrow

    from bridge.files import Locked, lock
    from bridge.spark.flow.administration.compaction import LOCK, Compaction

    try:
        with lock(directory / LOCK):
            count = 0
            for hour in Compaction(directory, done, size).run(datetime.now(UTC)):
                write(f"{hour.hour}: {hour.before} files are {hour.after}")
                count += 1
    except Locked as error:
        raise Failure(f"process {error.process} compacts {directory} already", FAILED) from error
    except pyarrow.ArrowException as error:
        raise Failure(f"{directory}: {error}", FAILED) from error
    write(f"{name}: {count} hour{'s' if count != 1 else ''} compacted")


def _size(text: str) -> int:
    from bridge.spark.errors import OptionError
    from bridge.spark.options import Options

    try:
        return Options("pipeline compact", {"target": text}, ("target",)).size("target", 0)
    except OptionError as error:
        raise Failure(f"--target {text}: expected a size, such as 128 MB", WRONG_USAGE) from error


def _end(names: list[str], request: Request, config: Path | None, data_dir: Path | None) -> None:
    from bridge.spark.flow.administration.condition import state_of
    from bridge.spark.flow.administration.request import ask
    from bridge.spark.flow.administration.status import read_status, runs

    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    chosen = chosen_of(configuration, names)
    directories = {name: environment.directory_of(name, one) for name, one in chosen.items()}
    processes = {name: runs(directory) for name, directory in directories.items()}
    if idle := [name for name, process in processes.items() if process is None]:
        sentence = f"not running: {', '.join(idle)}"
        once = f"; to read what waits and end: mqbridge pipeline run {' '.join(idle)} --once --config {file}"
        raise Failure(sentence + (once if request == "drain" else ""), FAILED)
    for directory in directories.values():
        ask(directory, request)
    patience = None if request == "drain" else environment.patience + _PATIENCE
    failed = []
    for name, directory in directories.items():
        process = processes[name]
        if not _ended(directory, process, request, patience):
            sentence = f"{name}: process {process} has not ended it within {patience:g} s; kill -9 {process} ends all of its"
            raise Failure(f"{sentence} pipelines, and nothing is lost", FAILED)
        status = read_status(directory)
        state = state_of(status, None)
        write(f"{name}: {'drained' if (request, state) == ('drain', 'done') else state}")
        if state not in ("stopped", "done"):
            failed.append(name)
    if failed:
        raise Failure(f"not ended in order: {', '.join(failed)}; mqbridge pipeline show says why", FAILED)


def _ended(directory: Path, process: str | None, request: Request, patience: float | None) -> bool:
    """Wait until a process has ended a pipeline; return whether it has."""
    from bridge.spark.flow.administration.request import ask
    from bridge.spark.flow.administration.status import runs

    begin = asked = time.monotonic()
    while runs(directory) == process:
        now = time.monotonic()
        if patience is not None and now - begin > patience:
            return False
        if now - asked > _AGAIN:  # a process that has just begun may have taken the request for an old one
            ask(directory, request)
            asked = now
        time.sleep(_LOOK)
    return True


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    batch = one["last_batch"]
    since = one["since"] if one["process"] is not None else one["until"] or one["since"]
    texts = (
        one["name"],
        one["state"],
        _when(since),
        "" if one["process"] is None else str(one["process"]),
        "" if batch is None else f"{batch['number']} at {_when(batch['at'])}",
    )
    counts = [one[key] for key in ("rows_in", "rows_out", "dead_letters", "late")]
    rate = f"{one['rows_in_per_second']:g}" if one["process"] is not None else ""
    waiting = "?" if one["waiting"] is None else str(one["waiting"])
    return (*texts, *("" if count is None else str(count) for count in counts), rate, waiting, _when(one["oldest"]))


def _when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
