"""The destinations of a pipeline's batches: queues, topics, files and other formats of Spark, dead letters and late rows.

A destination writes the batch `epoch` under the name of a writer, which is the identifier of the query and a role. Queues,
files on a file system and Delta accept each (writer, epoch) once. All others receive a batch at least once.

A SELECT with a column `body` or `payload` of type string or binary specifies the message itself. Any other SELECT makes a
JSON object of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, TimestampType, VariantType

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.config.pipeline import MqSink, PipelineConfig, PipelineDestination
from bridge.config.record import RecordConfig
from bridge.mapping.chosen_names import CONTROL, ChosenNames, ObjectKind
from bridge.mapping.template import Placeholder, Template, TemplateError, template_of_columns
from bridge.mq.dead_letter_room import application_of_pipeline
from bridge.spark import MqDataSource, MqttDataSource, to_messages, to_publications
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.dead_letter_limits import DeadLetterLimits
from bridge.spark.environment import PipelineEnvironment
from bridge.spark.failures import column_missing
from bridge.spark.mapping import MESSAGE_TYPES, PUBLICATION_TYPES, with_archived_properties
from bridge.spark.mq.rows import unencodable
from bridge.spark.mq.writer import WRITE_OPTIONS, NameLimits, has_begun
from bridge.spark.options import OptionError
from bridge.spark.record import written_record
from bridge.spark.schema import MQ_SCHEMA, MQTT_SCHEMA, REFUSAL
from bridge.spark.staging import BatchFiles
from bridge.wire import cmqc

#: The column of `input` that contains the payload, and the column with its bytes.
PAYLOAD: Final = "payload"
BODY: Final = "body"
#: Columns with the time of arrival.
TIMES: Final = ("received", "put_time")
#: Columns that partition an archive.
DATE: Final = "date"
HOUR: Final = "hour"
#: The column with the reason of a dead letter.
REASON: Final = "reason"
#: Format and character set of a message that is a JSON object.
_TEXT: Final = {"format": cmqc.MQFMT_STRING.decode().strip(), "ccsid": 1208}
_MQ_PARTS: Final = ("md", "rfh2", "headers", "format", "ccsid", "encoding")
_MQTT_PARTS: Final = ("qos", "retain", "properties", *PROPERTY_COLUMNS, "payload_format", "expiry", "msg_id", "md")
#: Columns of `input` that do not become part of a written message.
_KNOWN: Final = frozenset((*MQ_SCHEMA.names, *MQTT_SCHEMA.names))
_DELTA: Final = "delta"

Rows = Callable[[DataFrame], DataFrame]


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    """A destination."""

    #: checks the columns and the options. Raises Mistake, TemplateError, OptionError, AnalysisException
    check: Callable[[DataFrame], object]
    #: writes a batch: rows, writer, epoch. Returns the number of rows that became dead letters instead
    write: Callable[[DataFrame, str, int], int]
    #: whether a repeated batch writes nothing twice
    exactly_once: bool = True
    #: whether it has begun to write a batch, which it then finishes as it began. None: unknown
    has_begun: Callable[[str, int], bool | None] = lambda writer, epoch: False
    #: whether it takes columns in addition to those of a source
    is_table: bool = False


class DeadLetterPlace(msgspec.Struct, frozen=True):
    """The place of the dead letters of a pipeline."""

    #: queue, or directory of an archive
    letters: str | Path
    #: the options of the sink `mq` for rows that must not be put
    options: dict[str, str]
    #: None for an archive
    limits: DeadLetterLimits | None


def dead_letter_place(name: str, config: PipelineConfig, environment: PipelineEnvironment) -> DeadLetterPlace:
    """Return the place of the dead letters of a pipeline."""
    if config.dead_letters.archive is not None:
        return DeadLetterPlace(config.dead_letters.archive, {}, None)
    queue = config.dead_letters.queue or environment.dead_letter_queue
    limits = DeadLetterLimits(
        name, queue, environment.queue_manager, environment.letter_counts, config.when_dead_letters_full
    )
    return DeadLetterPlace(queue, {"refused": queue, "refusedBy": application_of_pipeline(name)}, limits)


def sinks_of(config: PipelineConfig, environment: PipelineEnvironment, place: DeadLetterPlace) -> list[Sink]:
    """Return the destinations of a pipeline. Rows that must not be put go to the dead letters, a queue or an archive."""
    to = config.destination
    assert to is not None
    sinks: list[Sink] = []
    has_table = to.archive is not None or to.format is not None
    if to.mq is not None:
        sinks.append(_queue_sink(to.mq, config, environment, place, "to", all_used=has_table))
    if to.archive is not None:
        sinks.append(_archive_sink(to.archive))
    if to.format is not None:
        sinks.append(_table_sink(to, table_rows))
    if to.mqtt is not None:
        sinks.append(_topic_sink(to, config, environment, place, all_used=has_table))
    return sinks


def late_sink(config: PipelineConfig, environment: PipelineEnvironment, place: DeadLetterPlace) -> Sink:
    """Return the destination of late rows. In an archive, they have the column `watermark`."""
    late = config.late
    assert late is not None
    if late.archive is not None:
        return _archive_sink(late.archive, _source_rows)
    assert late.mq is not None
    # All columns of an archive are those of a late row. The SELECT has not chosen any of them.
    return _queue_sink(late.mq, config, environment, place, "late", all_used=True)


def dead_letter_sink(
    environment: PipelineEnvironment, place: DeadLetterPlace, code: int = cmqc.MQRC_FORMAT_ERROR
) -> Sink:
    """Return the destination of the dead letters of a pipeline: rows of a source with the column `reason`.

    `code` is the reason code in the MQDLH.
    """
    queue = place.letters
    if isinstance(queue, Path):
        return _archive_sink(queue, _source_rows)
    options = environment.queue_manager | environment.stage | place.options | {"queue": queue}

    def letters(frame: DataFrame) -> DataFrame:
        """Return messages as they arrived, which the writer puts after an MQDLH."""
        source = "queue" if "headers" in frame.columns else "topic"
        refusal = f.struct(
            f.lit(code).alias("reason"),
            f.col(REASON).alias("sentence"),
            f.col(source).alias("source"),
        ).alias(REFUSAL)
        if source == "queue":
            names = ("md", "headers", BODY, "format", "ccsid", "encoding")
            return frame.select(*(name for name in names if name in frame.columns), refusal)
        messages = to_messages(frame.withColumn("letter", refusal), queue=queue, keep=["letter"])
        return messages.withColumn(REFUSAL, f.col("letter")).select("md", "headers", BODY, REFUSAL)

    return Sink(
        check=letters,
        write=lambda frame, writer, epoch: _put(letters(frame), options, writer, epoch),
        has_begun=lambda writer, epoch: _has_begun(options, writer, epoch),
    )


def _queue_sink(
    mq: MqSink,
    config: PipelineConfig,
    environment: PipelineEnvironment,
    place: DeadLetterPlace,
    section: str,
    *,
    all_used: bool = False,
) -> Sink:
    """Return the destination for queues and topics of the queue manager. `all_used`: a table gets the other columns."""
    letters = place.letters
    unstaged = environment.queue_manager | {"persistence": mq.persistence} | place.options
    chosen = None
    if mq.is_chosen:
        limits = NameLimits(sorted(config.names.queues), config.allow)
        unstaged["names"], chosen = limits.text, limits.rules
    options = unstaged | environment.stage

    def messages(frame: DataFrame) -> DataFrame:
        if mq.record is None:
            return _messages(frame, mq, section, all_used=all_used)
        records = _records(frame, mq, mq.record, section)
        return records if "refused" in options else records.drop(REFUSAL)

    def write(frame: DataFrame, writer: str, epoch: int) -> int:
        records = messages(frame) if mq.record is None else _records(frame, mq, mq.record, section)
        reasons = [] if chosen is None else [rejected_name(records, chosen)]
        if mq.record is not None:
            reasons.append(f.col(f"{REFUSAL}.sentence"))
        elif _body_of(frame) is not None and (text := unencodable(records.schema)) is not None:
            reasons.append(text)
        if not reasons:
            return _put(records, options, writer, epoch)
        reason = f.coalesce(*reasons)
        persisted = judged = records.withColumn(REASON, reason).persist()
        try:
            bad = judged.where(f"{REASON} IS NOT NULL")
            refused, size = _sums(bad, BODY)
            if isinstance(letters, Path):
                valid = judged.where(f"{REASON} IS NULL")
                files = BatchFiles(letters.absolute(), f"{writer}-refused")
                # A repeated batch may reject other rows. The files are those of the attempt whose rows are put.
                if (refused or files.has_begun(epoch)) and not _has_begun(options, writer, epoch):
                    files.discard()
                    if refused:
                        rows = _archive_rows(bad.withColumn(BODY, f.col(BODY).cast("binary")))
                        files.stage(epoch, rows.write.partitionBy(DATE, HOUR).parquet)
                _put(valid.drop(REASON, REFUSAL), options, writer, epoch)
                files.publish(epoch)
            else:
                if not _admitted(place, refused, size, lambda: _has_begun(options, writer, epoch)):
                    judged = judged.where(f"{REASON} IS NULL")
                _put(judged.drop(REASON), options, writer, epoch)
            return refused
        finally:
            persisted.unpersist()

    return Sink(
        check=lambda frame: MqDataSource(unstaged).writer(messages(frame).schema, False),
        write=write,
        has_begun=lambda writer, epoch: _has_begun(options, writer, epoch),
    )


def _topic_sink(
    to: PipelineDestination,
    config: PipelineConfig,
    environment: PipelineEnvironment,
    place: DeadLetterPlace,
    *,
    all_used: bool,
) -> Sink:
    """Return the destination for topics of a broker. Only the bridge itself has topics that rows must not choose."""
    options = environment.broker(to.link) | {"qos": str(to.qos), "retain": str(to.retain).lower()}
    chosen = ChosenNames(config.names, config.allow, where="pipeline") if to.chooses_local_topic else None
    letters = dead_letter_sink(environment, place, cmqc.MQRC_NOT_AUTHORIZED)

    def publications(frame: DataFrame) -> DataFrame:
        return _publications(frame, str(to.mqtt), all_used=all_used)

    def write(frame: DataFrame, writer: str, epoch: int) -> int:
        to_publish = publications(frame)
        if chosen is None:
            return _publish(to_publish, options | environment.stage, writer, epoch)
        with_reason = to_publish.withColumn(REASON, rejected_name(to_publish, chosen)).persist()
        try:
            bad, of_letters = with_reason.where(f"{REASON} IS NOT NULL"), f"{writer}-refused"
            refused, size = _sums(bad, PAYLOAD)
            admitted = _admitted(place, refused, size, lambda: bool(letters.has_begun(of_letters, epoch)))
            _publish(with_reason.where(f"{REASON} IS NULL").drop(REASON), options | environment.stage, writer, epoch)
            if refused and admitted:
                letters.write(bad.withColumn(PAYLOAD, f.col(PAYLOAD).cast("binary")), of_letters, epoch)
            return refused
        finally:
            with_reason.unpersist()

    return Sink(
        check=lambda frame: MqttDataSource(options).writer(publications(frame).schema, False),
        write=write,
        exactly_once=False,
    )


def _sums(frame: DataFrame, body: str) -> tuple[int, int]:
    """Return the number of rows, and the bytes of their messages."""
    row = frame.agg(f.count(f.lit(1)), f.coalesce(f.sum(f.octet_length(body)), f.lit(0))).first()
    assert row is not None
    return row[0], row[1]


def _admitted(place: DeadLetterPlace, messages: int, size: int, has_begun: Callable[[], bool]) -> bool:
    """Return whether dead letters of a batch are put. A batch that has begun is finished as it began."""
    return not messages or place.limits is None or has_begun() or place.limits.admit(messages, size)


def rejected_name(rows: DataFrame, chosen: ChosenNames) -> Column:
    """Return the column with the reason why a row must not choose its queue or topic."""
    kind: ObjectKind = "queue" if "queue" in rows.columns else "topic"
    name, code = f.col(kind), f" ({cmqc.reason_name(cmqc.MQRC_NOT_AUTHORIZED)}, {cmqc.MQRC_NOT_AUTHORIZED})"
    reasons = []
    for expression, reason in chosen.rules(kind):
        before, between, after = reason.split("{}")
        printable_name = f.regexp_replace(f.substring(name, 1, 100), CONTROL, "?")
        text = f.concat(f.lit(before), printable_name, f.lit(between), printable_name, f.lit(after + code))
        reasons.append(f.when(name.rlike(expression), text))
    return f.when(~name.rlike(chosen.allowed), f.coalesce(*reasons))


def _archive_sink(path: Path, columns: Rows | None = None) -> Sink:
    """Return the destination for Parquet files, partitioned by date and hour. `columns`: instead of `_archive_rows`."""
    return _table_sink(
        PipelineDestination.model_construct(format="parquet", path=path, partition_by=[DATE, HOUR]),
        columns or _archive_rows,
    )


def _table_sink(to: PipelineDestination, columns: Rows) -> Sink:
    """Return the destination for a format of Spark."""
    assert to.format is not None
    path = to.path.absolute() if isinstance(to.path, Path) else to.path
    path_of_files = Path(str(path))

    def check(frame: DataFrame) -> None:
        names = columns(frame).columns
        if missing := [name for name in to.partition_by if name not in names]:
            raise OptionError(f"partitionBy: there is no column {missing[0]} (only {', '.join(names)})")

    def write(frame: DataFrame, writer: str, epoch: int) -> int:
        table_writer = columns(frame).write.format(str(to.format)).options(**to.options).mode("append")
        table_writer = table_writer.options(
            **{name: file.read_text("utf-8").strip() for name, file in to.secrets.items()}
        )
        if to.partition_by:
            table_writer = table_writer.partitionBy(*to.partition_by)
        if to.format == _DELTA:
            table_writer = table_writer.option("txnAppId", writer).option("txnVersion", epoch)
        if to.writes_files:
            BatchFiles(path_of_files, writer).write(epoch, table_writer.save)
        else:
            table_writer.save(None if path is None else str(path))
        return 0

    def has_begun(writer: str, epoch: int) -> bool | None:
        if to.writes_files:
            return BatchFiles(path_of_files, writer).has_begun(epoch)
        return None if to.format == _DELTA else False

    return Sink(check=check, write=write, exactly_once=to.writes_format_once, has_begun=has_begun, is_table=True)


def mapping_sink(
    name: str,
    mapping: ToMqMapping | ToMqttMapping,
    queue_manager: str,
    environment: PipelineEnvironment,
    place: DeadLetterPlace,
) -> Sink:
    """Return the destination that a mapping specifies. Rows that it rejects go to the dead letters."""
    staged = environment.queue_manager | environment.stage | place.options
    if isinstance(mapping, ToMqMapping):

        def to_mq(frame: DataFrame) -> DataFrame:
            return to_messages(_read_by_mapping(frame, PAYLOAD), mapping, name=name, queue_manager=queue_manager)

        def put(messages: DataFrame, refused: int, writer: str, epoch: int) -> int:
            return _put(messages, staged, writer, epoch)

        def begun(writer: str, epoch: int) -> bool:
            return _has_begun(staged, writer, epoch)

        return Sink(
            check=to_mq,
            write=lambda frame, writer, epoch: _write_mapped(to_mq(frame), BODY, place, put, begun, writer, epoch),
            has_begun=begun,
        )

    def to_mqtt(frame: DataFrame) -> DataFrame:
        originals = _read_by_mapping(frame, BODY)
        original = f.struct(*(f.col(column) for column in _ORIGINAL if column in originals.columns))
        with_original = originals.withColumn("original", original)
        return to_publications(with_original, mapping, name=name, queue_manager=queue_manager, keep=["original"])

    of_letters = staged | {"queue": str(place.letters)}

    def publish(publications: DataFrame, refused: int, writer: str, epoch: int) -> int:
        good = publications.where(f"{REFUSAL} IS NULL").drop("original", REFUSAL)
        _publish(good, environment.broker(mapping.destination.link) | environment.stage, writer, epoch)
        if not refused:
            return 0
        bad = publications.where(f"{REFUSAL} IS NOT NULL").select("original.*", REFUSAL).drop("queue")
        return _put(bad, of_letters, f"{writer}-refused", epoch)

    def begun_letters(writer: str, epoch: int) -> bool:
        return _has_begun(of_letters, f"{writer}-refused", epoch)

    return Sink(
        check=to_mqtt,
        write=lambda frame, writer, epoch: _write_mapped(
            to_mqtt(frame), f"original.{BODY}", place, publish, begun_letters, writer, epoch
        ),
        exactly_once=False,
    )


#: Columns of a message from which a dead letter is made.
_ORIGINAL: Final = ("queue", "headers", "format", "ccsid", "encoding", "md", BODY)


def _write_mapped(
    rows: DataFrame,
    body: str,
    place: DeadLetterPlace,
    write: Callable[[DataFrame, int, str, int], int],
    has_begun: Callable[[str, int], bool],
    writer: str,
    epoch: int,
) -> int:
    """Write mapped rows, with the message in the column `body`. Return the number of rows that the mapping rejected."""
    rows.persist()
    try:
        refused, size = _sums(rows.where(f"{REFUSAL} IS NOT NULL"), body)
        if _admitted(place, refused, size, lambda: has_begun(writer, epoch)):
            write(rows, refused, writer, epoch)
        else:
            write(rows.where(f"{REFUSAL} IS NULL"), 0, writer, epoch)
        return refused
    finally:
        rows.unpersist()


def _put(frame: DataFrame, options: Mapping[str, str], writer: str, epoch: int) -> int:
    """Put messages, each (writer, epoch) once."""
    frame.write.format("mq").options(**options).options(writeId=writer, epoch=epoch).mode("append").save()
    return 0


def _has_begun(options: Mapping[str, str], writer: str, epoch: int) -> bool:
    """Return whether a batch was put, or begun."""
    return has_begun(MqDataSource({**options}).write_options(WRITE_OPTIONS), writer, epoch)


def _publish(frame: DataFrame, options: Mapping[str, str], writer: str, epoch: int) -> int:
    """Publish. A batch that runs again repeats the names of its rows (user property mqbridge-row)."""
    frame.write.format("mqtt").options(**options).option("writeId", f"{writer}-{epoch}").mode("append").save()
    return 0


# Columns --------------------------------------------------------------------------------------------------------------


def _read_by_mapping(frame: DataFrame, payload: str) -> DataFrame:
    """Return the columns of a SELECT that a mapping reads, the message itself as `payload` or `body`. Raises OptionError."""
    reads = PUBLICATION_TYPES if payload == PAYLOAD else MESSAGE_TYPES
    if (body := _body_of(frame)) is None:
        raise OptionError("select must return a column body or payload (binary or string), which the mapping reads")
    if payload == PAYLOAD and "topic" not in frame.columns:
        raise OptionError("select must return a column topic (string), which the mapping reads")
    names = [name for name in frame.columns if name in reads and name not in (BODY, PAYLOAD)]
    return frame.select(*names, body.alias(payload))


def _place(frame: DataFrame, mq: MqSink, section: str) -> tuple[Column, set[str]]:
    """Return the column `queue` or `topic` of messages, and the columns of the frame that only specify it.

    Raises Mistake, TemplateError.
    """
    address = mq.queue or mq.topic
    if address is not None:
        key = "queue" if mq.queue is not None else "topic"
        return _filled(frame, address, (section, "mq", key)).alias(key), set()
    destination_column = next((name for name in ("queue", "topic") if name in frame.columns), None)
    if destination_column is None:
        raise column_missing((section, "mq"), "queue", frame.columns)
    return f.col(destination_column), {destination_column}


def _messages(frame: DataFrame, mq: MqSink, section: str, *, all_used: bool) -> DataFrame:
    """Return the messages of rows, for the sink `mq`. Raises Mistake, TemplateError, OptionError."""
    place, without = _place(frame, mq, section)
    if (body := _body_of(frame)) is None:
        described = [f.lit(value).alias(name) for name, value in _TEXT.items()]
        return frame.select(place, _json(frame, without).alias(BODY), *described)
    if not all_used:
        _check_lost(frame, mq.queue or mq.topic)
    return frame.select(place, body.alias(BODY), *(name for name in _MQ_PARTS if name in frame.columns))


def _records(frame: DataFrame, mq: MqSink, config: RecordConfig, section: str) -> DataFrame:
    """Return the messages of rows whose columns are the fields of records.

    The JSON object of a row that does not fit is a dead letter. Raises Mistake, TemplateError, OptionError,
    RecordLayoutError.
    """
    place, without = _place(frame, mq, section)
    fields = f.struct(*(f.col(quoted(name)) for name in frame.columns if name not in without))
    record, fault, ccsid, encoding = written_record(fields, config)
    json = _json(frame, without).cast("binary")
    converted = frame.select(place, record.alias("record"), json.alias("json"), fault.alias(REASON))
    fits = f.col(REASON).isNull()
    refusal = f.struct(
        f.lit(cmqc.MQRC_FORMAT_ERROR).alias("reason"), f.col(REASON).alias("sentence"), f.lit("").alias("source")
    )
    text = {name: f.lit(value) for name, value in _TEXT.items()}
    return converted.select(
        converted.columns[0],
        f.when(fits, f.col("record")).otherwise(f.col("json")).alias(BODY),
        f.when(fits, f.lit("")).otherwise(text["format"]).alias("format"),
        f.when(fits, f.lit(ccsid)).otherwise(text["ccsid"]).alias("ccsid"),
        f.when(fits, f.lit(encoding)).otherwise(f.lit(cmqc.MQENC_NATIVE)).alias("encoding"),
        f.when(~fits, refusal).alias(REFUSAL),
    )


def _publications(frame: DataFrame, address: str, *, all_used: bool) -> DataFrame:
    """Return the publications of rows, for the sink `mqtt`. Raises Mistake, TemplateError, OptionError."""
    frame = with_archived_properties(frame)
    topic = _filled(frame, address, ("to", "mqtt")).alias("topic")
    if (body := _body_of(frame)) is None:
        return frame.select(topic, _json(frame, set()).alias(PAYLOAD))
    if not all_used:
        _check_lost(frame, address)
    return frame.select(topic, body.alias(PAYLOAD), *(name for name in _MQTT_PARTS if name in frame.columns))


def table_rows(frame: DataFrame) -> DataFrame:
    """Return rows without documents (VARIANT), which file formats do not support: JSON text replaces them."""
    names = [field.name for field in frame.schema if isinstance(field.dataType, VariantType)]
    return frame.withColumns({name: f.to_json(quoted(name)) for name in names}) if names else frame


def _archive_rows(frame: DataFrame) -> DataFrame:
    """Return rows with the columns `date` and `hour` (UTC) of their arrival, otherwise of the time of the batch."""
    if clash := [name for name in (DATE, HOUR) if name in frame.columns]:
        raise OptionError(f"an archive has the columns {DATE} and {HOUR}; hint: rename the column {clash[0]} in select")
    schema = frame.schema
    times = [
        f.col(name) for name in TIMES if name in frame.columns and isinstance(schema[name].dataType, TimestampType)
    ]
    when = f.coalesce(*times, f.current_timestamp())
    return table_rows(frame).withColumns({DATE: f.date_format(when, "yyyy-MM-dd"), HOUR: f.date_format(when, "HH")})


def _source_rows(frame: DataFrame) -> DataFrame:
    """Return rows of a source for an archive. Rows of an archive stay in its partitions, whose types Spark has guessed."""
    if not {DATE, HOUR} <= {*frame.columns}:
        return _archive_rows(frame)
    date, hour = f.col(DATE).cast("string"), f.lpad(f.col(HOUR).cast("string"), 2, "0")
    return table_rows(frame).withColumns({DATE: date, HOUR: hour})


def _body_of(frame: DataFrame) -> Column | None:
    """Return the column that is the message itself, or None if there is no such column."""
    for name in (BODY, PAYLOAD):
        if name in frame.columns and isinstance(frame.schema[name].dataType, BinaryType | StringType):
            return f.col(name)
    return None


def quoted(name: str) -> str:
    """Return a column name for SQL."""
    return f"`{name.replace('`', '``')}`"


def _check_lost(frame: DataFrame, address: str | None) -> None:
    """Check that a SELECT which specifies the message has no columns that would be lost. Raises OptionError."""
    used = {*_MQ_PARTS, *_MQTT_PARTS, *_KNOWN, *(Template(address).names if address else ())}
    if unused := [name for name in frame.columns if name not in used]:
        raise OptionError(
            f"select returns the message (body or payload), so these columns would be lost: {', '.join(unused)}"
        )


def _json(frame: DataFrame, without: set[str]) -> Column:
    names = [name for name in frame.columns if name not in without]
    return f.to_json(f.struct(*(f.col(quoted(name)) for name in names)), {"ignoreNullFields": "false"})


def _filled(frame: DataFrame, text: str, location: tuple[str | int, ...]) -> Column:
    """Return a template whose names are columns, as a column. Raises Mistake, TemplateError."""
    parts: list[Any] = []
    for piece in template_of_columns(text).pieces:
        if not isinstance(piece, Placeholder):
            parts.append(f.lit(piece))
            continue
        if piece.filters:
            raise TemplateError(f"{piece.name} has a filter, which pipelines do not support: use SQL in select")
        if piece.name not in frame.columns:
            raise column_missing(location, piece.name, frame.columns)
        parts.append(f.col(quoted(piece.name)).cast("string"))
    return f.concat(*parts) if len(parts) > 1 else parts[0]
