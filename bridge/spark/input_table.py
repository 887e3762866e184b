"""The table `input` of a SELECT: source rows with a valid payload, and the SQL that describes why others are invalid.

A payload that is not valid is found by a condition in the query itself (`try_parse_json`, `try_variant_get`), so no row ends
the query. The casts of a SELECT are not among the conditions. A field that is declared in `schema` is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, TimestampType

from bridge.config.link import LOCAL
from bridge.config.pipeline import PipelineConfig, WatermarkConfig
from bridge.config.record import RecordPayloadConfig
from bridge.spark.destinations import BODY, PAYLOAD, TIMES
from bridge.spark.failures import Mistake
from bridge.spark.record import RecordFunctions

#: Columns that describe the text of a message.
_OF_TEXT: Final = frozenset(("text", "format", "ccsid", "encoding"))
_TEXT_ERROR: Final = "text_error"
_WHOLE: Final = frozenset(("tinyint", "smallint", "int", "bigint"))
_FLOATING: Final = frozenset(("float", "double"))


class InputTable(msgspec.Struct, frozen=True):
    """How source rows become rows of `input`."""

    #: column of the source with the payload; None: an archive without one
    column: str | None
    #: SQL of the column `payload` of `input`; None: the source has no payload
    payload: str | None
    #: SQL of the reason why a payload is invalid, NULL for a valid one. None: every payload is valid
    fault: str | None
    #: SQL of the event time, its column in `input`, and the delay in seconds; None: rows have no time
    event_time: tuple[str, str, float] | None
    #: client_id of publications for a mapping
    publisher: str | None = None
    replace_publisher: bool = False

    def of(self, frame: DataFrame) -> DataFrame:
        """Return `input` for source rows with a valid payload."""
        if self.replace_publisher:
            frame = frame.withColumn("client_id", f.lit(self.publisher).cast("string"))
        if self.event_time is not None and self.event_time[1] not in frame.columns:
            frame = frame.withColumn(self.event_time[1], f.expr(self.event_time[0]))
        if self.column is None or self.payload is None:
            return frame
        body, payload = f.col(self.column).alias(BODY), f.expr(self.payload).alias(PAYLOAD)
        return frame.select(*(name for name in frame.columns if name not in (BODY, PAYLOAD)), body, payload)

    def with_watermark(self, table: DataFrame) -> DataFrame:
        """Return the streaming table `input` with its watermark."""
        if self.event_time is None:
            return table
        _, column, delay = self.event_time
        return table.withWatermark(column, f"{round(delay * 1000)} milliseconds")


def input_table(
    source: DataFrame, config: PipelineConfig, kind: str, records: RecordFunctions | None = None
) -> InputTable:
    """Return the InputTable of a source. `kind` is the type of payload, `records` contains its functions. Raises Mistake."""
    column = next(
        (
            name
            for name in (BODY, PAYLOAD)
            if name in source.columns and isinstance(source.schema[name].dataType, BinaryType | StringType)
        ),
        None,
    )
    event_time = _event_time(source, column, config)
    maps = config.mapping is not None and config.source.mqtt is not None
    publisher = None if config.source.link == LOCAL else config.source.link
    if column is None:
        return InputTable(None, None, None, event_time, publisher, maps)
    if records is not None:
        arguments = _record_arguments(source, config, column)
        return InputTable(column, records.record(*arguments), records.fault(*arguments), event_time, publisher, maps)
    text = _text_of(source.columns, column)
    error = _TEXT_ERROR if column == BODY and _TEXT_ERROR in source.columns else "CAST(NULL AS STRING)"
    payload = {"json": f"try_parse_json({text})", "text": text, "bytes": column}[kind]
    binary = isinstance(source.schema[column].dataType, BinaryType)
    fault = None if kind == "bytes" else _fault(text, error, binary, column, kind, config.fields)
    return InputTable(column, payload, fault, event_time, publisher, maps)


def _record_arguments(source: DataFrame, config: PipelineConfig, column: str) -> tuple[str, str, str]:
    """Return the SQL of the bytes, CCSID and Encoding of records. Raises Mistake."""
    record = config.payload
    assert isinstance(record, RecordPayloadConfig)
    defaults = {"ccsid": record.ccsid, "encoding": record.encoding}
    missing = [name for name, value in defaults.items() if value is None and name not in source.columns]
    if missing and config.source.mq is not None:
        raise Mistake(
            ("from", "options", "columns"), f"the column {missing[0]} of the records (or payload.{missing[0]})"
        )
    described = (name if name in source.columns else "CAST(NULL AS INT)" for name in defaults)
    ccsid, encoding = described
    return column, ccsid, encoding


def _event_time(source: DataFrame, column: str | None, config: PipelineConfig) -> tuple[str, str, float] | None:
    times = [field.name for field in source.schema if isinstance(field.dataType, TimestampType)]
    if not isinstance(config.watermark, WatermarkConfig):
        arrival = next((name for name in TIMES if name in times), None)
        return None if arrival is None else (arrival, arrival, config.watermark)
    name, delay = config.watermark.column, config.watermark.delay
    if name in times:
        return name, name, delay
    if column is not None and config.fields.get(name) == "timestamp":
        document = f"try_parse_json({_text_of(source.columns, column)})"
        return f"try_variant_get({document}, '$.{name}', 'timestamp')", name, delay
    times += [field for field, declared in config.fields.items() if declared == "timestamp" and field not in times]
    expected = (
        f"a column of input of type timestamp, or a field that schema declares as one ({', '.join(times) or 'none'})"
    )
    raise Mistake(("watermark", "column"), expected, repr(name))


def _text_of(columns: Collection[str], column: str) -> str:
    """Return the SQL of a payload as text: by the CCSID of a message of format MQSTR, otherwise UTF-8."""
    utf_8 = f"CAST({column} AS STRING)"
    return f"IF(format = 'MQSTR', text, {utf_8})" if column == BODY and set(columns) >= _OF_TEXT else utf_8


def _fault(text: str, error: str, binary: bool, column: str, kind: str, fields: Mapping[str, str]) -> str:
    """Return the SQL of the reason why a payload is invalid, NULL for a valid one. `error` is the SQL of a text error."""
    reason = f"coalesce({error}, 'the payload is not text in its CCSID')"
    faults = [f"CASE WHEN {text} IS NULL AND {column} IS NOT NULL THEN {reason} END"]
    if binary:
        invalid = f"{text} = CAST({column} AS STRING) AND NOT is_valid_utf8(CAST({column} AS STRING))"
        faults.append(f"CASE WHEN {invalid} THEN 'the payload is not UTF-8' END")
    if kind == "json":
        document = f"try_parse_json({text})"
        invalid = f"{column} IS NOT NULL AND {document} IS NULL"  # most rows of the bridge's archive have no payload
        faults.append(f"CASE WHEN {invalid} THEN 'the payload is not JSON, or names a member twice' END")
        faults += [_wrong_type(document, path, declared) for path, declared in fields.items()]
    return f"coalesce({', '.join(faults)}, CAST(NULL AS STRING))"


def _wrong_type(document: str, path: str, declared: str) -> str:
    value = f"variant_get({document}, '$.{path}', 'variant')"
    expression = f"try_variant_get({document}, '$.{path}', '{declared}')"
    wrong = f"{expression} IS NULL"
    if declared in _WHOLE:  # a cast would make 3 of 3.7
        wrong += f" OR CAST({expression} AS DOUBLE) <> try_variant_get({document}, '$.{path}', 'double')"
    if declared in _FLOATING:  # a cast would make infinity of 1e999
        wrong += f" OR (abs({expression}) = double('Infinity') AND schema_of_variant({value}) <> 'STRING')"
    reason = f"concat('{path} of the payload is not {declared}: ', left(to_json({value}), 40))"
    return f"CASE WHEN {value} IS NOT NULL AND NOT is_variant_null({value}) AND ({wrong}) THEN {reason} END"
