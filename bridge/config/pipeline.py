"""Pipelines, which process messages with Spark SQL: sources, destinations and Spark settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, PrivateAttr, Tag, field_validator, model_validator

from bridge.config import values
from bridge.config.link import LOCAL, LinkReference
from bridge.config.mapping import AllowedName, ConfiguredNames, DeadLettersFull, Name, PersistenceWord, TemplateText
from bridge.config.record import RecordConfig, RecordPayloadConfig
from bridge.config.tls import ClientTlsConfig
from bridge.config.values import FilePath, ObjectName, SecretPath, Section, Truth

#: Names of settings with secret values.
_SECRET_SETTING = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)

MASTER = r"local(?:\[[0-9*]+(?:,[0-9]+)?\])?|spark://[^ /]+|yarn|k8s://[^ ]+"
#: Maven coordinates, as in `spark-submit --packages`.
PACKAGE = r"[^\s:,]+:[^\s:,]+:[^\s:,]+"


SettingName = Annotated[
    str, values.text(r"spark\.[^\s=]{1,200}", "the name of a setting of Spark, which begins with spark.")
]


class SparkConfig(Section):
    """The Spark on which `mqbridge pipeline run` runs the pipelines."""

    master: Annotated[str, values.text(MASTER, "local, local[N], spark://host:port, yarn or k8s://...")] | None = None
    """Master URL of Spark. None: a local process that uses all cores. `--master` takes precedence."""
    conf: dict[SettingName, Annotated[str, values.setting]] = Field(default_factory=dict)
    """Spark settings by name, such as `spark.executor.memory: 2g`. `--conf` takes precedence."""
    packages: list[Annotated[str, values.text(PACKAGE, "group:artifact:version")]] = Field(default_factory=list)
    """Maven packages that Spark downloads (spark.jars.packages)."""
    jars: list[FilePath] = Field(default_factory=list)
    """Jars for the driver and the executors (spark.jars)."""
    listener: Annotated[str, values.text(r"[^()\s,]{1,255}\([0-9]{1,5}\)", "host(port)")] | None = None
    """Address of the embedded queue manager, if `mqbridge pipeline run` with a cluster runs on another machine than the
    bridge. Workers do not connect to it. None: the data directory on this machine."""
    user: (
        Annotated[str, values.text(r"[!-9;-~]{1,1024}", "a user name of ASCII characters without blanks and :")] | None
    ) = None
    """User name of pipelines at a listener with a password file."""
    password_file: SecretPath | None = None
    """File whose first line is the password of `user`."""
    tls: ClientTlsConfig | None = None
    """TLS of the connections to a TLS listener."""
    shared: list[FilePath] = Field(default_factory=list)
    """Directories that this machine and all workers share at the same path (NFS). On a cluster, archives, reference tables,
    checkpoints of a stateful SELECT, and checkpoints of pipelines that put batches of more than 5,000 messages must be below
    one of them."""

    @field_validator("conf")
    @classmethod
    def _no_secret(cls, conf: Mapping[str, str]) -> Mapping[str, str]:
        for name in conf:
            if is_secret(name):
                raise values.refusal(
                    "no secret in this file, because this file is not secret (write it to spark-defaults.conf of"
                    " SPARK_CONF_DIR, or name a credential provider)",
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
    """Return whether the name of a Spark setting indicates a secret value."""
    return bool(_SECRET_SETTING.search(setting)) and not setting.endswith((".path", ".file", ".provider"))


def is_remote(master: str | None) -> bool:
    """Return whether a master runs tasks outside the driver's process."""
    return master is not None and not master.startswith("local")


