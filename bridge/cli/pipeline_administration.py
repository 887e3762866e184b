"""Administration of pipelines from another process: `mqbridge pipeline show`, `stop`, `drain` and `reset`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.output import write, write_json
from bridge.cli.pipeline import chosen_of, configuration_of, environment_of

if TYPE_CHECKING:
    from bridge.spark.administration import PipelineRequest

Names = Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Pipelines. Default: all.", show_default=False)]
Running = Annotated[list[str], typer.Argument(metavar="NAME…", help="Running pipelines.", show_default=False)]
#: Seconds between two looks at a pipeline that is to end.
_LOOK = 0.1
#: Seconds that a process may take to end, in addition to those of its batch.
_PATIENCE = 60.0
_HEADS = (
    "pipeline", "state", "since", "process", "last batch",
    "in", "out", "dead letters", "late", "rows/s", "waiting", "oldest",
)  # fmt: skip
#: Number of columns that are aligned to the left.
_TEXTS = 5


def show(
    names: Names = None,
    json: options.Json = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Show the status of pipelines, also of those that do not run.

    Rows in and out, dead letters and late rows are those of one run of the command; rows/s is over the last minute. The
    backlog is that of the last batch. The state `killed` means that the process ended without notice: `pipeline run`
    continues from the checkpoint.
    """
    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    chosen = chosen_of(configuration, names) if names else configuration.pipelines
    from bridge.spark.administration import StatusDamaged, condition

    now = time.time()
    try:
        conditions = {name: condition(name, pipeline, environment, now) for name, pipeline in chosen.items()}
    except StatusDamaged as damaged:
        raise Failure(str(damaged), WRONG_USAGE) from damaged
    if json:
        for values in conditions.values():
            write_json(values)
        return
    if not conditions:
        write("the configuration file has no pipelines")
        return
    rows = [_HEADS, *(_cells(values) for values in conditions.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        write("  ".join(f"{cell:{'<' if at < _TEXTS else '>'}{width}}" for at, (cell, width) in enumerate(cells)).rstrip())
    for name, values in conditions.items():
        if (error := values["last_error"]) is not None:
            remedy = f"; remedy: {error['remedy']}" if error["remedy"] else ""
            write(f"{name}: last error at {_when(error['at'])}: {error['what']}{remedy}")


def stop(
    names: Running,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Stop running pipelines after their current batch, and wait for their end.

    Other pipelines of the same `pipeline run` continue.
    """
    from bridge.spark.administration import StopPipeline

    _end(names, StopPipeline(), config, data_dir)


def drain(
    names: Running,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Have running pipelines process all available messages and end, and wait for that.

    Ctrl-C ends the wait; the pipelines still end when they are drained.
    """
    from bridge.spark.administration import DrainPipeline

    _end(names, DrainPipeline(), config, data_dir)


def reset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A pipeline that does not run.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Remove the checkpoint of a pipeline, so that its next run starts again with the messages that are available then.

    This discards open windows and joins. A batch that was cut off is read again and may be written twice. Messages in the
    spool, subscriptions and sessions remain.
    """
    from bridge.files import Locked, lock
    from bridge.spark.administration import LOCK
    from bridge.spark.pipeline_environment import CHECKPOINT

    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    (chosen,) = chosen_of(configuration, [name]).values()
    directory = environment.directory_of(name, chosen)
    if not (directory / CHECKPOINT).exists():
        write(f"{name} has no checkpoint")
        return
    try:
        held = lock(directory / LOCK)
    except Locked as error:
        sentence = f"process {error.process} runs {name}; stop it first: mqbridge pipeline stop {name} --config {file}"
        raise Failure(sentence, FAILED) from error
    with held:
        if not yes and not typer.confirm(f"remove {directory / CHECKPOINT}?", err=True):
            raise Failure("nothing was changed", FAILED)
        shutil.rmtree(directory / CHECKPOINT)
    write(f"{name}: removed {directory / CHECKPOINT}")


def _end(names: list[str], what: PipelineRequest, config: Path | None, data_dir: Path | None) -> None:
    from bridge.administration.control_socket import NoBridge
    from bridge.spark.administration import StopPipeline, read_status, request, runs, state_of

    file, configuration = configuration_of(config)
    environment = environment_of(configuration, file, data_dir)
    chosen = chosen_of(configuration, names)
    stops = isinstance(what, StopPipeline)
    directories = {name: environment.directory_of(name, pipeline) for name, pipeline in chosen.items()}
    processes = {name: runs(directory) for name, directory in directories.items()}
    if idle := [name for name, process in processes.items() if process is None]:
        once = f"; to process what is available and end: mqbridge pipeline run {' '.join(idle)} --once --config {file}"
        raise Failure(f"not running: {', '.join(idle)}{'' if stops else once}", FAILED)
    for name, directory in directories.items():
        try:
            request(directory, what)
        except NoBridge as error:
            raise Failure(f"{name}: process {processes[name]} does not answer: {error}", FAILED) from error
    patience = environment.patience + _PATIENCE if stops else None
    failed = []
    for name, directory in directories.items():
        process = processes[name]
        if not _ended(directory, process, patience):
            sentence = f"{name}: process {process} has not stopped it within {patience:g} s"
            raise Failure(f"{sentence}; kill -9 {process} ends all of its pipelines, and nothing is lost", FAILED)
        state = state_of(read_status(directory), None)
        write(f"{name}: {'drained' if not stops and state == 'done' else state}")
        if state not in ("stopped", "done"):
            failed.append(name)
    if failed:
        raise Failure(f"not ended in order: {', '.join(failed)}; see mqbridge pipeline show", FAILED)


def _ended(directory: Path, process: str | None, patience: float | None) -> bool:
    """Wait until a process has ended a pipeline; return whether it has."""
    from bridge.spark.administration import runs

    begin = time.monotonic()
    while runs(directory) == process:
        if patience is not None and time.monotonic() - begin > patience:
            return False
        time.sleep(_LOOK)
    return True


def _cells(values: dict[str, Any]) -> tuple[str, ...]:
    batch = values["last_batch"]
    since = values["since"] if values["process"] is not None else values["until"] or values["since"]
    texts = (
        values["name"],
        values["state"],
        _when(since),
        "" if values["process"] is None else str(values["process"]),
        "" if batch is None else f"{batch['number']} at {_when(batch['at'])}",
    )
    counts = [values[key] for key in ("rows_in", "rows_out", "dead_letters", "late")]
    rate = f"{values['rows_in_per_second']:g}" if values["process"] is not None else ""
    waiting = "" if values["waiting"] is None else str(values["waiting"])
    return (*texts, *("" if count is None else str(count) for count in counts), rate, waiting, _when(values["oldest"]))


def _when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
