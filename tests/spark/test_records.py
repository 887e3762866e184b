"""COBOL records as columns: `from_record`, `to_record`, and `mqbridge lake --copybook`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bridge.config.record import RecordConfig
from bridge.record.codec import RecordCodec
from bridge.record.copybook import CopybookFiles, parse
from bridge.record.layout import layout_of
from bridge.spark import from_record, to_record
from bridge.spark.options import OptionError
from bridge.spark.record_columns import RecordColumns
from bridge.wire import cmqc
from tests.helpers.patience import PATIENCE
from tests.spark.conftest import ROOT, Queues
from tests.spark.test_lake import lake

COPYBOOKS = Path(ROOT) / "tests" / "unit" / "record" / "copybooks"
ORDER = COPYBOOKS / "order.cpy"
ORDER_TYPE = (
    "struct<order_id:string,line_count:int,order_lines:array<struct<article:string,quantity:int,price:decimal(7,2)>>>"
)


def order(lines: int) -> dict[str, Any]:
    line = [{"article": f"A{number}", "quantity": -number, "price": Decimal(number) / 4} for number in range(lines)]
    return {"order_id": f"O{lines}", "line_count": lines, "order_lines": line}


def order_codec(ccsid: int = 1140, encoding: int = 785) -> RecordCodec:
    return RecordCodec(layout_of(parse(CopybookFiles(ORDER))), ccsid, encoding)


def test_records_become_structs_and_structs_become_records(spark: SparkSession) -> None:
    rows = [(order_codec().encode(order(lines)), 1140, 785) for lines in range(4)]
    rows += [(order_codec(819, 530).encode(order(2)), 819, 530), (b"no order", 37, 785), (None, None, None)]
    frame = spark.createDataFrame(rows, "body binary, ccsid int, encoding int")
    columns: dict[str, Any] = {"ccsid": "ccsid", "encoding": f.col("encoding")}
    read = frame.select(from_record("body", ORDER, errors="null", **columns).alias("o"))
    assert read.schema["o"].dataType.simpleString() == ORDER_TYPE
    documents = [row["o"].asDict(recursive=True) if row["o"] else None for row in read.collect()]
    assert documents == [*map(order, range(4)), order(2), None, None]
    written = read.select(to_record("o", ORDER, ccsid=1140).alias("body")).collect()
    assert [row["body"] for row in written[:4]] == [row[0] for row in rows[:4]]
    with pytest.raises(PythonException, match=r"not a record of order.cpy: the record is too short: 8 bytes, of 11"):
        frame.select(from_record("body", ORDER, **columns)).collect()


def test_one_encoding_for_all_records(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(order_codec().encode(order(1)),)], "body binary")
    record = from_record("body", str(ORDER), ccsid=1140, encoding="s390", names="camel")
    (row,) = frame.select(record.alias("o")).select("o.orderId", "o.orderLines").collect()
    assert (row.orderId, row.orderLines[0].price) == ("O1", Decimal("0.00"))


def test_a_row_that_does_not_fit_is_an_error(spark: SparkSession) -> None:
    frame = spark.range(1).select(
        f.lit("O").alias("order_id"), f.array().cast("array<struct<a:int>>").alias("order_lines")
    )
    (row,) = frame.select(to_record(f.struct("order_id", "order_lines"), ORDER).alias("r")).collect()
    assert row.r == b"O       000"
    frame = frame.withColumn("order_id", f.lit("too long a text"))
    fields = f.struct("order_id", "order_lines")
    assert frame.select(to_record(fields, ORDER, errors="null").alias("r")).collect()[0].r is None
    with pytest.raises(PythonException, match="field order_id at offset 0: 'too long a text' has 15 bytes, of 8"):
        frame.select(to_record(fields, ORDER)).collect()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: from_record("body", "none.cpy"), "from_record: copybook: none.cpy cannot be read"),
        (lambda: from_record("body", ORDER, names="x"), "from_record: names: expected snake, camel or cobol"),
        (lambda: from_record("body", ORDER, colour="x"), "from_record: colour: Extra inputs are not permitted"),
        (lambda: to_record("o", ORDER, ccsid=1200), "to_record: ccsid: CCSID 1200 has no digits of one byte"),
    ],
)
def test_mistakes_are_reported(call: Any, why: str, spark: SparkSession) -> None:
    with pytest.raises(OptionError) as error:
        call()
    assert why in str(error.value)


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ("X(3)", pa.string()),
        ("ZZ9.9", pa.string()),
        ("S9(9)", pa.int32()),
        ("9(10)", pa.int64()),
        ("S9(18) COMP", pa.int64()),
        ("S9(19)", pa.decimal128(19, 0)),
        ("S9(31) COMP-3", pa.decimal128(31, 0)),
        ("S9(5)V99", pa.decimal128(7, 2)),
        ("SVPP99", pa.decimal128(4, 4)),
        ("S9(4)P(5)", pa.int32()),
        ("S9(4)P(6)", pa.int64()),
        ("S9(4) COMP-5", pa.int32()),
        ("9(9) COMP-5", pa.int64()),
        ("S9(9) COMP-5", pa.int32()),
        ("S9(9)V99 COMP-5", pa.decimal128(20, 2)),
        ("S9(18) COMP-5", pa.int64()),
        ("9(18) COMP-5", pa.decimal128(20, 0)),
        ("COMP-1", pa.float32()),
        ("COMP-2", pa.float64()),
    ],
)
def test_types_of_columns(tmp_path: Path, picture: str, expected: Any) -> None:
    words = picture if picture.startswith("COMP") else f"PIC {picture}"
    (tmp_path / "r.cpy").write_text(f"       01 R.\n          05 A {words}.\n")
    columns = RecordColumns(RecordConfig.model_validate({"copybook": str(tmp_path / "r.cpy"), "ccsid": 37}))
    assert columns.type == pa.struct([pa.field("a", expected)])
    # Extreme values fit their types.
    codec = RecordCodec(layout_of(parse(CopybookFiles(tmp_path / "r.cpy"))), 37, 785)
    if picture in ("S9(4) COMP-5", "9(9) COMP-5", "S9(9) COMP-5", "S9(18) COMP-5", "9(18) COMP-5", "S9(9)V99 COMP-5"):
        length = codec._layout.maximum
        for raw in (b"\x7f" + b"\xff" * (length - 1), b"\x80" + bytes(length - 1), b"\xff" * length):
            records, errors = columns.read(pa.array([raw]), pa.array([37]), pa.array([785]))
            assert errors == [None] and records.null_count == 0


@pytest.mark.parametrize("arguments", [[], ["--columns", "md.MsgId"], ["--format", "delta", "--columns", "body,queue"]])
def test_a_lake_of_records(arguments: Sequence[str], queues: Queues, tmp_path: Path) -> None:
    """Without Spark: typed columns, and a reason for each message that is not a record."""
    queue, target = queues.queue(), tmp_path / "target"
    queues.put(queue, *(order_codec().encode(order(lines)) for lines in range(3)), CodedCharSetId=1140, Encoding=785)
    queues.put(queue, order_codec(819, 530).encode(order(3)), b"no order", CodedCharSetId=819, Encoding=530)
    running = lake(queues, target, "--queue", queue, "--copybook", str(ORDER), "--once", *arguments)
    output, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    assert "5 rows written" in output
    if "delta" in arguments:
        import deltalake

        table = deltalake.DeltaTable(str(target)).to_pyarrow_table()
    else:
        table = pyarrow.dataset.dataset(str(target), format="parquet").to_table()
    if "--columns" in arguments:
        assert table.schema.names[-2:] == ["record", "record_error"]
        assert ("body" in table.schema.names) == ("delta" in arguments) and "ccsid" not in table.schema.names
    rows = sorted(table.select(["record", "record_error"]).to_pylist(), key=str)
    assert sorted((row["record"] for row in rows if row["record"]), key=str) == [order(lines) for lines in range(4)]
    assert [row["record_error"] for row in rows if row["record"] is None] == [
        "the body is not a record of order.cpy: the record is too short: 8 bytes, of 11; it ends before field"
        " line_count at offset 8"
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--copybook", "none.cpy"], "none.cpy cannot be read"),
        (["--record-option", "a=b"], "--record-option: requires --copybook"),
        (["--copybook", str(ORDER), "--record-option", "a=b"], "--record-option a: no such option"),
    ],
)
def test_mistakes_of_a_lake_are_reported(arguments: Sequence[str], why: str, queues: Queues, tmp_path: Path) -> None:
    running: subprocess.Popen[str] = lake(queues, tmp_path, "--queue", "Q", "--once", *arguments)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2 and why in errors


def test_an_unknown_encoding_is_an_error_of_the_record(tmp_path: Path) -> None:
    columns = RecordColumns(RecordConfig.model_validate({"copybook": str(ORDER), "ccsid": 37}))
    record = order_codec(37).encode(order(1))
    _, errors = columns.read(pa.array([record]), pa.array([37]), pa.array([cmqc.MQENC_FLOAT_S390]))
    assert errors[0] is not None and "Encoding 768 has no format for order_lines.quantity (COMP-3)" in errors[0]
