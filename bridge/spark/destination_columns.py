"""The columns of the rows of a SELECT at each destination: messages, publications, and rows of tables.

A SELECT with a column `body` or `payload` of type string or binary specifies the message itself. Any other SELECT makes a
JSON object of each row.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, TimestampType, VariantType

from bridge.config.pipeline import Destination
from bridge.mapping.template import Placeholder, Template, TemplateError
from bridge.spark.columns import PROPERTY_COLUMNS
from bridge.spark.errors import OptionError
from bridge.spark.schema import MQ_SCHEMA, MQTT_SCHEMA
from bridge.wire import cmqc

#: The column of `input` that contains the payload, and the column with its bytes.
PAYLOAD: Final = "payload"
BODY: Final = "body"
#: Columns with the time of arrival.
TIMES: Final = ("received", "put_time")
#: Columns that partition an archive.
DATE: Final = "date"
HOUR: Final = "hour"
#: Format and character set of a message that is a JSON object.
_TEXT: Final = {"format": cmqc.MQFMT_STRING.decode().strip(), "ccsid": 1208}
_MQ_PARTS: Final = ("md", "rfh2", "headers", "format", "ccsid", "encoding")
_MQTT_PARTS: Final = ("qos", "retain", "properties", *PROPERTY_COLUMNS, "expiry", "msg_id", "md")
#: Columns of `input` that are not part of a message that is written.
_KNOWN: Final = frozenset((*MQ_SCHEMA.names, *MQTT_SCHEMA.names))


class ColumnMissing(Exception):
    """A section of a pipeline names a column that its SELECT does not return."""

    def __init__(self, location: tuple[str | int, ...], name: str, columns: list[str]) -> None:
        super().__init__(f"{'.'.join(map(str, location))}: there is no column {name}, only {', '.join(columns)}")
        self.location = location
        self.name = name
        self.columns = columns


def messages(frame: DataFrame, to: Destination, section: str) -> DataFrame:
    """Return the messages of rows, for the sink `mq`. Raises ColumnMissing, TemplateError, OptionError."""
    assert to.mq is not None
    key = next((name for name in ("queue", "topic") if getattr(to.mq, name) is not None), None)
    if key is not None:
        place = _filled(frame, getattr(to.mq, key), (section, "mq", key)).alias(key)
    else:
        key = next((name for name in ("queue", "topic") if name in frame.columns), None)
        if key is None:
            raise ColumnMissing((section, "mq"), "queue", frame.columns)
        place = f.col(key)
    if (body := body_of(frame)) is None:
        addresses = set() if to.mq.queue is not None or to.mq.topic is not None else {key}
        described = [f.lit(value).alias(name) for name, value in _TEXT.items()]
        return frame.select(place, _json(frame, addresses).alias(BODY), *described)
    _check_lost(frame, to)
    return frame.select(place, body.alias(BODY), *(name for name in _MQ_PARTS if name in frame.columns))


def publications(frame: DataFrame, to: Destination, section: str) -> DataFrame:
    """Return the publications of rows, for the sink `mqtt`. Raises ColumnMissing, TemplateError, OptionError."""
    assert to.mqtt is not None
    topic = _filled(frame, to.mqtt, (section, "mqtt")).alias("topic")
    if (body := body_of(frame)) is None:
        return frame.select(topic, _json(frame, set()).alias(PAYLOAD))
    _check_lost(frame, to)
    return frame.select(topic, body.alias(PAYLOAD), *(name for name in _MQTT_PARTS if name in frame.columns))


def table_rows(frame: DataFrame) -> DataFrame:
    """Return rows without documents (VARIANT), which file formats do not support: JSON text takes their place."""
    names = [field.name for field in frame.schema if isinstance(field.dataType, VariantType)]
    return frame.withColumns({name: f.to_json(quoted(name)) for name in names}) if names else frame


def archive_rows(frame: DataFrame) -> DataFrame:
    """Return rows with the columns `date` and `hour` (UTC) of their arrival, otherwise of the time of the batch."""
    schema = frame.schema
    times = [f.col(name) for name in TIMES if name in frame.columns and isinstance(schema[name].dataType, TimestampType)]
    when = f.coalesce(*times, f.current_timestamp())
    return table_rows(frame).withColumns({DATE: f.date_format(when, "yyyy-MM-dd"), HOUR: f.date_format(when, "HH")})


def body_of(frame: DataFrame) -> Column | None:
    """Return the column that is the message itself, or None if there is no such column."""
    for name in (BODY, PAYLOAD):
        if name in frame.columns and isinstance(frame.schema[name].dataType, BinaryType | StringType):
            return f.col(name)
    return None


def quoted(name: str) -> str:
    """Return a column name for SQL."""
    return f"`{name.replace('`', '``')}`"


def _check_lost(frame: DataFrame, to: Destination) -> None:
    """Check that a SELECT which specifies the message has no columns that would be lost. Raises OptionError."""
    used = {*_MQ_PARTS, *_MQTT_PARTS, *_KNOWN}
    for text in (to.mqtt, *((to.mq.queue, to.mq.topic) if to.mq is not None else ())):
        used |= set() if text is None else set(Template(text).names)
    if to.archive is None and to.format is None and (lost := [name for name in frame.columns if name not in used]):
        raise OptionError(f"select returns the message (body or payload), so these columns would be lost: {', '.join(lost)}")


def _json(frame: DataFrame, without: set[str]) -> Column:
    names = [name for name in frame.columns if name not in without]
    return f.to_json(f.struct(*(f.col(quoted(name)) for name in names)), {"ignoreNullFields": "false"})


def _filled(frame: DataFrame, text: str, location: tuple[str | int, ...]) -> Column:
    """Return a template whose names are columns, as a column. Raises ColumnMissing, TemplateError."""
    parts: list[Any] = []
    for piece in Template(text).pieces:
        if not isinstance(piece, Placeholder):
            parts.append(f.lit(piece))
            continue
        if piece.filters:
            raise TemplateError(f"{piece.name} has a filter, which pipelines do not support: use SQL in select")
        if piece.name not in frame.columns:
            raise ColumnMissing(location, piece.name, frame.columns)
        parts.append(f.col(quoted(piece.name)).cast("string"))
    return f.concat(*parts) if len(parts) > 1 else parts[0]
