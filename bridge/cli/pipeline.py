"""Pipelines on Spark: `mqbridge pipeline list`, `check` and `run`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import Master
from bridge.cli.output import note, write

if TYPE_CHECKING:
    from bridge.config.models import Configuration
    from bridge.config.pipeline import PipelineConfig, SparkConfig
    from bridge.spark.pipeline import Pipeline
    from bridge.spark.pipeline_environment import PipelineEnvironment

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="Pipelines. Default: all enabled pipelines.", show_default=False),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A Spark setting, such as spark.executor.memory=2g. May be repeated.",
        show_default=False,
    ),
]  # fmt: skip
Packages = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Maven packages for Spark: group:artifact:version,…", show_default=False),
]
Jars = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Jars for driver and executors, separated by commas.", show_default=False),
]
Once = Annotated[bool, typer.Option("--once", help="End when all available messages are processed.")]


def list_(config: options.ConfigurationFile = None) -> None:
    """List the pipelines: sources, destinations and triggers."""
    from bridge.config.description import describe_pipeline

    _, configuration = configuration_of(config)
    for name, pipeline in configuration.pipelines.items():
        for line in describe_pipeline(name, pipeline):
            write(line)
    if not configuration.pipelines:
        write("the configuration file has no pipelines")


def check(
    names: Names = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    jars: Jars = None,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Check the SQL and the columns of pipelines with Spark, without starting or connecting to anything.

    Each mistake is one line on standard error: file, line, column, key, what was expected and what was found. The exit status
    is 2 if there are mistakes.
    """
    from bridge.config.pipeline import is_remote

    file, configuration = configuration_of(config)
    chosen = chosen_of(configuration, names)
    master = master or configuration.spark.master
    settings = settings_of(configuration.spark, conf, packages, jars)
    require_spark()
    environment = environment_of(configuration, file, data_dir, master)
    from bridge.spark.session import ANALYSIS_SETTINGS

    # Analysing SQL needs no cluster.
    with _spark(None if is_remote(master) else master, {**ANALYSIS_SETTINGS, **settings}) as spark:
        plans = check_all(spark, file, chosen, environment, reads=False)
    for plan in plans:
        write(f"pipeline {plan.name} is OK")
        if plan.at_least_once:
            write(f"note: pipeline {plan.name}: a destination may get a batch twice after a crash (at-least-once delivery)")


def run(
    names: Names = None,
    master: Master = None,
    conf: Conf = None,
    packages: Packages = None,
    jars: Jars = None,
    once: Once = False,
    config: options.ConfigurationFile = None,
    data_dir: options.DataDirectory = None,
) -> None:
    """Run pipelines until Ctrl-C or SIGTERM, or until all pipelines with the trigger availableNow are done.

    Prints a line on standard error for each batch: rows in and out, dead letters, seconds, backlog. A pipeline continues
    from its checkpoint, whatever ended it.

    Messages with an invalid payload go to the dead letters. A failure that a person or time can fix (a full queue, an
    unreachable broker) is tried again without end. A pipeline whose SELECT cannot be computed of some row is stopped. So is a
    pipeline that fails 8 times in a row for any other reason. The others continue, and the exit status is 1.
    """
    file, configuration = configuration_of(config)
    chosen = chosen_of(configuration, names)
    master = master or configuration.spark.master
    settings = settings_of(configuration.spark, conf, packages, jars)
    require_spark()
    environment = environment_of(configuration, file, data_dir, master)
    note(f"starting Spark for {', '.join(chosen)}")
    with _spark(master, settings) as spark:
        plans = {plan.name: plan for plan in check_all(spark, file, chosen, environment)}
        from bridge.spark.runner import Runner

        made = {name: _planned(spark, plans[name], config_) for name, config_ in chosen.items()}
        runner = Runner(spark, made, tell=note, once=once, patience=environment.patience)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: runner.stop())
        failed = runner.run()
    if failed:
        raise Failure(f"stopped or given up: {', '.join(failed)}", FAILED)


def configuration_of(option: Path | None) -> tuple[Path, Configuration]:
    """Return the configuration file named by `--config` or the environment, and its configuration."""
    from bridge.cli.queue_manager import CONFIGURATION_VARIABLE, configuration_in

    named = option or options.settings.config or os.environ.get(CONFIGURATION_VARIABLE)
    if not named:
        raise Failure(f"pipelines are in a configuration file: name it by --config or {CONFIGURATION_VARIABLE}", WRONG_USAGE)
    return Path(named), configuration_in(Path(named))


