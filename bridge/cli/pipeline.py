"""Pipelines on Spark: `mqbridge pipeline`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from bridge.cli.failures import FAILED, NOT_FOUND, UNREACHABLE, WRONG_USAGE, Failure
from bridge.cli.options import BRIDGE, CONFIG, OUTPUT, YES, Master, argument, flag, option, settings, takes
from bridge.cli.output import confirm, note, print_records, print_table, say, write

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.config.pipeline import PipelineConfig, SparkConfig
    from bridge.spark.administration import PipelineRequest
    from bridge.spark.environment import PipelineEnvironment
    from bridge.spark.pipeline import Pipeline

Names = Annotated[
    list[str] | None,
    argument("NAME…", "Pipelines. Default: all enabled pipelines."),
]
Running = Annotated[list[str], argument("NAME…", "Running pipelines.")]
Conf = Annotated[
    list[str] | None,
    option("KEY=VALUE", "A Spark setting, such as spark.executor.memory=2g. Can be repeated.", "--conf"),
]
Packages = Annotated[
    str | None,
    option("LIST", "Maven packages for Spark: group:artifact:version,…"),
]
Jars = Annotated[
    str | None,
    option("LIST", "Jars for driver and executors, separated by commas."),
]
#: Seconds between two looks at a pipeline that is to end, and for a process to end in addition to its batch.
_LOOK = 0.1
_PATIENCE = 60.0
_NO_PIPELINES = "the configuration file has no pipelines"


@takes(CONFIG | OUTPUT)
def list_() -> None:
    """List the pipelines and their effective settings, including defaults."""
    from bridge.config.effective import effective_yaml

    def text(records: list[dict[str, Any]]) -> None:
        for record in records:
            for line in record["description"]:
                write(line)
        if not records:
            say(_NO_PIPELINES)

    _, configuration = configured()
    records = [
        {"name": name, "enabled": pipeline.enabled, "description": effective_yaml({name: pipeline}).splitlines()}
        for name, pipeline in configuration.pipelines.items()
    ]
    print_records(records, lambda record: record["name"], table=text)


@takes(BRIDGE)
def check(
    names: Names = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    jars: Jars = None,
) -> None:
    """Check the SQL and the columns of pipelines with Spark, without starting or connecting to anything.

    Each mistake is one line on standard error: file, line, column, key, what was expected and what was found. The exit status
    is 2 if there are mistakes.
    """
    from bridge.config.pipeline import is_remote
    from bridge.spark.session import ANALYSIS_SETTINGS

    file, chosen, master, spark_settings, environment = _prepared(names, master, conf, packages, jars)
    # Analysing SQL needs no cluster, and no data sources: registering them starts a Python process.
    with _spark(
        None if is_remote(master) else master, {**ANALYSIS_SETTINGS, **spark_settings}, registers=False
    ) as spark:
        plans = _plan_all(spark, file, chosen, environment, reads=False)
    for plan in plans:
        say(f"pipeline {plan.name} is OK")
        if plan.embeds:
            reached = environment.master is None or environment.is_shared(plan.directory)
            why = "" if reached else f", because the workers do not reach its spool below {plan.directory}"
            say(f"note: pipeline {plan.name}: messages travel with the tasks (option embed){why}")
        _note_unread(plan, environment)
        if plan.at_least_once:
            say(
                f"note: pipeline {plan.name}: a destination may get a batch twice after a crash (at-least-once delivery)"
            )


@takes(BRIDGE)
def run(
    names: Names = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    jars: Jars = None,
    once: Annotated[bool, flag("End when all available messages are processed.", "--once")] = False,
) -> None:
    """Run pipelines until Ctrl-C or SIGTERM, or until all pipelines with the trigger availableNow are done.

    The command prints a line on standard error for each batch: rows in and out, dead letters, seconds, backlog. A pipeline
    continues from its checkpoint, even if it was killed.

    Messages with an invalid payload go to the dead letters. Temporary failures (a full queue, an unreachable broker) are
    retried indefinitely. A pipeline stops if its SELECT fails for a row, or after 8 other failures in a row. Other
    pipelines continue, and the exit status is 1.
    """
    file, chosen, master, spark_settings, environment = _prepared(names, master, conf, packages, jars)
    note(f"starting Spark for {', '.join(chosen)}")
    with _spark(master, spark_settings) as spark:
        from bridge.spark.pipeline import plan
        from bridge.spark.runner import PipelineRunner

        plans = {planned.name: [planned] for planned in _plan_all(spark, file, chosen, environment)}

        def planned(name: str) -> Callable[[], Pipeline]:
            return lambda: plans[name].pop() if plans[name] else plan(spark, name, chosen[name], environment)

        runner = PipelineRunner(
            spark,
            {name: planned(name) for name in chosen},
            report=note,
            once=once,
            stop_timeout=environment.stop_timeout,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: runner.stop())
        failed = runner.run()
    if failed:
        raise Failure(f"stopped or given up: {', '.join(failed)}", FAILED)


@takes(BRIDGE | OUTPUT)
def show(names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", show_default=False)] = None) -> None:
    """Show the status of pipelines, also of those that do not run.

    Rows in and out, dead letters and late rows are those of one run of the command; rows/s is over the last minute. The
    backlog is that of the last batch. `in spool` counts the messages that the pipeline has taken off their queue and not yet
    processed, now. The state `killed` means that the process ended without notice: `pipeline run`
    continues from the checkpoint.
    """
    file, configuration = configured()
    environment = environment_in(configuration, file)
    chosen = _chosen(configuration, names) if names else configuration.pipelines
    from bridge.spark.administration import StatusDamaged, condition

    now = time.time()
    try:
        conditions = [condition(name, pipeline, environment, now) for name, pipeline in chosen.items()]
    except StatusDamaged as damaged:
        raise Failure(str(damaged)) from damaged
    print_records(conditions, lambda pipeline: pipeline["name"], table=_print_conditions)


@takes(BRIDGE)
def stop(names: Running) -> None:
    """Stop running pipelines after their current batch, and wait until they have stopped.

    Other pipelines of the same `pipeline run` continue.
    """
    from bridge.spark.administration import StopPipeline

    _end(names, StopPipeline())


@takes(BRIDGE)
def drain(names: Running) -> None:
    """Process all available messages, then stop the pipelines.

    The command waits until they have stopped. Ctrl-C ends the wait, but the pipelines still stop when they are drained.
    """
    from bridge.spark.administration import DrainPipeline

    _end(names, DrainPipeline())


@takes(BRIDGE | YES)
def reset(
    name: Annotated[str, argument("NAME", "A pipeline that does not run.")],
) -> None:
    """Remove the checkpoint of a pipeline, so that its next run starts again with the messages that are available then.

    This discards open windows and joins. A batch that was cut off is read again and may be written twice. Messages in the
    spool, subscriptions and sessions remain.
    """
    from bridge.files import Locked, lock
    from bridge.spark.administration import LOCK
    from bridge.spark.environment import CHECKPOINT

    file, configuration = configured()
    environment = environment_in(configuration, file)
    (chosen,) = _chosen(configuration, [name]).values()
    directory = environment.directory_of(name, chosen)
    if not (directory / CHECKPOINT).exists():
        say(f"{name} has no checkpoint")
        return
    try:
        lock_file = lock(directory / LOCK)
    except Locked as error:
        hint = f"stop it first: mqbridge pipeline stop {name} --config {file}"
        raise Failure(f"process {error.process} runs {name}", hint=hint) from error
    with lock_file:
        confirm(f"Remove {directory / CHECKPOINT}?")
        shutil.rmtree(directory / CHECKPOINT)
    say(f"{name}: removed {directory / CHECKPOINT}")


# Configuration -------------------------------------------------------------------------------------------------------


def configured() -> tuple[Path, Configuration]:
    """Return the configuration file named by `--config` or the environment, and its configuration."""
    from bridge.cli.queue_manager import CONFIGURATION_VARIABLE, configuration_in

    path = settings.config or os.environ.get(CONFIGURATION_VARIABLE)
    if not path:
        raise Failure(
            "no configuration file", WRONG_USAGE, hint=f"specify it with --config or {CONFIGURATION_VARIABLE}"
        )
    return Path(path), configuration_in(Path(path))


def _chosen(configuration: Configuration, names: list[str] | None) -> dict[str, PipelineConfig]:
    """Return the named pipelines, or all enabled pipelines."""
    pipelines = configuration.pipelines
    if unknown := [name for name in names or () if name not in pipelines]:
        raise Failure(
            f"no pipeline {', '.join(unknown)}", NOT_FOUND, hint=f"pipelines: {', '.join(pipelines) or 'none'}"
        )
    enabled = (name for name, pipeline in pipelines.items() if pipeline.enabled)
    chosen = {name: pipelines[name] for name in dict.fromkeys(names or enabled)}
    if not chosen:
        raise Failure("the configuration file has no pipeline that is enabled", WRONG_USAGE)
    return chosen


def environment_in(configuration: Configuration, file: Path, master: str | None = None) -> PipelineEnvironment:
    """Return the environment that the pipelines of a file share."""
    from bridge.cli.queue_manager import data_directory
    from bridge.spark.environment import environment_of

    return environment_of(configuration, file, data_directory(settings.data_dir, configuration), master)


def settings_of(spark: SparkConfig, conf: list[str] | None, packages: str | None, jars: str | None) -> dict[str, str]:
    """Return the Spark settings of the file and of the command line, which takes precedence. Lists are joined."""
    from bridge.config.pipeline import PACKAGE, is_secret

    configuration = dict(spark.conf)
    for text in conf or ():
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise Failure(f"--conf: expected KEY=VALUE with a key that begins with spark., found {text!r}", WRONG_USAGE)
        if is_secret(name):
            hint = "write it to spark-defaults.conf of SPARK_CONF_DIR"
            raise Failure(f"--conf {name}: secrets on the command line are visible to others", WRONG_USAGE, hint=hint)
        configuration[name] = value
    extra_packages = _listed(packages)
    if wrong := [package for package in extra_packages if not re.fullmatch(PACKAGE, package)]:
        raise Failure(f"--packages: expected group:artifact:version, found {wrong[0]!r}", WRONG_USAGE)
    for name, parts in (
        ("spark.jars.packages", [*spark.packages, *extra_packages]),
        ("spark.jars", [*map(str, spark.jars), *map(_absolute, _listed(jars))]),
    ):
        if parts:
            configuration[name] = ",".join(dict.fromkeys([*_listed(configuration.get(name)), *parts]))
    return configuration


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _absolute(jar: str) -> str:
    return jar if urlsplit(jar).scheme else str(Path(jar).absolute())


# Spark ---------------------------------------------------------------------------------------------------------------


def _prepared(
    names: list[str] | None, master: str | None, conf: list[str] | None, packages: str | None, jars: str | None
) -> tuple[Path, dict[str, PipelineConfig], str | None, dict[str, str], PipelineEnvironment]:
    """Return the configuration file, the chosen pipelines, the master, the settings of Spark, and the environment."""
    file, configuration = configured()
    chosen = _chosen(configuration, names)
    master = master or configuration.spark.master
    spark_settings = settings_of(configuration.spark, conf, packages, jars)
    return file, chosen, master, spark_settings, environment_in(configuration, file, master)


@contextmanager
def _spark(master: str | None, spark_settings: dict[str, str], *, registers: bool = True) -> Iterator[Any]:
    """Yield a session. Ctrl-C ends the process immediately until the caller sets a handler. Raises Failure."""
    from bridge.spark.session import JobFailed, SparkMissing, job

    # A KeyboardInterrupt in a call to Java makes py4j print stack traces. Java ends with this process.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with job("pipelines", master, spark_settings, registers=registers) as spark:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # SparkContext has set a handler of its own
            yield spark
    except (SparkMissing, JobFailed) as error:
        raise Failure(str(error), WRONG_USAGE) from error
    finally:
        signal.signal(signal.SIGINT, before)


def _plan_all(
    spark: Any, file: Path, chosen: dict[str, PipelineConfig], environment: PipelineEnvironment, *, reads: bool = True
) -> list[Pipeline]:
    """Return the plans of pipelines. Raises Failure with all mistakes, each with its place in the file."""
    from bridge.config.document import Collection
    from bridge.spark.failures import Mistake
    from bridge.spark.pipeline import plan

    collection = Collection(file)
    plans, problems = [], []
    for name, config in chosen.items():
        try:
            plans.append(plan(spark, name, config, environment, reads=reads))
        except Mistake as mistake:
            location = ("pipelines", name, *mistake.location)
            if mistake.position is None:
                problems.append(collection.problem(location, mistake.expected, mistake.found))
            else:
                actual = mistake.found or "nothing"
                problems.append(collection.text_problem(location, mistake.position, mistake.expected, actual))
    if problems:
        lines = tuple(map(str, collection.in_order(problems)))
        count = "1 mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
        raise Failure(f"{file}: {count}", WRONG_USAGE, lines=lines)
    return plans


def _note_unread(plan: Pipeline, environment: PipelineEnvironment) -> None:
    """Print a note about messages in the spool of a queue or topic that the pipeline no longer reads. Raises Failure."""
    from bridge.administration.answers import counted
    from bridge.spark.administration import StatusDamaged, condition

    try:
        unread = condition(plan.name, plan.config, environment, time.time())["unread"]
    except (StatusDamaged, OSError) as error:
        raise Failure(str(error)) from error
    for source, messages in unread.items():
        then = "it does not start" if environment.fails_on_data_loss(plan.config) else "they stay there"
        say(
            f"note: pipeline {plan.name}: its spool has {counted(messages, 'message')} of {source}, which it no longer reads,"
            f" so {then}; hint: mqbridge pipeline spool return {source}"
        )


# Administration ------------------------------------------------------------------------------------------------------


def _end(names: list[str], pipeline_request: PipelineRequest) -> None:
    """Send a request to running pipelines, and wait for their end. Raises Failure."""
    from bridge.administration.control_socket import NoBridge
    from bridge.spark.administration import StopPipeline, read_status, request, runs, state_of

    file, configuration = configured()
    environment = environment_in(configuration, file)
    chosen = _chosen(configuration, names)
    stops = isinstance(pipeline_request, StopPipeline)
    directories = {name: environment.directory_of(name, pipeline) for name, pipeline in chosen.items()}
    processes = {name: runs(directory) for name, directory in directories.items()}
    if idle := [name for name, process in processes.items() if process is None]:
        hint = (
            ""
            if stops
            else f"to process the available messages: mqbridge pipeline run {' '.join(idle)} --once --config {file}"
        )
        raise Failure(f"not running: {', '.join(idle)}", UNREACHABLE, hint=hint)
    for name, directory in directories.items():
        try:
            request(directory, pipeline_request)
        except NoBridge as error:
            raise Failure(f"{name}: process {processes[name]} does not answer: {error}", UNREACHABLE) from error
    failed = []
    for name, directory in directories.items():
        process, begin = processes[name], time.monotonic()
        while runs(directory) == process:
            if stops and time.monotonic() - begin > environment.stop_timeout + _PATIENCE:
                hint = f"kill -9 {process} ends all of its pipelines, and nothing is lost"
                raise Failure(f"{name}: process {process} is still running", hint=hint)
            time.sleep(_LOOK)
        state = state_of(read_status(directory), None)
        say(f"{name}: {'drained' if not stops and state == 'done' else state}")
        if state not in ("stopped", "done"):
            failed.append(name)
    if failed:
        raise Failure(f"ended with an error: {', '.join(failed)}", hint="mqbridge pipeline show")


def _print_conditions(conditions: list[dict[str, Any]]) -> None:
    heads = (
        "pipeline",
        "state",
        "since",
        "process",
        "last batch",
        "in",
        "out",
        "dead letters",
        "late",
        "rows/s",
        "waiting",
        "oldest",
        "in spool",
    )
    counted = ("rows_in", "rows_out", "dead_letters", "late", "rows_in_per_second", "waiting")
    rows = []
    for condition in conditions:
        batch, runs = condition["last_batch"], condition["process"] is not None
        since = condition["since"] if runs else condition["until"] or condition["since"]
        last = "" if batch is None else f"{batch['number']} at {when(batch['at'])}"
        counts = [
            "" if condition[key] is None or (key == "rows_in_per_second" and not runs) else condition[key]
            for key in counted
        ]
        process = condition["process"] if runs else ""
        rows.append(
            (
                condition["name"],
                condition["state"],
                when(since),
                process,
                last,
                *counts,
                when(condition["oldest"]),
                condition["spool_messages"],
            )
        )
    print_table(heads, rows, _NO_PIPELINES)
    for condition in conditions:
        for source, messages in condition["unread"].items():
            say(
                f"{condition['name']}: {messages} messages of {source}, which it no longer reads, are in its spool; hint:"
                f" mqbridge pipeline spool return {source}"
            )
        if condition["discarded"]:
            say(
                f"{condition['name']}: discarded {condition['discarded']} dead letters,"
                f" the last ones at {when(condition['discarded_at'])}, because too many are on the queue"
                " (limits.dead_letter_bytes); hint: mqbridge dlq list"
            )
        if (error := condition["last_error"]) is not None:
            remedy = f"; hint: {error['remedy']}" if error["remedy"] else ""
            say(f"{condition['name']}: last error at {when(error['at'])}: {error['what']}{remedy}")


def when(at: float | None) -> str:
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
