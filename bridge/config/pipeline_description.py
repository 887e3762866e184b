"""Pipelines in plain words, for `mqbridge check` and `mqbridge pipeline list`."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.config import values
from bridge.config.link import LOCAL
from bridge.config.pipeline import AVAILABLE_NOW, MqFlow, PipelineConfig, PipelineSource
from bridge.config.pipeline_destinations import Destination, PipelineDestination
from bridge.config.spark import SparkConfig

_PERSISTENCE = {"not-persistent": "not persistent", "as-queue": "as persistent as the queue says"}


def describe_pipeline(name: str, pipeline: PipelineConfig) -> list[str]:
    """Return a line on what a pipeline reads and writes, and how often, and below it what is not as by default."""
    state = "" if pipeline.enabled else " (not enabled)"
    if pipeline.destination is None:
        to = f"by mapping {pipeline.mapping}"
    else:
        to = f"to {' and '.join(_destinations(pipeline.destination))}"
    lines = [f"pipeline {name}{state}: from {_source(pipeline.source)} {to}, {_trigger(pipeline.trigger)}"]
    mq = None if pipeline.destination is None else pipeline.destination.mq
    if mq is not None and mq.persistence != "persistent":
        lines.append(f"  messages are {_PERSISTENCE[mq.persistence]}")
    if pipeline.payload != "json":
        lines.append(f"  payloads are {pipeline.payload}")
    lines += [f"  table {table} is {path}" for table, path in pipeline.tables.items()]
    if pipeline.changes is not None:
        what = values.listing(pipeline.changes.of, "and") if pipeline.changes.of else "rows"
        lines.append(f"  only changes of {what} by {values.listing(pipeline.changes.key, 'and')}")
    if pipeline.late is not None:
        lines.append(f"  what comes late goes to {' and '.join(_destinations(pipeline.late))}")
    letters = pipeline.dead_letters
    if letters.queue_name is not None or letters.kinds:
        lines.append(f"  bad payloads go to {letters.queue_name or ' and '.join(_destinations(letters))}")
    return lines


def describe_spark(spark: SparkConfig) -> list[str]:
    """Return a line on where pipelines run, where that is said, and below it what their tasks use there."""
    if spark == SparkConfig():
        return []
    lines = [f"pipelines run on Spark at {spark.master or 'this machine'}"]
    if spark.listener is not None:
        lines.append(f"  workers reach the queue manager at {spark.listener}")
    if spark.user is not None:
        lines.append(f"  as user {spark.user}, password in {spark.password_file} on each of them")
    if spark.conf:
        lines.append(f"  with {', '.join(f'{name}={value}' for name, value in spark.conf.items())}")
    if brought := [*spark.packages, *map(str, spark.jars)]:
        lines.append(f"  with {values.listing(brought, 'and')}")
    if spark.shared:
        lines.append(f"  workers have {values.listing(list(map(str, spark.shared)), 'and')}, too")
    return lines


def _source(source: PipelineSource) -> str:
    if source.mq is not None:
        return _flow(source.mq)
    return f"archive {source.archive}" if source.archive is not None else f"MQTT {source.mqtt}{_at(source.link)}"


def _flow(mq: MqFlow) -> str:
    return f"queue {mq.queue}" if mq.queue is not None else f"topic {mq.topic}"


def _destinations(to: Destination) -> Iterator[str]:
    if to.mq is not None:
        name = to.mq.queue or to.mq.topic
        yield f"{'queue' if to.mq.queue else 'topic'} {name}" if name else "the queue or topic that a column names"
    if to.mqtt is not None:
        yield f"MQTT {to.mqtt}{_at(to.link)} (at least once)"
    if to.archive is not None:
        compact = to.compact if isinstance(to, PipelineDestination) else None
        compacted = "" if compact is None else f" (compacted every {values.duration_text(compact)})"
        yield f"archive {to.archive}{compacted}"
    if to.format is not None:
        yield f"{to.format}{f' {to.path}' if to.path else ''} (at least once)"


def _at(link: str) -> str:
    return "" if link == LOCAL else f" at link {link}"


def _trigger(trigger: float | str) -> str:
    if trigger == AVAILABLE_NOW:
        return "until all that is there is done"
    return f"every {values.duration_text(float(trigger))}" if trigger else "batch after batch"
