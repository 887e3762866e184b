"""What the rows of a SELECT become at each destination: a message, a publication, or a row of a table.

A SELECT with a column `body` or `payload` says the message itself, in the columns that the sources `mq` and `mqtt` take.
Any other makes a JSON object of each row.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType, VariantType

from bridge.config import Destination, PipelineDestination, ToMqMapping, ToMqttMapping
from bridge.mapping.rules.template import Placeholder, Template, TemplateError
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.errors import OptionError
from bridge.spark.flow.bad_rows.payload import BODY, PAYLOAD
from bridge.spark.flow.sink import ARCHIVE, MQ, MQTT, ORIGINAL, ROWS
from bridge.spark.flow.table import DATE, HOUR
from bridge.spark.mapping import to_messages, to_publications
from bridge.spark.mapping.publication_rows import TAKEN as OF_PUBLICATIONS
from bridge.spark.mapping.publications import TAKEN as OF_MESSAGES
from bridge.spark.mq.rows import check_columns
from bridge.spark.refusal import REFUSAL
from bridge.spark.schema import MQ_SCHEMA, MQTT_SCHEMA
from bridge.wire import cmqc

#: Columns by whose time rows are put in order, and filed.
TIMES: Final = ("received", "put_time")
#: What a message that is a JSON object says of itself.
_TEXT: Final = {"format": cmqc.MQFMT_STRING.decode().strip(), "ccsid": 1208}
#: Columns of `input` that are no part of a message.
_KNOWN: Final = frozenset((*MQ_SCHEMA.names, *MQTT_SCHEMA.names))
_MQ_PARTS: Final = ("queue", "topic", "md", "rfh2", "headers", "format", "ccsid", "encoding")
_MQTT_PARTS: Final = (
    "topic", "qos", "retain", "properties", *PROPERTY_COLUMNS, "expiry", "msg_id", "md"
)  # fmt: skip
#: Types of columns that a mapping takes for another one: each has room for all of their values.
_FITTING: Final = {
    "binary": ("binary", "string"),
    "int": ("tinyint", "smallint", "int"),
    "bigint": ("tinyint", "smallint", "int", "bigint"),
}
#: Columns of a message that the dead letter of a row is made of which a mapping to MQTT refuses.
_OF_ORIGINAL: Final = ("queue", "md", "headers", "format", "ccsid", "encoding", "put_time")


class ColumnMissing(Exception):
    """A section of a pipeline names a column that its SELECT does not make."""

    def __init__(self, location: tuple[str | int, ...], name: str, columns: list[str]) -> None:
        super().__init__(name)
        self.location = location
        self.name = name
        self.columns = columns


def documents(frame: DataFrame) -> list[str]:
    """Return the columns that are JSON documents (VARIANT)."""
    return [one.name for one in frame.schema if isinstance(one.dataType, VariantType)]


def as_text(frame: DataFrame, names: list[str]) -> DataFrame:
    """Return a frame whose documents are text, which all that is not Spark takes."""
    return frame.withColumns({name: f.to_json(_quoted(name)) for name in names}) if names else frame


def as_documents(frame: DataFrame, names: list[str]) -> DataFrame:
    """Return a frame whose columns of these names are documents again."""
    return frame.withColumns({name: f.parse_json(_quoted(name)) for name in names}) if names else frame


def routed(frame: DataFrame, to: Destination | None, section: str = "to") -> DataFrame:
    """Return a struct of each row for each destination; without any (a mapping says where) the rows as they are.

    `section` of the pipeline is where they are said. Raises ColumnMissing, TemplateError.
    """
    if to is None:
        return frame
    structs = []
    if to.mq is not None:
        structs.append(f.struct(*_message(frame, to, section)).alias(MQ))
    if to.mqtt is not None:
        structs.append(f.struct(*_publication(frame, to, section)).alias(MQTT))
    if to.archive is not None:
        structs.append(f.struct(*_row(frame)).alias(ARCHIVE))
    if to.format is not None:
        structs.append(f.struct(*_texts(frame, frame.columns)).alias(ROWS))
    return frame.select(*structs)


# Mappings ------------------------------------------------------------------------------------------------------------


def mapped(frame: DataFrame, name: str, mapping: ToMqMapping | ToMqttMapping, queue_manager: str) -> DataFrame:
    """Return the struct of each row for the destination of a mapping: all that the mapping makes.

    A row that a mapping to MQTT refuses has its message in the struct `original`, which is null in all others. (Of one to
    MQ the row has it itself.) Raises OptionError with what is wrong with the columns, RuleError.
    """
    to_mq = isinstance(mapping, ToMqMapping)
    given = _given(frame, PAYLOAD if to_mq else BODY)
    if to_mq:
        made = to_messages(given, mapping, name=name, queue_manager=queue_manager)
        return made.select(f.struct(*made.columns).alias(MQ))
    kept = [one for one in _OF_ORIGINAL if one in given.columns]
    made = to_publications(given, mapping, name=name, queue_manager=queue_manager, keep=kept)
    publication = [one for one in made.columns if one not in kept or one == "md"]
    original = f.struct(*kept, f.col(PAYLOAD).alias(BODY), REFUSAL.name)
    refused = f.when(f.col(REFUSAL.name).isNotNull(), original)
    return made.select(f.struct(*publication).alias(MQTT), refused.alias(ORIGINAL))


def _given(frame: DataFrame, payload: str) -> DataFrame:
    """Return the columns of a SELECT that a mapping takes, the payload as `payload`. Raises OptionError."""
    takes = set(OF_PUBLICATIONS if payload == PAYLOAD else (*OF_MESSAGES, *_OF_ORIGINAL)) - {BODY, PAYLOAD}
    wrong = [
        f"column {name} is none that a mapping takes ({', '.join(sorted(takes))}, and {payload})"
        for name in frame.columns
        if name not in takes and name not in _KNOWN
    ]
    if (body := _body(frame)) is None:
        wrong.append(f"column {BODY} or {PAYLOAD} is missing (binary or string)")
    columns = [name for name in frame.columns if name in takes]
    schema = StructType([frame.schema[name] for name in columns])
    if payload == PAYLOAD:
        if "topic" not in columns:
            wrong.append("column topic is missing (string)")
        for field in schema:
            expected = OF_PUBLICATIONS.get(field.name)
            found = field.dataType.simpleString()
            if expected is not None and found not in _FITTING.get(expected, (expected,)):
                wrong.append(f"column {field.name}: expected {expected}, found {found}")
    if wrong or body is None:
        raise OptionError("; ".join(wrong))
    given = frame.select(*columns, body.alias(payload))
    if payload == BODY:
        check_columns("the mapping", given.schema)
    return given


# Destinations --------------------------------------------------------------------------------------------------------


def _message(frame: DataFrame, to: Destination, section: str) -> list[Column]:
    assert to.mq is not None
    destination = []
    for key in ("queue", "topic"):
        if (text := getattr(to.mq, key)) is not None:
            destination = [_filled(frame, text, (section, "mq", key)).alias(key)]
    if not destination:
        destination = [f.col(name) for name in ("queue", "topic") if name in frame.columns][:1]
        if not destination:
            raise ColumnMissing((section, "mq"), "queue", frame.columns)
    if (body := _body(frame)) is None:
        described = [f.lit(value).alias(name) for name, value in _TEXT.items()]
        return [*destination, _json(frame, _addresses(frame, to)).alias(BODY), *described]
    parts = [f.col(name) for name in _MQ_PARTS[2:] if name in frame.columns]
    return [*destination, body.alias(BODY), *parts]


def _publication(frame: DataFrame, to: Destination, section: str) -> list[Column]:
    assert to.mqtt is not None
    topic = _filled(frame, to.mqtt, (section, "mqtt")).alias("topic")
    if (body := _body(frame)) is None:
        return [topic, _json(frame, _addresses(frame, to)).alias(PAYLOAD)]
    parts = [f.col(name) for name in _MQTT_PARTS[1:] if name in frame.columns]
    return [topic, body.alias(PAYLOAD), *parts]


def _row(frame: DataFrame) -> list[Column]:
    schema = frame.schema
    times = [f.col(name) for name in TIMES if name in frame.columns and isinstance(schema[name].dataType, TimestampType)]
    when = f.coalesce(*times, _batch_time())
    path = [f.date_format(when, "yyyy-MM-dd").alias(DATE), f.date_format(when, "HH").alias(HOUR)]
    return [*_texts(frame, [name for name in frame.columns if name not in (DATE, HOUR)]), *path]


def _batch_time() -> Column:
    """Return the time of the batch, which stays the same when it is run again.

    Spark writes it as a number into the code that it generates, which then is another one, compiled anew, for each batch: but
    for this function, which it has no code for.
    """
    times = f.create_map(f.lit(0), f.current_timestamp())
    return f.map_filter(times, lambda _, time: time.isNotNull())[0]


def _texts(frame: DataFrame, names: list[str]) -> list[Column]:
    """Return columns, documents as text."""
    texts = documents(frame)
    return [f.to_json(_quoted(one)).alias(one) if one in texts else f.col(_quoted(one)) for one in names]


def _body(frame: DataFrame) -> Column | None:
    """Return the column that is the message itself."""
    for name in (BODY, PAYLOAD):
        if name in frame.columns and isinstance(frame.schema[name].dataType, BinaryType | StringType):
            return f.col(name)
    return None


def unknown_columns(frame: DataFrame, to: PipelineDestination) -> list[str]:
    """Return the columns that stand beside a message which the SELECT says itself, and would be lost."""
    if _body(frame) is None or to.archive is not None:
        return []
    used: set[str] = {*_MQ_PARTS, *_MQTT_PARTS, *_KNOWN}
    texts = [to.mqtt, *((to.mq.queue, to.mq.topic) if to.mq is not None else ())]
    used = used.union(*(Template(text).names for text in texts if text is not None))
    return [name for name in frame.columns if name not in used]


def _addresses(frame: DataFrame, to: Destination) -> set[str]:
    """Return the columns that only say where a row goes."""
    if to.mq is None or to.mq.queue is not None or to.mq.topic is not None:
        return set()
    return {"queue"} if "queue" in frame.columns else {"topic"}


def _json(frame: DataFrame, without: set[str]) -> Column:
    names = [name for name in frame.columns if name not in without]
    return f.to_json(f.struct(*(f.col(_quoted(name)) for name in names)), {"ignoreNullFields": "false"})


def _filled(frame: DataFrame, text: str, location: tuple[str | int, ...]) -> Column:
    """Return a template whose names are columns, as a column. Raises ColumnMissing, TemplateError."""
    parts: list[Any] = []
    for piece in Template(text).pieces:
        if not isinstance(piece, Placeholder):
            parts.append(f.lit(piece))
            continue
        if piece.filters:
            raise TemplateError(f"{piece.name} has a filter, which a pipeline does not have: SQL says it in select")
        if piece.name not in frame.columns:
            raise ColumnMissing(location, piece.name, frame.columns)
        parts.append(f.col(_quoted(piece.name)).cast("string"))
    return f.concat(*parts) if len(parts) > 1 else parts[0]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
