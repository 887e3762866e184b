"""Pipelines: streams of messages or publications through Spark SQL, to queues, topics, brokers and tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from bridge.config import values
from bridge.config.link import LOCAL, LinkReference
from bridge.config.mapping import Name
from bridge.config.pipeline_destinations import (
    SIDES,
    ColumnName,
    DeadLetterConfig,
    LateConfig,
    OptionName,
    PipelineDestination,
    PipelinePath,
)
from bridge.config.section import ObjectName, Section, Truth, without_empty

PipelineName = Name
AVAILABLE_NOW = "availableNow"
ALL_OF_INPUT = "SELECT * FROM input"
PipelinePayload = Literal["json", "text", "bytes"]
FieldType = Literal[
    "string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "timestamp", "date"
]
"""Types of Spark SQL that a field of a JSON payload may have to be of."""


TopicText = Annotated[str, values.text(r"[^\x00]{1,10240}", "a topic filter such as plant/+/telemetry/#")]
TableName = Annotated[
    str, values.text(r"(?![Ii][Nn][Pp][Uu][Tt]\Z)[A-Za-z_][A-Za-z0-9_]{0,63}", "a name for SQL (not input)")
]
FieldPath = Annotated[
    str, values.text(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*", "a field, such as temp or a.b[0]")
]
_TRIGGER = re.compile(r"([0-9.]+) *(milliseconds?|seconds?|minutes?|hours?)")
_UNITS = {"m": "ms", "s": "s", "h": "h"}
#: Keys that say what `payload` is, or look at it.
_PAYLOAD_READERS = frozenset(("payload", "schema", "select"))
_REFERENCE_SUFFIXES = (".csv", ".json", ".parquet")


def _trigger() -> values.Kind:
    """Make the kind that accepts the word availableNow, or a duration.

    The unit of a duration may be written in full, as Spark has it.
    """
    duration = values.duration(0)

    def check(value: object) -> object:
        if value == AVAILABLE_NOW:
            return value
        if isinstance(value, str) and (written := _TRIGGER.fullmatch(value)):
            unit = "min" if written[2].startswith("min") else _UNITS[written[2][0]]
            value = f"{written[1]} {unit}"
        try:
            return duration.func(value)  # type: ignore[call-arg]
        except ValueError as error:
            raise values.refusal(f"{AVAILABLE_NOW}, or a duration such as 5 seconds, 500 ms or 1 min") from error

    number = {"type": "number", "minimum": 0, "maximum": values.DAY}
    text = {"type": "string", "pattern": r"^(availableNow|[0-9.]+ *(ms|s|min|h|(millisecond|second|minute|hour)s?))$"}
    return values.Kind(check, schema={"anyOf": [number, text]})


#: Options of the sources mq and mqtt that other keys of the file say -> these keys.
_SAID_ELSEWHERE = {
    **dict.fromkeys(("queue", "topic", "subscription"), "from"),
    "maxMessagesPerTrigger": "batch",
    "spool": "checkpoint",
    **dict.fromkeys(
        (
            "config", "type", "queueManager", "dataDirectory", "listener", "user", "passwordFile", "passwordVariable",
            "library", "mode", "ccdtUrl", "channel", "connections", "applicationName", "keyRepository", "cipherSpec",
            "certificateLabel", "peerName",
        ),
        "queue_manager (or spark)",
    ),
    **dict.fromkeys(
        (
            "link", "host", "port", "version", "keepAlive", "inFlight", "tls", "tlsCaFile", "tlsCertificateFile",
            "tlsKeyFile", "tlsKeyPasswordVariable", "tlsCheckHostName",
        ),
        "links",
    ),
}  # fmt: skip
_SAID_BY_PLAIN_NAME = {name.lower(): (name, key) for name, key in _SAID_ELSEWHERE.items()}


class MqFlow(Section):
    """The queue manager's side of a pipeline: a queue or a topic."""

    queue: ObjectName | None = None
    """Name of a queue."""
    topic: TopicText | None = None
    """Topic string, with MQ's wildcards. The first run makes the durable subscription MQBRIDGE.PIPELINE.NAME, which keeps
    what is published between runs; DELETE SUB('MQBRIDGE.PIPELINE.NAME') ends it, for a pipeline that is no more or has
    another topic now."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.queue is None) == (self.topic is None):
            raise values.refusal("exactly one of queue: and topic:")
        return self


class PipelineSource(Section):
    """Where a pipeline reads: exactly one of `mqtt`, `mq` and `archive`."""

    REFUSED: ClassVar[Mapping[str, str]] = SIDES

    mqtt: TopicText | None = None
    """Topic filter at a broker."""
    link: LinkReference = LOCAL
    """The link to that broker; `local` is the bridge itself, at its first channel."""
    mq: MqFlow | None = None
    """A queue or a topic of the queue manager. What is read from a queue is removed when its batch is done."""
    archive: PipelinePath | None = None
    """Directory of Parquet files: the archive of the bridge, or what another pipeline has written."""
    options: dict[OptionName, Annotated[str, values.setting()]] = Field(default_factory=dict)
    """More options of the source `mq` or `mqtt`, as Spark programs have them: partitions, maxBytesPerTrigger, failOnDataLoss,
    browse (`mq`; true leaves what is read on its queue); clientId, qos, session, spoolLimit (`mqtt`). `clientId` names the
    session at the broker whatever the pipeline is called, and is for this pipeline alone."""

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, data: Any) -> Any:
        return without_empty(data, "mqtt", "mq", "archive", "options")

    @model_validator(mode="after")
    def _options_of_the_source(self) -> Self:
        for name in self.options:
            if self.archive is not None:
                raise values.refusal("no options, which belong to mq: and mqtt:", "options")
            if (said := _SAID_BY_PLAIN_NAME.get(name.replace("_", "").lower())) is not None:
                raise values.refusal(f"no {said[0]}, because the key {said[1]} of the file says it", "options", name)
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(one is not None for one in (self.mqtt, self.mq, self.archive)) != 1:
            raise values.refusal("exactly one of mqtt:, mq: and archive:")
        if self.mqtt is None and "link" in self.model_fields_set:
            raise values.refusal("no link, which belongs to mqtt:", "link")
        return self


class WatermarkConfig(Section):
    """Event time: the column that has it, and how late a row may come."""

    column: ColumnName
    """A column of `input` of the type timestamp, or a field of the payload that `schema` declares as one, which is a column
    of `input` then."""
    delay: Annotated[float, values.duration(0)]
    """How late a row may come and still count in its window."""


class ChangesConfig(Section):
    """Report by exception: of the rows that `select` makes, only those that differ from the last that passed."""

    key: list[ColumnName]
    """Columns that say what is reported on: rows of different keys are not compared."""
    of: list[ColumnName] = Field(default_factory=list)
    """Columns that are compared; none: all but `key` and `order`."""
    order: ColumnName | None = None
    """Column by which rows of a batch are put in order; None: in the order that they came in, where they kept it."""
    deadband: Annotated[float, values.number(0)] = 0.0
    """Numbers count as changed when they differ from what was last reported by more than this."""

    @model_validator(mode="after")
    def _some_key(self) -> Self:
        if not self.key:
            raise values.refusal("at least one column", "key")
        return self


class PipelineConfig(Section):
    """A pipeline: a source, a SELECT of Spark SQL, and one or more destinations, or a mapping that says where."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["mapping"], "properties": {"mapping": {"type": "string"}, "to": {"type": "null"}}},
                {"required": ["select", "to"], "properties": {"mapping": {"type": "null"}, "to": {"type": "object"}}},
            ]
        }
    )

    enabled: Truth = True
    """false: `mqbridge pipeline run` without names leaves it out."""
    source: PipelineSource = Field(alias="from")
    """Where it reads."""
    payload: Annotated[PipelinePayload, values.choice(PipelinePayload)] = "json"
    """What the column `payload` is: `json` (payload:temp::double), `text` in UTF-8, or `bytes`. (Where neither this nor
    `schema` is there, and `select` does not read the column, nobody looks whether it is JSON: `bytes` is the default.)"""
    fields: dict[FieldPath, Annotated[FieldType, values.choice(FieldType)]] = Field(default_factory=dict, alias="schema")
    """Fields of JSON payloads and their types. What has another type is a dead letter, as is what `::` cannot cast."""
    tables: dict[TableName, PipelinePath] = Field(default_factory=dict)
    """Reference tables by the name that `select` has for them: files or directories .csv, .json (an object to a line) or
    .parquet. They are read when the pipeline starts."""
    watermark: Annotated[
        Annotated[float, values.duration(0), Tag("one")] | Annotated[WatermarkConfig, Tag("each")],
        Discriminator(lambda data: "each" if isinstance(data, Mapping | WatermarkConfig) else "one"),
    ] = 10.0
    """How late a message may come by `received` or `put_time` and still count in its window; or by the column that
    `{column: ..., delay: ...}` names. A WATERMARK clause of `select` takes its place."""
    select: Annotated[str, values.text(r"[\s\S]*\S[\s\S]*", "a SELECT of Spark SQL")] = ALL_OF_INPUT
    """What is made of it: a SELECT of Spark SQL over the table `input`. Only with `mapping` it has this default."""
    changes: ChangesConfig | None = None
    """Report by exception; None: every row."""
    mapping: Name | None = None
    """The mapping of this file that makes messages or publications of the rows, and says where they go; None: `to` says it.
    What it takes is `from` of the pipeline, its own only says with which topics. It has to be `enabled: false`, lest the
    service move the same messages."""
    destination: PipelineDestination | None = Field(default=None, alias="to")
    """Where it writes; None: where the mapping says."""
    dead_letters: DeadLetterConfig = Field(default_factory=DeadLetterConfig)
    """Where bad payloads go, and rows that are refused."""
    late: LateConfig | None = None
    """Where messages go that came too late for the windows (or groups by time) of `select`; None: they are counted only."""
    trigger: Annotated[float | Literal["availableNow"], _trigger()] = 1.0
    """How often a batch begins; `availableNow`: it ends when all that is there is done."""
    batch: Annotated[int, values.integer(1, 1_000_000)] = 10_000
    """Messages of a batch at most; an archive is read file by file."""
    checkpoint: PipelinePath | None = None
    """Directory of its own, which keeps how far it is; None: pipelines/NAME in the data directory of the embedded queue
    manager."""

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        data = without_empty(data, "schema", "tables", "dead_letters")
        if isinstance(data, Mapping) and data.get("mapping") is not None and data.keys().isdisjoint(_PAYLOAD_READERS):
            data = {**data, "payload": "bytes"}
        return data

    @model_validator(mode="after")
    def _mapping_or_destination(self) -> Self:
        if self.mapping is None:
            if self.destination is None:
                raise values.refusal("where it writes: to: (or mapping:, which says it)", "to")
            if "select" not in self.model_fields_set:
                raise values.refusal("a SELECT of Spark SQL (only a pipeline with mapping: may leave it out)", "select")
        elif self.destination is not None:
            sentence = "no to: beside mapping:, which says where its messages go (another pipeline can write an archive)"
            raise values.refusal(sentence, "to")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.fields and self.payload != "json":
            raise values.refusal("no schema, because payload is not json", "schema")
        for name, path in self.tables.items():
            if path.suffix not in _REFERENCE_SUFFIXES:
                suffixes = values.listing(list(_REFERENCE_SUFFIXES), "or")
                raise values.refusal(f"a path that ends with {suffixes}", "tables", name)
        return self
