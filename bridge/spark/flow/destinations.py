"""Where the rows of a pipeline go, by its section `to` or by its mapping: destinations, and the queue of dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from bridge.config import AnyMapping, ConfigurationError, Destination, PipelineConfig, ToMqMapping, load
from bridge.mapping.rules.rule import rule_of
from bridge.mapping.rules.template import Template
from bridge.spark.flow.columns import mapped
from bridge.spark.flow.environment import LEFT, PipelineEnvironment
from bridge.spark.flow.mistake import Mistake, mistakes_at
from bridge.spark.flow.reach import directory_of_tasks
from bridge.spark.flow.sink import ARCHIVE, DEAD_LETTERS, MQ, MQTT, FormatRoute


def destination_options(
    name: str, config: PipelineConfig, to: Destination, environment: PipelineEnvironment, directory: Path
) -> dict[str, dict[str, str]]:
    """Return the options of the destinations of a section but for formats of Spark's, by kind, as `routes_of` has them."""
    text = None if to.mq is None else to.mq.queue or to.mq.topic
    routes = {DEAD_LETTERS: dead_letter_options(name, config, environment, named=text is None or bool(Template(text).names))}
    if to.mq is not None:
        routes[MQ] = environment.queue_manager | {"persistence": to.mq.persistence}
    if to.mqtt is not None:
        routes[MQTT] = broker_options(to, environment) | {"deadLetter": _refused(config, environment, directory)}
    if to.archive is not None:
        routes[ARCHIVE] = {"path": str(to.archive.absolute())}
    return routes


def broker_options(to: Destination, environment: PipelineEnvironment) -> dict[str, str]:
    """Return the options of a destination at a broker."""
    return environment.broker(to.link) | {"qos": str(to.qos), "retain": str(to.retain).lower()}


def format_routes(spark: SparkSession, to: Destination, section: str = "to") -> list[FormatRoute]:
    """Return the destination that a format of Spark's writes to. Raises Mistake for a format that Spark does not have."""
    if to.format is None:
        return []
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().conf()
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(to.format, conf)
    except Py4JJavaError as error:
        expected = "a format that this Spark has (--packages brings more)"
        raise Mistake((section, "format"), expected, repr(to.format)) from error
    secrets = {name: str(file) for name, file in to.secrets.items()}
    options = to.options
    if to.path is not None:
        options = options | {"path": to.path if isinstance(to.path, str) else str(to.path.absolute())}
    return [FormatRoute(to.format, options, secrets, to.partition_by, "" if section == "to" else section)]


def mapped_rows(
    made: DataFrame, name: str, config: PipelineConfig, environment: PipelineEnvironment, directory: Path
) -> tuple[DataFrame, dict[str, dict[str, str]]]:
    """Return the rows as the mapping of a pipeline makes them, and the options of where it says that they go."""
    mapping, queue_manager = _mapping(config, environment)
    assert config.mapping is not None
    with mistakes_at(("mapping",), "a mapping"):
        rule_of(config.mapping, mapping, queue_manager)
    place = "select" if "select" in config.model_fields_set else "mapping"
    with mistakes_at((place,), f"columns that mapping {config.mapping} takes"):
        frame = mapped(made, config.mapping, mapping, queue_manager)
    if isinstance(mapping, ToMqMapping):
        to = mapping.destination
        dead_letters = dead_letter_options(name, config, environment, named=bool(Template(to.queue or to.topic or "").names))
        # What the mapping refuses is in the unit of work of the others.
        refused = {"refused": dead_letters["queue"]} if "queue" in dead_letters else {}
        return frame, {DEAD_LETTERS: dead_letters, MQ: environment.queue_manager | refused}
    dead_letters = dead_letter_options(name, config, environment, named=False)
    options = environment.broker(mapping.destination.link) | {"deadLetter": _refused(config, environment, directory)}
    return frame, {DEAD_LETTERS: dead_letters, MQTT: options}


def _mapping(config: PipelineConfig, environment: PipelineEnvironment) -> tuple[AnyMapping, str]:
    """Return the mapping of a pipeline, and the name of the queue manager, which is in its hop mark."""
    assert environment.file is not None and config.mapping is not None  # a pipeline comes from a file
    try:
        configuration = load(environment.file)
    except ConfigurationError as error:
        raise Mistake(("mapping",), f"the name of a mapping; the file has mistakes now: {error}") from error
    if config.mapping not in configuration.mappings:
        raise Mistake(("mapping",), "the name of a mapping, which is not in the file any more")
    return configuration.mappings[config.mapping], configuration.queue_manager.name


def _refused(config: PipelineConfig, environment: PipelineEnvironment, directory: Path) -> str:
    """Return the directory where publications are left that the broker refuses."""
    given = config.dead_letters
    if given.format is not None or given.mqtt is not None:
        return str(directory / LEFT)
    return str(given.archive or directory_of_tasks(environment, directory) / "refused")


def dead_letter_options(
    name: str, config: PipelineConfig, environment: PipelineEnvironment, *, named: bool
) -> dict[str, str]:
    """Return where bad payloads and refused rows go, as `dead_letter_sink_of` has it.

    `named`: the rows name their destinations.
    """
    own = {"pipeline": name, "named": str(named).lower()}
    given = config.dead_letters
    if given.archive is not None:
        return own | {"archive": str(given.archive.absolute())}
    if given.format is not None or given.mqtt is not None:
        return own | {"archive": str(environment.directory_of(name, config) / LEFT)}
    return own | environment.queue_manager | {"queue": given.queue_name or environment.dead_letter_queue}
