"""COBOL records as columns of Spark.

from mqbridge import from_record, to_record

stock = from_record("body", "stock.cpy", ccsid="ccsid", encoding="encoding")
messages.select(stock.alias("stock")).select("stock.*").write.parquet("stock")
rows.select(to_record(f.struct("article", "on_stock"), "stock.cpy", ccsid=1140).alias("body"))
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
from pydantic import ValidationError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType

from bridge.config.record import RecordConfig
from bridge.mapping.template import RecordLayoutError
from bridge.spark.options import OptionError
from bridge.spark.record_columns import RecordColumns

__all__ = ["from_record", "to_record"]

Errors = Literal["fail", "null"]


class RecordInvalid(ValueError):
    """A record, or a row, that does not fit its copybook. It ends the query."""


def from_record(
    column: Column | str,
    copybook: str | Path,
    *,
    ccsid: int | Column | str | None = None,
    encoding: int | str | Column | None = None,
    errors: Errors = "fail",
    **options: Any,
) -> Column:
    """Return the struct of the records in a binary column.

    `ccsid` and `encoding` are values for all records, or columns (by default 1208 and the encoding of COBOL on x86). A string
    that is not a keyword of `encoding` is the name of a column. `options` are those of `payload` in mappings, such as
    `record`, `names` and `redefines`. A record that does not fit ends the query, or is null with `errors="null"`. Raises
    OptionError.
    """
    fixed, columns = _machine(ccsid, encoding)
    records: Column = _reading(_columns("from_record", copybook, fixed | options), errors)(column, *columns)
    return records


def to_record(
    column: Column | str,
    copybook: str | Path,
    *,
    ccsid: int | None = None,
    encoding: int | str | None = None,
    errors: Errors = "fail",
    **options: Any,
) -> Column:
    """Return the records of a struct, as binary. The parameters are those of `from_record`. Raises OptionError."""
    arguments = {"ccsid": ccsid, "encoding": encoding} | options
    records: Column = _writing(_columns("to_record", copybook, arguments, writes=True), errors)(column)
    return records


def _machine(
    ccsid: int | Column | str | None, encoding: int | str | Column | None
) -> tuple[dict[str, Any], tuple[Column, Column]]:
    """Return the options that are values, and the columns for the other options."""
    fixed: dict[str, Any] = {}
    columns = []
    for name, value, words in (("ccsid", ccsid, ()), ("encoding", encoding, _WORDS)):
        null = f.lit(None).cast("int")
        if isinstance(value, Column):
            columns.append(value.cast("int"))
        elif isinstance(value, str) and value not in words:
            columns.append(f.col(value).cast("int"))
        else:
            fixed[name] = value
            columns.append(null)
    return fixed, (columns[0], columns[1])


_WORDS: Final = ("normal", "reversed", "s390", "x86")


def _columns(function: str, copybook: str | Path, options: Mapping[str, Any], *, writes: bool = False) -> RecordColumns:
    try:
        config = RecordConfig.model_validate({"copybook": str(copybook), **options})
        columns = RecordColumns(config)
        if writes:
            columns.check()
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        raise OptionError(f"{function}: {'.'.join(map(str, detail['loc']))}: {detail['msg']}") from error
    except RecordLayoutError as error:
        raise OptionError(f"{function}: {error}") from error
    return columns


def _function(convert: Callable[..., Any], returned: DataType) -> Any:
    """Convert a function of Arrow columns to one of Spark columns."""
    return arrow_udf(convert, returned, ArrowUDFType.SCALAR)


def _reading(columns: RecordColumns, errors: Errors) -> Any:
    def read(bodies: Any, ccsids: Any, encodings: Any) -> Any:
        records, reasons = columns.read(bodies, ccsids, encodings)
        _check(reasons, errors)
        return records

    return _function(read, from_arrow_type(columns.type))


def _writing(columns: RecordColumns, errors: Errors) -> Any:
    def write(rows: Any) -> Any:
        records, reasons = columns.write(rows)
        _check(reasons, errors)
        return records

    return _function(write, BinaryType())


def _check(reasons: list[str | None], errors: Errors) -> None:
    if errors == "fail" and (reason := next(filter(None, reasons), None)) is not None:
        raise RecordInvalid(reason)


class RecordFunctions:
    """SQL functions for the records that a pipeline reads, in a session. Raises RecordLayoutError, OptionError.

    Their names contain a digest of the copybook and the options, so a batch that is repeated with other ones is detected.
    """

    def __init__(self, spark: SparkSession, config: RecordConfig) -> None:
        columns = RecordColumns(config)
        contents = repr((config, sorted(config.files.contents.items())))
        digest = hashlib.sha256(contents.encode()).hexdigest()[:16]
        self._record, self._fault = f"record_{digest}", f"record_fault_{digest}"
        spark.udf.register(self._record, _reading(columns, "null"))
        spark.udf.register(self._fault, _fault(columns.read))

    def record(self, *arguments: str) -> str:
        """Return the SQL of the record, null if it does not fit."""
        return f"{self._record}({', '.join(arguments)})"

    def fault(self, *arguments: str) -> str:
        """Return the SQL of the reason why the record does not fit, or null."""
        return f"{self._fault}({', '.join(arguments)})"


def _fault(convert: Callable[..., tuple[Any, list[str | None]]]) -> Any:
    """Return a function that returns the reasons why records or rows do not fit, or null."""

    def fault(*arguments: Any) -> Any:
        return pa.array(convert(*arguments)[1], pa.string())

    return _function(fault, StringType())


class WrittenRecord(NamedTuple):
    """The record of a row, why it does not fit, and the CCSID and Encoding."""

    record: Column
    fault: Column
    ccsid: int
    encoding: int


def written_record(row: Column, config: RecordConfig) -> WrittenRecord:
    """Return the record of a struct. Raises RecordLayoutError, OptionError."""
    columns = RecordColumns(config)
    columns.check()
    return WrittenRecord(_writing(columns, "null")(row), _fault(columns.write)(row), *columns.written)
