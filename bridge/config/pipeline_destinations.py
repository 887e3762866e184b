"""Destinations of pipelines: what `to`, `late` and `dead_letters` may say, by one rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationInfo, model_validator

from bridge.config import values
from bridge.config.attributes import PersistenceWord
from bridge.config.link import LOCAL, LinkReference
from bridge.config.mapping import TemplateText
from bridge.config.section import ObjectName, Section, Truth, without_empty

ColumnName = Annotated[str, values.text(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a column")]

FormatName = Annotated[str, values.text(r"[A-Za-z][A-Za-z0-9_.-]{0,255}", "the name of a format, such as jdbc")]
OptionText = Annotated[str, values.text(r"[^\x00]*", "text")]
#: Names of options that Spark redacts, for what they say is for nobody's eyes.
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
OptionName = Annotated[str, values.text(r"[A-Za-z][A-Za-z0-9_.]{0,255}", "the name of an option, such as partitions")]
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: In front of a path of one of Spark's file systems: `s3a://bucket/rows`, `hdfs:/rows`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
#: Keys that are written a level too high.
SIDES = {key: f"mq: {{{key}: ...}}, because a pipeline says which side it means" for key in ("queue", "topic")}
#: Keys that say what kind of destination it is, as the file has them.
KINDS = ("mq", "mqtt", "archive", "format")


def _local_path() -> values.Kind:
    """Make the kind that accepts a path of this machine, and no URI: pathlib would make a directory `s3a:` of one."""
    path = values.path()

    def check(value: object, info: ValidationInfo) -> object:
        if isinstance(value, str) and (scheme := _SCHEME.match(value)):
            raise values.refusal(f"a path of this machine, because {scheme[0]} is not supported yet")
        return path.func(value, info)  # type: ignore[call-arg]

    return values.Kind(check, schema={**path.schema, "not": {"pattern": f"^{_SCHEME.pattern}"}})


PipelinePath = Annotated[Path, _local_path()]


def _path_or_uri() -> values.Kind:
    """Make the kind that accepts a path of this machine, or a URI of one of Spark's file systems, which stays text."""
    path = values.path()

    def check(value: object, info: ValidationInfo) -> object:
        return value if isinstance(value, str) and _URI.match(value) else path.func(value, info)  # type: ignore[call-arg]

    return values.Kind(check, schema=path.schema)