ColumnName = Annotated[str, values.text(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of a column")]

FormatName = Annotated[str, values.text(r"[A-Za-z][A-Za-z0-9_.-]{0,255}", "the name of a format, such as jdbc")]
OptionText = Annotated[str, values.text(r"[^\x00]*", "text")]
#: Names of options whose values Spark redacts because they are secret.
_SECRET_OPTION = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
OptionName = Annotated[str, values.text(r"[A-Za-z][A-Za-z0-9_.]{0,255}", "the name of an option, such as partitions")]
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
#: URI scheme of one of Spark's file systems: `s3a://bucket/rows`, `hdfs:/rows`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
#: Keys that users may write one level too high.
SIDES = {key: f"mq: {{{key}: ...}}, because a pipeline specifies the side" for key in ("queue", "topic")}
#: Formats of Spark that write files.
_FILE_FORMATS = frozenset(("parquet", "orc", "json", "csv", "text", "avro"))


def _local_path() -> values.ValueKind:
    """Accept a local path, but no URI, which pathlib would turn into a directory `s3a:`."""
    path = values.path

    def check(value: object) -> object:
        if isinstance(value, str) and (scheme := _SCHEME.match(value)):
            raise values.refusal(f"a path of this machine, because {scheme[0]} is not supported yet")
        return path.func(value)  # type: ignore[call-arg]

    return values.ValueKind(check, schema={**path.schema, "not": {"pattern": f"^{_SCHEME.pattern}"}})


PipelinePath = Annotated[Path, _local_path()]
_SecretPath = Annotated[SecretPath, _local_path()]


def _path_or_uri() -> values.ValueKind:
    """Accept a local path, or a URI of one of Spark's file systems, which remains text."""
    path = values.path

    def check(value: object) -> object:
        return str(value) if isinstance(value, str) and _URI.match(value) else path.func(value)  # type: ignore[call-arg]

    return values.ValueKind(check, schema=path.schema)


class MqSink(Section):
    """The queue or topic to which rows are put. Without `queue` and `topic`, the column of that name specifies it."""

    queue: TemplateText | None = None
    """Name of a queue. `{name}` is the value of a column."""
    topic: TemplateText | None = None
    """Topic string. `{name}` is the value of a column."""
    persistence: Annotated[PersistenceWord, values.choice(PersistenceWord)] = "persistent"
    """MQMD.Persistence of messages whose rows do not specify it in a column `md`."""
    record: RecordConfig | None = None
    """Write each row as a COBOL record. Its columns are the fields of the record. Rows that do not fit go to the dead
    letters. None: a message is the column `body` or `payload`, or a JSON object."""

    @property
    def is_chosen(self) -> bool:
        """Whether a row chooses the queue or topic."""
        return "{" in (self.queue or self.topic or "{")

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if self.queue is not None and self.topic is not None:
            raise values.refusal("one of queue: and topic:, or neither (then a column specifies it)")
        return self


class PipelineDestination(Section):
    """The destinations of all rows of a pipeline: one or more of `mq`, `mqtt`, `archive` and a `format` of Spark."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        **SIDES,
        "compact": "no compact, because pipelines no longer merge small files (write Delta and run OPTIMIZE, or rewrite old"
        " hours with a batch job, as docs/how-to/pipelines.md shows)",
    }

    mq: MqSink | None = None
    """A queue or topic of the queue manager, with exactly-once delivery."""
    mqtt: TemplateText | None = None
    """Topic name at a broker, with at-least-once delivery. `{name}` is the value of a column."""
    link: LinkReference = LOCAL
    """Link to that broker. `local`: the bridge itself, via its first channel."""
    qos: Annotated[int, values.integer(0, 2)] = 1
    """QoS of publications, unless there is a column `qos`."""
    retain: Truth = False
    """Whether publications are retained, unless there is a column `retain`."""
    archive: PipelinePath | None = None
    """Directory of Parquet files date=YYYY-MM-DD/hour=HH/NAME.parquet, written exactly once. Date and hour are in UTC, from
    the column `received` or `put_time`, otherwise from the time of the batch."""
    format: FormatName | None = None
    """A Spark output format. File formats (parquet, orc, json, csv, text, avro) at a path of a file system, and delta, are
    written exactly once. Others, such as jdbc or kafka, and files at a URI receive a batch at least once. Specify jars with
    `--packages` or `--jars`."""
    path: Annotated[Path | str, _path_or_uri()] | None = None
    """Output path of a file format: a directory, or a URI of Spark's file systems."""
    options: dict[OptionName, OptionText] = Field(default_factory=dict)
    """Options of the format, by Spark's names."""
    secrets: dict[OptionName, _SecretPath] = Field(default_factory=dict)
    """Options of the format whose values are secret, such as `password` -> file with the value. Read for each batch."""
    partition_by: list[ColumnName] = Field(default_factory=list, alias="partitionBy")
    """Columns by which a file format partitions its output into directories."""

    @property
    def chooses_local_topic(self) -> bool:
        """Whether a row chooses the topic at the bridge itself."""
        return self.link == LOCAL and "{" in (self.mqtt or "")

    @property
    def writes_files(self) -> bool:
        """Whether the format writes files on a file system."""
        return self.format in _FILE_FORMATS and isinstance(self.path, Path)

    @property
    def writes_format_once(self) -> bool:
        """Whether the format receives each batch exactly once."""
        return self.writes_files or self.format == "delta"

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "mq" in data and data["mq"] is None:
            return {**data, "mq": {}}  # a column names the queue or topic
        return data

    @property
    def irrelevant(self) -> tuple[str, ...]:
        return () if self.mqtt is not None else ("link", "qos", "retain")

    @model_validator(mode="after")
    def _of_its_kind(self) -> Self:
        if self.mq is None and self.mqtt is None and self.archive is None and self.format is None:
            raise values.refusal("one or more of mq:, mqtt:, archive: and format:")
        for key in ("path", "options", "secrets", "partition_by"):
            if self.format is None and getattr(self, key):
                name = "partitionBy" if key == "partition_by" else key
                raise values.refusal(f"no {name}, which belongs to format:", name)
        if both := sorted(self.options.keys() & self.secrets.keys()):
            raise values.refusal("an option once, in options or in secrets", "secrets", both[0])
        if secret := sorted(name for name in self.options if _SECRET_OPTION.search(name)):
            raise values.refusal(
                "no secret in this file (name a file that has it under secrets:)", "options", secret[0]
            )
        for key in self.irrelevant:
            if key in self.model_fields_set:
                raise values.refusal(f"no {key}, which belongs to mqtt:", key)
        return self


class LateConfig(Section):
    """The destination of late messages, which no result includes: `mq` or `archive`. They are written as they arrived.

    A message is late if the last window that it belongs to had ended, by the watermark, when its batch began.
    """

    REFUSED: ClassVar[Mapping[str, str]] = SIDES

    mq: MqSink | None = None
    """A queue or topic of the queue manager."""
    archive: PipelinePath | None = None
    """Directory of Parquet files, as `to.archive`, with a column `watermark`."""
    window: Annotated[float, values.duration(0)]
    """Length, in seconds, of the windows of `select`: that of `window(...)` or the gap of `session_window(...)`. 0 if
    `select` groups or joins by the time itself."""
    slide: Annotated[float, values.duration(0.001)] | None = None
    """Interval, in seconds, at which sliding windows begin. None: windows do not overlap."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.mq is None) == (self.archive is None):
            raise values.refusal("exactly one of mq: and archive:")
        if self.mq is not None and self.mq.queue is None and self.mq.topic is None:
            raise values.refusal("a queue or a topic, because the columns contain the source of the message", "mq")
        if self.mq is not None and self.mq.record is not None:
            raise values.refusal("no record, because late messages are written as they arrived", "mq", "record")
        return self


class DeadLetterConfig(Section):
    """The destination of messages with an invalid payload, and of rows that a mapping rejects: `queue` or `archive`.

    Default: the dead-letter queue of the queue manager.
    """

    queue: ObjectName | None = None
    """Queue for the message as received (or as it would have been put), after an MQDLH with the reason."""
    archive: PipelinePath | None = None
    """Directory of Parquet files with the columns as received (or as they would have been written), and a column `reason`
    with the reason as text."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.queue is not None and self.archive is not None:
            raise values.refusal("one of queue: and archive:")
        return self


PipelineName = Name
AVAILABLE_NOW = "availableNow"
PipelinePayload = Literal["json", "text", "bytes"]
FieldType = Literal["string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "timestamp", "date"]
"""Types of Spark SQL for fields of a JSON payload."""


TopicText = Annotated[str, values.text(r"[^\x00]{1,10240}", "a topic filter such as plant/+/telemetry/#")]
TableName = Annotated[
    str, values.text(r"(?![Ii][Nn][Pp][Uu][Tt]\Z)[A-Za-z_][A-Za-z0-9_]{0,63}", "a name for SQL (not input)")
]
FieldPath = Annotated[
    str,
    values.text(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\])*", "a field, such as temp or a.b[0]"),
]
_TRIGGER = re.compile(r"([0-9.]+) *(milliseconds?|seconds?|minutes?|hours?)")
_UNITS = {"m": "ms", "s": "s", "h": "h"}
#: Keys that declare the type of `payload`, or may read it.
_PAYLOAD_READERS = frozenset(("payload", "schema", "select"))
_REFERENCE_SUFFIXES = (".csv", ".json", ".parquet")


def _trigger() -> values.ValueKind:
    """Accept the word availableNow, or a duration.

    The unit of a duration may be written in full, as in Spark.
    """
    duration = values.duration(0)

    def check(value: object) -> object:
        if value == AVAILABLE_NOW:
            return value
        if isinstance(value, str) and (match := _TRIGGER.fullmatch(value)):
            unit = "min" if match[2].startswith("min") else _UNITS[match[2][0]]
            value = f"{match[1]} {unit}"
        try:
            return duration.func(value)  # type: ignore[call-arg]
        except ValueError as error:
            raise values.refusal(f"{AVAILABLE_NOW}, or a duration such as 5 seconds, 500 ms or 1 min") from error

    number = {"type": "number", "minimum": 0, "maximum": values.DAY}
    text = {"type": "string", "pattern": r"^(availableNow|[0-9.]+ *(ms|s|min|h|(millisecond|second|minute|hour)s?))$"}
    return values.ValueKind(check, schema={"anyOf": [number, text]})


#: Options of the sources mq and mqtt that are set elsewhere in the file -> the key that sets them.
_SPECIFIED_ELSEWHERE = {
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
_SPECIFIED_BY_PLAIN_NAME = {name.lower(): (name, key) for name, key in _SPECIFIED_ELSEWHERE.items()}


class MqFlow(Section):
    """The source queue or topic of a pipeline in the queue manager."""

    queue: ObjectName | None = None
    """Name of a queue."""
    topic: TopicText | None = None
    """Topic string, with MQ's wildcards. The first run creates the durable subscription MQBRIDGE.PIPELINE.NAME, which stores
    publications between runs. After you remove the pipeline or change its topic, remove the subscription with DELETE
    SUB('MQBRIDGE.PIPELINE.NAME')."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.queue is None) == (self.topic is None):
            raise values.refusal("exactly one of queue: and topic:")
        return self


class PipelineSource(Section):
    """The source of a pipeline: exactly one of `mqtt`, `mq` and `archive`."""

    REFUSED: ClassVar[Mapping[str, str]] = SIDES

    mqtt: TopicText | None = None
    """Topic filter at a broker."""
    link: LinkReference = LOCAL
    """Link to that broker. `local`: the bridge itself, via its first channel."""
    mq: MqFlow | None = None
    """A queue or a topic of the queue manager. Messages of a queue are removed when their batch is complete."""
    archive: PipelinePath | None = None
    """Directory of Parquet files: the archive of the bridge, or the output of another pipeline."""
    options: dict[OptionName, Annotated[str, values.setting]] = Field(default_factory=dict)
    """Further options of the source `mq` or `mqtt`, as in Spark programs: columns, partitions, maxBytesPerTrigger,
    spoolLimit, failOnDataLoss, selector (`mq`), clientId, qos, session (`mqtt`). `columns` names the columns that
    `select` reads, which makes the pipeline faster. `clientId` names the session at the broker, independently of the
    pipeline's name. No other pipeline may use it."""

    @model_validator(mode="after")
    def _options_of_the_source(self) -> Self:
        for name in self.options:
            if self.archive is not None:
                raise values.refusal("no options, which belong to mq: and mqtt:", "options")
            if (equivalent := _SPECIFIED_BY_PLAIN_NAME.get(name.replace("_", "").lower())) is not None:
                raise values.refusal(
                    f"no {equivalent[0]}, because the key {equivalent[1]} of the file specifies it", "options", name
                )
        return self

    @property
    def irrelevant(self) -> tuple[str, ...]:
        return () if self.mqtt is not None else ("link",)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.mqtt, self.mq, self.archive)) != 1:
            raise values.refusal("exactly one of mqtt:, mq: and archive:")
        if self.model_fields_set.intersection(self.irrelevant):
            raise values.refusal("no link, which belongs to mqtt:", "link")
        return self


class WatermarkConfig(Section):
    """Event time: its column, and the maximum delay of a row."""

    column: ColumnName
    """A column of `input` of type timestamp, or a field of the payload that `schema` declares as one and that thus becomes a
    column of `input`."""
    delay: Annotated[float, values.duration(0)]
    """Maximum delay, in seconds, with which a row still counts in its window."""


class ChangesConfig(Section):
    """Report by exception: of the rows that `select` returns, only those that differ from the last reported row."""

    key: list[ColumnName]
    """Columns that identify the reported object. Rows with different keys are not compared."""
    of: list[ColumnName] = Field(default_factory=list)
    """Columns to compare. Empty: all except those in `key` and `order`."""
    order: ColumnName | None = None
    """Column that determines the order of the rows of a batch. None: the order of arrival, if `select` preserves it."""
    deadband: Annotated[float, values.number(0)] = 0.0
    """Numbers count as changed if they differ from the last reported value by more than this."""

    @model_validator(mode="after")
    def _some_key(self) -> Self:
        if not self.key:
            raise values.refusal("at least one column", "key")
        return self


class PipelineConfig(Section):
    """A pipeline: a source, an optional SELECT of Spark SQL, and either one or more destinations or a mapping."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["mapping"], "properties": {"mapping": {"type": "string"}, "to": {"type": "null"}}},
                {"required": ["to"], "properties": {"mapping": {"type": "null"}, "to": {"type": "object"}}},
            ]
        }
    )

    enabled: Truth = True
    """Whether `mqbridge pipeline run` without names runs the pipeline."""
    source: PipelineSource = Field(alias="from")
    """The source."""
    payload: Annotated[
        Annotated[
            PipelinePayload,
            values.choice(PipelinePayload, " (or a mapping with type: record, and copybook:)"),
            Tag("one"),
        ]
        | Annotated[RecordPayloadConfig, Tag("each")],
        Discriminator(lambda data: "each" if isinstance(data, Mapping | RecordPayloadConfig) else "one"),
    ] = "json"
    """Type of the column `payload`: `json` (payload:temp::double), `text` in UTF-8, or `bytes`. A mapping with `type: record`
    is for COBOL records, as a column with the fields of the copybook and their types (payload.temp). If neither this key nor
    `schema` is set, and `select` does not read the column, the default is `bytes`, so payloads need not be JSON."""
    fields: dict[FieldPath, Annotated[FieldType, values.choice(FieldType)]] = Field(
        default_factory=dict, alias="schema"
    )
    """Fields of JSON payloads and their types. A message with a field of another type goes to the dead letters. A cast in
    `select` of a field that is not declared here stops the pipeline if it fails."""
    tables: dict[TableName, PipelinePath] = Field(default_factory=dict)
    """Reference tables by their name in `select`: files or directories .csv, .json (one object per line) or .parquet. They
    are read when the pipeline starts."""
    watermark: Annotated[
        Annotated[float, values.duration(0), Tag("one")] | Annotated[WatermarkConfig, Tag("each")],
        Discriminator(lambda data: "each" if isinstance(data, Mapping | WatermarkConfig) else "one"),
    ] = 10.0
    """Maximum delay, in seconds, with which a message still counts in its window. It is measured by `received` or `put_time`,
    or by the column in `{column: ..., delay: ...}`. A WATERMARK clause in `select` takes precedence."""
    select: Annotated[str, values.text(r"[\s\S]*\S[\s\S]*", "a SELECT of Spark SQL")] | None = None
    """A SELECT of Spark SQL over the table `input`. None: all rows with all columns."""
    changes: ChangesConfig | None = None
    """Report by exception. None: every row."""
    mapping: Name | None = None
    """A mapping of this file that converts the rows to messages or publications and determines their destination. None: `to`
    specifies the destination. The pipeline takes messages from its own `from`. That of the mapping only selects topics. The
    mapping must be `enabled: false`, so that the service does not move the same messages."""
    destination: PipelineDestination | None = Field(default=None, alias="to")
    """The destinations. None: the mapping determines the destination."""
    dead_letters: DeadLetterConfig = Field(default_factory=DeadLetterConfig)
    """Destination of messages with an invalid payload."""
    dead_letters_full: Annotated[DeadLettersFull, values.choice(DeadLettersFull)] | None = None
    """What happens to the dead letters of a batch if those of the pipeline on the queue have reached
    `limits.dead_letter_bytes`, or all messages of the bridge there `limits.dead_letter_total`. `pause`: the pipeline waits
    until an administrator has removed some of them. `discard`: they are lost and counted. None: `pause` if the pipeline reads
    a queue or an archive, and `discard` if it reads topics, because a device must not stop it. An archive has no limit."""
    late: LateConfig | None = None
    """Destination of messages that are too late for the windows (or groups by time) of `select`. None: they are only
    counted."""
    trigger: Annotated[float | Literal["availableNow"], _trigger()] = 1.0
    """Interval between batches, in seconds. `availableNow`: the pipeline ends when it has processed all available
    messages."""
    batch: Annotated[int, values.integer(1, 1_000_000)] = 10_000
    """Maximum number of messages per batch. An archive is read file by file."""
    checkpoint: PipelinePath | None = None
    """Directory for the progress of this pipeline only. None: pipelines/NAME in the data directory of the embedded queue
    manager."""
    allow: list[AllowedName] = Field(default_factory=list)
    """SYSTEM objects, and queues that the bridge uses itself, that a row may choose nevertheless. A row chooses a name with
    `{name}` in `to.mq`, `late.mq` and, at the bridge itself, `to.mqtt`, or with a column `queue` or `topic`. Rows that choose
    other such names go to the dead letters. `*` stands for any characters."""
    _names: ConfiguredNames = PrivateAttr(default=ConfiguredNames())

    @property
    def names(self) -> ConfiguredNames:
        """The names of the configuration that limit the names that a row may choose."""
        return self._names

    @property
    def payload_type(self) -> str:
        """The type of the payload."""
        return self.payload if isinstance(self.payload, str) else self.payload.type

    @property
    def records(self) -> dict[tuple[str, ...], RecordConfig]:
        """The records that the pipeline reads and writes, by their location."""
        records: dict[tuple[str, ...], RecordConfig] = {}
        if isinstance(self.payload, RecordPayloadConfig):
            records["payload",] = self.payload
        if self.destination is not None and self.destination.mq is not None and self.destination.mq.record is not None:
            records["to", "mq", "record"] = self.destination.mq.record
        return records

    def resolve(self, names: ConfiguredNames) -> None:
        """Store the names of the configuration if they matter."""
        sinks = [end.mq for end in (self.destination, self.late) if end is not None and end.mq is not None]
        if any(sink.is_chosen for sink in sinks):
            self._names = ConfiguredNames(queues=names.queues)

    @model_validator(mode="before")
    @classmethod
    def _empty_sections(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("mapping") is not None and data.keys().isdisjoint(_PAYLOAD_READERS):
            data = {**data, "payload": "bytes"}
        return data

    @model_validator(mode="after")
    def _mapping_or_destination(self) -> Self:
        if self.mapping is None:
            if self.destination is None:
                raise values.refusal("the destination: to: (or mapping:, which specifies it)", "to")
        elif self.allow:
            raise values.refusal("no allow with mapping:, which has its own", "allow")
        elif self.destination is not None:
            sentence = "no to: with mapping:, which specifies the destination (another pipeline can write an archive)"
            raise values.refusal(sentence, "to")
        return self

    @property
    def when_dead_letters_full(self) -> DeadLettersFull:
        """What happens to dead letters beyond the limits."""
        if self.dead_letters_full is not None:
            return self.dead_letters_full
        source = self.source
        return "pause" if source.archive is not None or (source.mq and source.mq.queue) else "discard"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.dead_letters_full is not None and self.dead_letters.archive is not None:
            raise values.refusal(
                "no dead_letters_full, because an archive of dead letters has no limit", "dead_letters_full"
            )
        if self.fields and self.payload != "json":
            raise values.refusal("no schema, because payload is not json", "schema")
        for name, path in self.tables.items():
            if path.suffix not in _REFERENCE_SUFFIXES:
                suffixes = values.listing(list(_REFERENCE_SUFFIXES), "or")
                raise values.refusal(f"a path that ends with {suffixes}", "tables", name)
        return self
