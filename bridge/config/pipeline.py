"""Pipelines, which move messages or publications through Spark SQL: sources, destinations, and the Spark that they run on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from bridge.config import values
from bridge.config.link import LOCAL, LinkReference
from bridge.config.mapping import Name, PersistenceWord, TemplateText
from bridge.config.tls import ClientTlsConfig
from bridge.config.values import FilePath, ObjectName, Section, Truth, without_empty

#: Names of settings whose values are secret.
_SECRET_SETTING = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)

MASTER = r"local(?:\[[0-9*]+(?:,[0-9]+)?\])?|spark://[^ /]+|yarn|k8s://[^ ]+"
#: A package as `spark-submit --packages` takes it.
PACKAGE = r"[^\s:,]+:[^\s:,]+:[^\s:,]+"
MOST_ADDRESS = 264


SettingName = Annotated[str, values.text(r"spark\.[^\s=]{1,200}", "the name of a setting of Spark, which begins with spark.")]


class SparkConfig(Section):
    """Spark, on which `mqbridge pipeline run` runs the pipelines."""

    master: Annotated[str, values.text(MASTER, "local, local[N], spark://host:port, yarn or k8s://...")] | None = None
    """Where Spark runs; None: in a process of this machine, on all cores. `--master` wins."""
    conf: dict[SettingName, Annotated[str, values.setting()]] = Field(default_factory=dict)
    """Settings of Spark by name, such as `spark.executor.memory: 2g`. `--conf` wins."""
    packages: list[Annotated[str, values.text(PACKAGE, "group:artifact:version")]] = Field(default_factory=list)
    """Maven packages that Spark fetches (spark.jars.packages)."""
    jars: list[FilePath] = Field(default_factory=list)
    """Jars for driver and executors (spark.jars)."""
    listener: Annotated[str, values.text(r"[^()\s,]{1,255}\([0-9]{1,5}\)", "host(port)")] | None = None
    """Where workers on other machines reach the embedded queue manager; None: `queue_manager.listener`, as it is bound."""
    user: (
        Annotated[str, values.text(r"[!-9;-~]{1,1024}", "a user name of ASCII characters without blanks and :")] | None
    ) = None
    """The user that pipelines connect as to a listener with a password file."""
    password_file: FilePath | None = None
    """File whose first line is the password of `user`; at the same path on each worker."""
    tls: ClientTlsConfig | None = None
    """TLS to the listener, for one that has it; its files are at the same paths on each worker."""
    shared: list[FilePath] = Field(default_factory=list)
    """Directories of a file system that this machine and all workers have at the same path (NFS). On a cluster, archives,
    reference tables, and checkpoints of a SELECT with state have to be below one of them."""

    @model_validator(mode="before")
    @classmethod
    def _empty_lists(cls, data: Any) -> Any:
        return without_empty(data, "conf", "packages", "jars", "shared")

    @field_validator("conf")
    @classmethod
    def _no_secret(cls, conf: Mapping[str, str]) -> Mapping[str, str]:
        for name in conf:
            if is_secret(name):
                raise values.refusal(
                    "no secret in this file, because too many read it (write it into spark-defaults.conf of SPARK_CONF_DIR,"
                    " or name a credential provider)",
                    name,
                )
        return conf

    @model_validator(mode="after")
    def _user_and_password(self) -> SparkConfig:
        if self.password_file is not None and self.user is None:
            raise values.refusal("the name of the user whose password it is", "user")
        if self.user is not None and self.password_file is None:
            raise values.refusal("a file whose first line is the password of user", "password_file")
        return self


def is_secret(setting: str) -> bool:
    """Return whether a setting of Spark is one whose value nobody is to see, by its name."""
    return bool(_SECRET_SETTING.search(setting)) and not setting.endswith((".path", ".file", ".provider"))


def is_remote(master: str | None) -> bool:
    """Return whether a master has its tasks run elsewhere than in the driver's process."""
    return master is not None and not master.startswith("local")


ColumnName = Annotated[str, values.text(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a column")]

FormatName = Annotated[str, values.text(r"[A-Za-z][A-Za-z0-9_.-]{0,255}", "the name of a format, such as jdbc")]
OptionText = Annotated[str, values.text(r"[^\x00]*", "text")]
#: Names of options that Spark redacts, for what they say is for nobody's eyes.
_SECRET_OPTION = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
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
        if secret := sorted(name for name in self.options if _SECRET_OPTION.search(name)):
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