class MqSink(Section):
    """Where rows are put as messages; without `queue` and `topic` to what the column of one of these names says."""

    queue: TemplateText | None = None
    """Name of a queue; `{name}` in it is a column."""
    topic: TemplateText | None = None
    """Topic string; `{name}` in it is a column."""
    persistence: Annotated[PersistenceWord, values.choice(PersistenceWord)] = "persistent"
    """MQMD.Persistence of the messages of rows that do not say it in a column `md`."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if self.queue is not None and self.topic is not None:
            raise values.refusal("one of queue: and topic:, or neither (then a column says it)")
        return self


class Destination(Section):
    """Where rows are written: `mq`, `mqtt`, `archive`, or a `format` of Spark's."""

    REFUSED: ClassVar[Mapping[str, str]] = SIDES

    mq: MqSink | None = None
    """A queue or topic of the queue manager: exactly once."""
    mqtt: TemplateText | None = None
    """Topic name at a broker, `{name}` in it is a column: at least once."""
    link: LinkReference = LOCAL
    """The link to that broker; `local` is the bridge itself, at its first channel."""
    qos: Annotated[int, values.integer(0, 2)] = 1
    """QoS of publications, where there is no column `qos`."""
    retain: Truth = False
    """Whether they are retained, where there is no column `retain`."""
    archive: PipelinePath | None = None
    """Directory of Parquet files date=YYYY-MM-DD/hour=HH/NAME.parquet (UTC, by the column `received` or `put_time`, else
    the time of the batch): exactly once."""
    format: FormatName | None = None
    """A format that Spark writes, such as jdbc, parquet, delta or kafka: at least once. (Delta knows a batch that comes
    again.) Its jars are named by `--packages` or `--jars`."""
    path: Annotated[Path | str, _path_or_uri()] | None = None
    """Where a format of files writes: a directory, or a URI of Spark's file systems."""
    options: dict[OptionName, OptionText] = Field(default_factory=dict)
    """Options of the format, by Spark's names."""
    secrets: dict[OptionName, PipelinePath] = Field(default_factory=dict)
    """Options of the format whose values are in files, such as `password`: they are read for each batch."""
    partition_by: list[ColumnName] = Field(default_factory=list, alias="partitionBy")
    """Columns by which a format of files makes directories."""

    @property
    def kinds(self) -> list[str]:
        """Return the keys of the kinds that it names."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "mq" in data and data["mq"] is None:
            data = {**data, "mq": {}}  # a column says where
        return without_empty(data, "mqtt", "archive")

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        for key in ("path", "options", "secrets", "partition_by"):
            if self.format is None and getattr(self, key):
                name = "partitionBy" if key == "partition_by" else key
                raise values.refusal(f"no {name}, which belongs to format:", name)
        if both := sorted(self.options.keys() & self.secrets.keys()):
            raise values.refusal("an option once, in options or in secrets", "secrets", both[0])
        if secret := sorted(name for name in self.options if _SECRET.search(name)):
            raise values.refusal("no secret in this file (name a file that has it under secrets:)", "options", secret[0])
        for key in ("link", "qos", "retain"):
            if self.mqtt is None and key in self.model_fields_set:
                raise values.refusal(f"no {key}, which belongs to mqtt:", key)
        return self


class PipelineDestination(Destination):
    """Where a pipeline writes each row: one or more of `mq`, `mqtt`, `archive` and a `format` of Spark's."""

    compact: Annotated[float, values.duration(1)] | None = None
    """How often the small files of the archive are joined, of hours that ended an hour ago or more: when the pipeline starts,
    and then again and again; None: only by `mqbridge pipeline compact`."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.kinds:
            raise values.refusal("one or more of mq:, mqtt:, archive: and format:")
        if self.archive is None and self.compact is not None:
            raise values.refusal("no compact, which belongs to archive:", "compact")
        return self


class LateConfig(Destination):
    """Where the messages go, as they came, that are in no result because they came too late: one destination."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.kinds) != 1:
            raise values.refusal("exactly one of mq:, mqtt:, archive: and format:")
        if self.mq is not None and self.mq.queue is None and self.mq.topic is None:
            raise values.refusal("a queue or a topic, because the columns name where the message came from", "mq")
        return self


class DeadLetterConfig(Destination):
    """Where rows go whose payload is bad, of which `select` cannot be made, or which a destination refuses.

    It is one destination; with none, the dead-letter queue of the queue manager.
    """

    REFUSED: ClassVar[Mapping[str, str]] = {"topic": SIDES["topic"]}

    queue: ObjectName | None = None
    """Short for mq: {queue: NAME}: the message as it came (or as it was to be put), behind an MQDLH with the reason."""
    archive: PipelinePath | None = None
    """A directory of Parquet files: the columns as they came (or were to be written), and `reason` in words."""

    @property
    def queue_name(self) -> str | None:
        """Return the queue that the section names."""
        return self.queue if self.mq is None else self.mq.queue

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.kinds) + (self.queue is not None) > 1:
            raise values.refusal("one of mq: (or queue:), mqtt:, archive: and format:")
        if self.mq is None:
            return self
        if self.mq.queue is None or "{" in self.mq.queue:
            raise values.refusal("a queue, because the message is behind an MQDLH there", "mq")
        if "persistence" in self.mq.model_fields_set:
            raise values.refusal("no persistence, because a dead letter keeps that of the message", "mq", "persistence")
        return self
