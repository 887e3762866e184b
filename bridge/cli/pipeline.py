"""Pipelines on Spark: `mqbridge pipeline list`, `check` and `run`."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from bridge.cli import options
from bridge.cli.failures import FAILED, WRONG_USAGE, Failure
from bridge.cli.options import Master
from bridge.cli.output import note, write

if TYPE_CHECKING:
    from bridge.config import Configuration, PipelineConfig
    from bridge.config.pipeline import SparkConfig
    from bridge.spark.flow.environment import PipelineEnvironment
    from bridge.spark.flow.plan import Plan

#: Imports Spark, which takes as long as Java takes to start.
_PLAN = "bridge.spark.flow.plan"

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="Pipelines; without any, all that are enabled.", show_default=False),
]

Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark, such as spark.executor.memory=2g; may be repeated.",
        show_default=False,
    ),
]  # fmt: skip
Packages = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Maven packages that Spark fetches: group:artifact:version,…", show_default=False),
]
Jars = Annotated[
    str | None, typer.Option(metavar="LIST", help="Jars for driver and executors, with commas.", show_default=False)
]

Once = Annotated[bool, typer.Option("--once", help="End when all that is there is done, whatever the triggers say.")]


def list_(config: options.ConfigurationFile = None) -> None:
    """Say what the pipelines read and write, and how often."""
    from bridge.config.description import describe_pipeline

    _, configuration = configuration_of(config)
    for name, one in configuration.pipelines.items():
        for line in describe_pipeline(name, one):
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
    """Have Spark look at the SQL and the columns of pipelines, without starting or connecting to anything.

    Exit status 2 when there are mistakes; each is one line on standard error: file, line, column, key, what was expected
    and what was found.
    """
    from bridge.config.pipeline import is_remote

    file, configuration = configuration_of(config)
    chosen = chosen_of(configuration, names)
    master = master or configuration.spark.master
    environment = environment_of(configuration, file, data_dir, master)
    settings = settings_of(configuration.spark, conf, packages, jars)
    with _spark(None if is_remote(master) else master, settings, short=True) as spark:  # no cluster is needed to look at SQL
        check_all(spark, file, chosen, environment)
        tell_left_behind(configuration, environment)
    for name in chosen:
        write(f"pipeline {name} is OK")


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
    """Run pipelines until Ctrl-C or SIGTERM, or until those that read what is available have done so.

    A line on standard error for each batch: rows in and out, dead letters, seconds, messages that wait. A pipeline goes on
    where it was when it ended, however it ended.

    Bad data does not end it: payloads that are none, rows that the SELECT cannot be made of (a division by zero), and
    messages that a destination refuses for what they are go to its dead letters, and the others go on. What somebody can
    mend (a queue that is full, a broker that is away) is tried again without end, with a line that says what to do.

    A pipeline that fails 8 times in a row for any other reason is given up: it needs a person, and is started again with
    the command. The others go on, and the exit status is 1 when they have ended.
    """
    file, configuration = configuration_of(config)
    chosen = chosen_of(configuration, names)
    environment = environment_of(configuration, file, data_dir, master or configuration.spark.master)
    settings = settings_of(configuration.spark, conf, packages, jars)
    run_all(file, configuration, chosen, environment, master or configuration.spark.master, settings, once=once)


def run_all(
    file: Path,
    configuration: Configuration,
    chosen: dict[str, PipelineConfig],
    environment: PipelineEnvironment,
    master: str | None,
    settings: dict[str, str],
    *,
    once: bool,
) -> None:
    """Run pipelines in this process, on a master of Spark (None: this machine) with these settings. Raises Failure."""
    note(f"starting Spark for {', '.join(chosen)}")
    with _spark(master, settings) as spark:
        checked = check_all(spark, file, chosen, environment)
        tell_left_behind(configuration, environment)
        from bridge.spark.flow.runner import Runner

        plans = {one.name: _planned(spark, one, chosen[one.name]) for one in checked}
        runner = Runner(spark, plans, tell=note, once=once)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: runner.stop())
        failed = runner.run()
    if failed:
        raise Failure(f"given up: {', '.join(failed)}", FAILED)


def configuration_of(option: Path | None) -> tuple[Path, Configuration]:
    """Return the configuration file that `--config` or the environment names, and the configuration in it."""
    from bridge.cli.queue_manager import CONFIGURATION_VARIABLE, configuration_in

    named = option or options.settings.config or os.environ.get(CONFIGURATION_VARIABLE)
    if not named:
        raise Failure(f"pipelines are in a configuration file: name it by --config or {CONFIGURATION_VARIABLE}", WRONG_USAGE)
    return Path(named), configuration_in(Path(named))


def chosen_of(configuration: Configuration, names: list[str] | None) -> dict[str, PipelineConfig]:
    """Return the pipelines of these names; of none, all that are enabled."""
    known = configuration.pipelines
    if unknown := [name for name in names or () if name not in known]:
        raise Failure(f"no pipeline {', '.join(unknown)}; there are {', '.join(known) or 'none'}", WRONG_USAGE)
    chosen = {name: known[name] for name in dict.fromkeys(names or (name for name, one in known.items() if one.enabled))}
    if not chosen:
        raise Failure("the configuration file has no pipeline that is enabled", WRONG_USAGE)
    return chosen


def environment_of(
    configuration: Configuration, file: Path, data_dir: Path | None, master: str | None = None
) -> PipelineEnvironment:
    """Return what the pipelines of a file have in common, on a master of Spark (None: this machine). Raises Failure."""
    from bridge.cli.queue_manager import data_directory
    from bridge.spark.errors import SparkMissing
    from bridge.spark.session import require_packages

    try:
        require_packages()
    except SparkMissing as error:
        raise Failure(str(error), WRONG_USAGE) from error
    from bridge.spark.flow import environment
    from bridge.spark.flow.remote_queue_manager import OutOfReach

    try:
        return environment.environment_of(configuration, file, data_directory(data_dir, configuration), master)
    except OutOfReach as error:
        raise Failure(f"{file}: {error}", WRONG_USAGE) from error


def settings_of(spark: SparkConfig, conf: list[str] | None, packages: str | None, jars: str | None) -> dict[str, str]:
    """Return the settings of Spark that the file and the command line say; the command line wins, of lists both count."""
    from bridge.config.pipeline import PACKAGE, is_secret

    found = dict(spark.conf)
    for one in conf or ():
        name, equals, value = one.partition("=")
        if not equals or not name.startswith("spark."):
            raise Failure(f"--conf: expected KEY=VALUE with a key that begins with spark., found {one!r}", WRONG_USAGE)
        if is_secret(name):
            sentence = f"--conf {name}: expected no secret, which every program of this machine sees (write it into"
            raise Failure(f"{sentence} spark-defaults.conf of SPARK_CONF_DIR)", WRONG_USAGE)
        found[name] = value
    added = _listed(packages)
    if wrong := [one for one in added if not re.fullmatch(PACKAGE, one)]:
        raise Failure(f"--packages: expected group:artifact:version, found {wrong[0]!r}", WRONG_USAGE)
    for name, parts in (
        ("spark.jars.packages", [*spark.packages, *added]),
        ("spark.jars", [*map(str, spark.jars), *map(_absolute, _listed(jars))]),
    ):
        if parts:
            found[name] = ",".join(dict.fromkeys([*_listed(found.get(name)), *parts]))
    return found


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def _absolute(jar: str) -> str:
    return jar if urlsplit(jar).scheme else str(Path(jar).absolute())


def _planned(spark: Any, first: Plan, config: PipelineConfig) -> Callable[[], Plan]:
    """Return what makes the plan of a pipeline at each start; for the first it is there."""
    from bridge.spark.flow.plan import plan

    made = [first]
    return lambda: made.pop() if made else plan(spark, first.name, config, first.environment)


@contextmanager
def _spark(master: str | None, settings: dict[str, str], *, short: bool = False) -> Iterator[Any]:
    """Yield a session that knows the sources of pipelines; a `short` one is soon there, and computes slowly."""
    from bridge.spark.errors import SparkMissing
    from bridge.spark.job import JobFailed, job

    # What goes wrong is told in a line for each, without the stacks of the JVM.
    own = {"spark.log.level": "FATAL", "spark.sql.shuffle.partitions": "2"}
    try:
        with job("pipelines", master, own | settings, short=short, meanwhile=lambda: import_module(_PLAN)) as spark:
            import_module(_PLAN).register(spark)
            yield spark
    except (SparkMissing, JobFailed) as error:
        raise Failure(str(error), WRONG_USAGE) from error


def tell_left_behind(configuration: Configuration, environment: PipelineEnvironment) -> None:
    """Say which publications and sessions of MQTT no pipeline goes on with. What cannot be read is said too."""
    from bridge.spark.flow.left_behind import left_behind
    from bridge.spark.spool import SpoolDamaged

    try:
        lines = [str(one) for one in left_behind(configuration.pipelines, environment)]
    except (OSError, SpoolDamaged) as error:
        lines = [f"whether renamed pipelines have left anything behind is unknown: {error}"]
    for line in lines:
        note(f"note: {line}")


def check_all(
    spark: Any, file: Path, chosen: dict[str, PipelineConfig], environment: PipelineEnvironment
) -> list[Plan]:
    """Return the plans of the chosen pipelines. Raises Failure with all mistakes, each with its place in the file."""
    from bridge.config.document import Collection
    from bridge.spark.flow.mistake import Mistake
    from bridge.spark.flow.plan import plan
    from bridge.spark.flow.shared_archives import archive_mistakes

    collection = Collection(file)
    mistakes: list[tuple[str, Mistake]] = []
    plans = []
    for name, config in chosen.items():
        try:
            plans.append(plan(spark, name, config, environment))
        except Mistake as error:
            mistakes.append((name, error))
    problems = []
    for name, mistake in (*mistakes, *archive_mistakes(plans)):
        location = ("pipelines", name, *mistake.location)
        if mistake.position is None:
            problems.append(collection.problem(location, mistake.expected, mistake.found))
        else:
            found = mistake.found or "nothing"
            problems.append(collection.text_problem(location, mistake.position, mistake.expected, found))
    if problems:
        raise Failure("\n".join(map(str, collection.in_order(problems))), WRONG_USAGE)
    return plans