def chosen_of(configuration: Configuration, names: list[str] | None) -> dict[str, PipelineConfig]:
    """Return the named pipelines, or all enabled pipelines."""
    known = configuration.pipelines
    if unknown := [name for name in names or () if name not in known]:
        raise Failure(f"no pipeline {', '.join(unknown)}; there are {', '.join(known) or 'none'}", WRONG_USAGE)
    enabled = (name for name, pipeline in known.items() if pipeline.enabled)
    chosen = {name: known[name] for name in dict.fromkeys(names or enabled)}
    if not chosen:
        raise Failure("the configuration file has no pipeline that is enabled", WRONG_USAGE)
    return chosen


def require_spark() -> None:
    """Raise Failure with the command that installs a missing package of the extra `spark`."""
    from bridge.spark.errors import SparkMissing
    from bridge.spark.session import require_packages

    try:
        require_packages()
    except SparkMissing as error:
        raise Failure(str(error), WRONG_USAGE) from error


def environment_of(
    configuration: Configuration, file: Path, data_dir: Path | None, master: str | None = None
) -> PipelineEnvironment:
    """Return what the pipelines of a file have in common. Raises Failure."""
    from bridge.cli.queue_manager import data_directory
    from bridge.spark import pipeline_environment
    from bridge.spark.remote_queue_manager import OutOfReach

    try:
        return pipeline_environment.environment_of(configuration, file, data_directory(data_dir, configuration), master)
    except OutOfReach as error:
        raise Failure(f"{file}: {error}", WRONG_USAGE) from error


def settings_of(spark: SparkConfig, conf: list[str] | None, packages: str | None, jars: str | None) -> dict[str, str]:
    """Return the Spark settings of the file and of the command line, which takes precedence. Lists are joined."""
    from bridge.config.pipeline import PACKAGE, is_secret

    settings = dict(spark.conf)
    for text in conf or ():
        name, equals, value = text.partition("=")
        if not equals or not name.startswith("spark."):
            raise Failure(f"--conf: expected KEY=VALUE with a key that begins with spark., found {text!r}", WRONG_USAGE)
        if is_secret(name):
            sentence = f"--conf {name}: expected no secret, which every program of this machine sees (write it into"
            raise Failure(f"{sentence} spark-defaults.conf of SPARK_CONF_DIR)", WRONG_USAGE)
        settings[name] = value
    added = _listed(packages)
    if wrong := [package for package in added if not re.fullmatch(PACKAGE, package)]:
        raise Failure(f"--packages: expected group:artifact:version, found {wrong[0]!r}", WRONG_USAGE)
    for name, parts in (
        ("spark.jars.packages", [*spark.packages, *added]),
        ("spark.jars", [*map(str, spark.jars), *map(_absolute, _listed(jars))]),
    ):
        if parts:
            settings[name] = ",".join(dict.fromkeys([*_listed(settings.get(name)), *parts]))
    return settings


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _absolute(jar: str) -> str:
    return jar if urlsplit(jar).scheme else str(Path(jar).absolute())


def _planned(spark: Any, first: Pipeline, config: PipelineConfig) -> Callable[[], Pipeline]:
    """Return what plans a pipeline at each start. The first plan exists already."""
    from bridge.spark.pipeline import plan

    made = [first]
    return lambda: made.pop() if made else plan(spark, first.name, config, first.environment)


@contextmanager
def _spark(master: str | None, settings: dict[str, str]) -> Iterator[Any]:
    """Yield a session. Raises Failure."""
    from bridge.spark.errors import SparkMissing
    from bridge.spark.session import JobFailed, job

    try:
        with job("pipelines", master, settings) as spark:
            yield spark
    except (SparkMissing, JobFailed) as error:
        raise Failure(str(error), WRONG_USAGE) from error


def check_all(
    spark: Any, file: Path, chosen: dict[str, PipelineConfig], environment: PipelineEnvironment, *, reads: bool = True
) -> list[Pipeline]:
    """Return the plans of pipelines. Raises Failure with all mistakes, each with its place in the file."""
    from bridge.config.document import Collection
    from bridge.spark.mistake import Mistake
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
                found = mistake.found or "nothing"
                problems.append(collection.text_problem(location, mistake.position, mistake.expected, found))
    if problems:
        raise Failure("\n".join(map(str, collection.in_order(problems))), WRONG_USAGE)
    return plans
