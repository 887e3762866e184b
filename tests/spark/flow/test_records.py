"""Pipelines of COBOL records: typed columns to Parquet, rows to records, dead letters, and a copybook that changes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bridge.config.document import load
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import problems
from bridge.record.codec import RecordCodec
from bridge.record.copybook import CopybookFiles, parse
from bridge.record.layout import AlternativeChoice, layout_of
from bridge.spark.failures import Mistake
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.spark.flow.conftest import Bench

COPYBOOK = """\
       01  STOCK.
           05  ARTICLE                  PIC X(6).
           05  ON-STOCK                 PIC S9(5) COMP-3.
           05  PRICE                    PIC S9(5)V99 COMP-3.
           05  PLACE                    OCCURS 2.
               10  SHELF                PIC 9(3) COMP.
               10  WEIGHT               COMP-2.
           05  KIND                     PIC X.
           05  DETAIL                   PIC X(4).
           05  DETAIL-NUMBER            REDEFINES DETAIL PIC 9(4).
"""
TYPES = (
    "struct<article:string,on_stock:int,price:decimal(7,2),place:array<struct<shelf:int,weight:double>>,kind:string,"
    "detail:string,detail_number:int>"
)


@pytest.fixture
def copybook(bench: Bench) -> Path:
    path = bench.directory / "stock.cpy"
    path.write_text(COPYBOOK)
    return path


def stock(number: int, **more: Any) -> dict[str, Any]:
    place = [{"shelf": number, "weight": 0.5}, {"shelf": 2, "weight": -1.25}]
    document = {"article": f"A{number}", "on_stock": -number, "price": Decimal(number) / 4, "place": place, "kind": "T"}
    return document | {"detail": "ab"} | more


def codec(copybook: Path, ccsid: int = 1140, encoding: int = 785) -> RecordCodec:
    return RecordCodec(layout_of(parse(CopybookFiles(copybook))), ccsid, encoding)


def put(bench: Bench, queue: str, records: list[bytes], ccsid: int = 1140, encoding: int = 785) -> None:
    bench.queues.put(queue, *records, Format=cmqc.MQFMT_NONE, CodedCharSetId=ccsid, Encoding=encoding)


CHOICE = "detail: {field: kind, items: {N: detail_number, T: detail}}"


def test_records_of_several_machines_become_typed_parquet(bench: Bench, copybook: Path) -> None:
    queue, dead = bench.queues.queue(), bench.queues.queue()
    put(bench, queue, [codec(copybook).encode(stock(1)), b"short"])
    put(bench, queue, [codec(copybook, 819, 530).encode(stock(2))], 819, 530)
    number = codec(copybook).encode(stock(3, kind="N", detail="0042"))
    put(bench, queue, [number, number[:6] + b"\x40\x40\x40" + number[9:]])
    bench.write(
        """
        pipelines:
          p:
            from: {mq: {queue: $queue}}
            payload: {type: record, copybook: stock.cpy, redefines: {$choice}}
            select: SELECT payload.* FROM input
            to: {archive: out}
            dead_letters: {queue: $dead}
        """,
        queue=queue, dead=dead, choice=CHOICE,
    )  # fmt: skip
    bench.run()
    rows = bench.spark.read.parquet(str(bench.directory / "out")).drop("date", "hour")
    assert rows.schema.simpleString() == TYPES
    records = {row["article"]: row.asDict(recursive=True) for row in rows.collect()}
    assert records["A1"] == stock(1) | {"detail_number": None}
    assert records["A2"] == stock(2) | {"detail_number": None}
    assert records["A3"] == stock(3, kind="N", detail=None, detail_number=42)
    letters = [decode_mqdlh(message.data) for message in bench.queues.take(dead)]
    assert [letter.Reason for letter in letters] == [cmqc.MQRC_FORMAT_ERROR] * 2
    assert bench.sums() == {"in": 5, "out": 3, "dead": 2}
    why = "too short: 5 bytes, of 38", "field on_stock at offset 6 (X'404040')"
    assert any(reason in (bench.batches[0].why or "") for reason in why)


def test_the_copybook_of_the_example_becomes_typed_parquet(bench: Bench) -> None:
    """As docs/how-to/records.md shows, for answers of a CICS program."""
    queue = bench.queues.queue()
    copybook = Path(__file__).resolve().parents[3] / "mappings" / "stock.cpy"
    choice = {"answer_stock": AlternativeChoice("answer_kind", {"S": "answer_stock", "E": "answer_error_text"})}
    layout = layout_of(parse(CopybookFiles(copybook)), "STOCK-ANSWER", redefines=choice)
    stock = {
        "article": "A-1",
        "article_name": "Bolt M4",
        "on_stock": 1200,
        "unit_price": Decimal("0.35"),
        "delivery_date": "",
    }
    answers: list[dict[str, Any]] = [
        {"return_code": 0, "request_number": 42, "answer_kind": "S", "answer_stock": stock},
        {"return_code": 8, "request_number": 43, "answer_kind": "E", "answer_error_text": "no stock"},
    ]
    put(bench, queue, [RecordCodec(layout, 1140, 785).encode(answer) for answer in answers])
    bench.write(
        """
        pipelines:
          stock:
            from: {mq: {queue: $queue}}
            payload:
              type: record
              copybook: $copybook
              record: STOCK-ANSWER
              redefines: {answer_stock: {field: answer_kind, items: {S: answer_stock, E: answer_error_text}}}
            select: SELECT payload.* FROM input
            to: {archive: out/stock}
        """,
        queue=queue, copybook=copybook,
    )  # fmt: skip
    bench.run()
    rows = bench.spark.read.parquet(str(bench.directory / "out" / "stock")).drop("date", "hour")
    assert rows.schema.simpleString() == (
        "struct<return_code:int,request_number:int,answer_kind:string,answer_stock:struct<article:string,"
        "article_name:string,on_stock:int,unit_price:decimal(7,2),delivery_date:string>,answer_error_text:string>"
    )
    records = {row["request_number"]: row.asDict(recursive=True) for row in rows.collect()}
    assert records == {42: answers[0] | {"answer_error_text": None}, 43: answers[1] | {"answer_stock": None}}


def test_windows_of_records(bench: Bench, copybook: Path) -> None:
    queue = bench.queues.queue()
    put(bench, queue, [codec(copybook).encode(stock(number)) for number in (1, 2, 3)])
    bench.write(
        """
        pipelines:
          p:
            from: {mq: {queue: $queue}}
            payload: {type: record, copybook: stock.cpy}
            select: SELECT sum(payload.price) AS total, window(put_time, '1 hour').start AS t FROM input
              GROUP BY window(put_time, '1 hour')
            watermark: 0 s
            to: {archive: out}
        """,
        queue=queue,
    )  # fmt: skip
    pipeline = bench.plan("p")
    assert pipeline.stateful and pipeline.validation.payload == "record"
    assert dict(pipeline.frame.dtypes)["row"].startswith("struct<total:decimal(17,2),t:timestamp>")


def test_rows_become_records_or_dead_letters(bench: Bench, copybook: Path) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.queues.put(queue, b'{"a": "A1", "n": 5}', b'{"a": "A2", "n": 100000}', b'{"a": "too long", "n": 1}')
    for letters in (f"{{queue: {dead}}}", "{archive: dead}"):
        bench.queues.put(queue, b'{"a": "A1", "n": 5}', b'{"a": "A2", "n": 100000}', b'{"a": "too long", "n": 1}')
        bench.write(
            """
            pipelines:
              p:
                from: {mq: {queue: $queue}}
                schema: {a: string, n: int}
                select: >
                  SELECT payload:a::string AS article, payload:n::int AS on_stock, 'T' AS kind, 0.5D AS price,
                  array(named_struct('shelf', 7, 'weight', 1.5D)) AS place FROM input
                to:
                  mq:
                    queue: $out
                    record: {copybook: stock.cpy, ccsid: 1140, default: {place.shelf: 0, place.weight: 0, detail: x}}
                dead_letters: $letters
            """,
            queue=queue, out=out, letters=letters,
        )  # fmt: skip
        bench.run()
    messages = bench.queues.take(out)
    assert {(message.md.CodedCharSetId, message.md.Encoding, message.md.Format) for message in messages} == {
        (1140, 785, cmqc.MQFMT_NONE)
    }
    place = [{"shelf": 7, "weight": Decimal("1.5")}, {"shelf": 0, "weight": Decimal("0.0")}]
    expected = {"article": "A1", "on_stock": 5, "price": Decimal("0.50"), "place": place, "kind": "T", "detail": "x"}
    assert [codec(copybook).decode(message.data) for message in messages] == [expected] * 3
    letters_put = bench.queues.take(dead)
    assert len(letters_put) == 4 and all(message.data.endswith(b"}") for message in letters_put)
    reasons = {row["reason"] for row in bench.spark.read.parquet(str(bench.directory / "dead")).collect()}
    assert len(reasons) == 2
    assert any("field on_stock at offset 6: 100000 does not fit S9(5) COMP-3" in reason for reason in reasons)
    assert any("field article at offset 0: 'too long' has 8 bytes, of 6 at most" in reason for reason in reasons)


def test_a_mapping_of_records_in_a_pipeline(bench: Bench, copybook: Path) -> None:
    out = bench.queues.queue()
    body = b'{"article":"A1","on_stock":5,"price":1.50,"place":[{"shelf":1,"weight":0.5},{"shelf":2,"weight":1.0}],"kind":"T"'
    rows = bench.spark.createDataFrame(
        [("stock", bytearray(body + b',"detail":"ab"}'))], "topic string, payload binary"
    )
    rows.write.parquet(str(bench.directory / "archive"))
    bench.write(
        """
        mappings:
          m:
            enabled: false
            from: {mqtt: stock}
            to: {queue: $out}
            payload: {type: record, copybook: stock.cpy, ccsid: 1140}
            attributes: {rfh2: $rfh2}
        pipelines:
          p:
            from: {archive: archive}
            mapping: m
        """,
        out=out, rfh2="false",
    )  # fmt: skip
    bench.run()
    (message,) = bench.queues.take(out)
    record = message.data[-38:]
    assert codec(copybook).decode(record)["price"] == Decimal("1.50")
    header = message.data[: len(message.data) - 38]
    described = int.from_bytes(header[12:16], "little") if header else message.md.Encoding
    assert described == 785


def test_a_changed_copybook_between_a_failure_and_its_repetition(bench: Bench, copybook: Path) -> None:
    """A batch that began with other records is not finished with these."""
    queue = bench.queues.queue()
    put(bench, queue, [codec(copybook).encode(stock(1))])
    text = """
        pipelines:
          p:
            from: {mq: {queue: $queue}}
            payload: {type: record, copybook: stock.cpy}
            select: SELECT payload.* FROM input
            to: {archive: out}
        """
    bench.write(text, queue=queue)
    first = bench.plan("p").validation
    assert first == bench.plan("p").validation
    copybook.write_text(COPYBOOK.replace("X(6)", "X(8)"))
    assert first != bench.plan("p").validation
    copybook.write_text(COPYBOOK)
    bench.run()
    assert bench.sums() == {"in": 1, "out": 1}


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        ("payload: {type: record}, to: {archive: o}", "payload.copybook: expected a copybook (the file that describes"),
        ("payload: {type: cobol, copybook: x}, to: {archive: o}", "payload.type: expected record, found 'cobol'"),
        ("payload: record, to: {archive: o}", "payload: expected json, text or bytes (or a mapping with type: record"),
        ("payload: {type: record, copybook: none.cpy}, to: {archive: o}", "payload.copybook: expected a copybook and"),
        ("payload: {type: record, copybook: stock.cpy, ccsid: 1200}, to: {archive: o}", "payload.ccsid: expected"),
        (
            "payload: {type: record, copybook: stock.cpy, round: down}, to: {archive: o}",
            "payload.round: expected no round",
        ),
        ("payload: {type: record, copybook: stock.cpy}, schema: {a: int}, to: {archive: o}", "expected no schema"),
        ("to: {mq: {queue: Q, record: {copybook: stock.cpy, default: {x: 1}}}}", "to.mq.record.default.x: expected"),
        ("to: {mq: {queue: Q, record: {ccsid: 37}}}", "to.mq.record.copybook: expected a copybook"),
        (
            "to: {archive: o}, late: {window: 0, mq: {queue: Q, record: {copybook: stock.cpy}}}",
            "late.mq.record: expected no record",
        ),
    ],
)
def test_mistakes_have_a_place_in_the_file(bench: Bench, copybook: Path, pipeline: str, why: str) -> None:
    bench.write(f"pipelines: {{p: {{from: {{mq: {{queue: Q}}}}, {pipeline}}}}}")
    with pytest.raises(ConfigurationError) as error:
        load(bench.file, problems)
    assert why in str(error.value) and "bridge.yaml:1:" in str(error.value)


def test_the_columns_of_the_source_must_describe_the_records(bench: Bench, copybook: Path) -> None:
    bench.write(
        "pipelines: {p: {from: {mq: {queue: Q}, options: {columns: body}}, payload: {type: record, copybook: stock.cpy},"
        " to: {archive: o}, select: SELECT payload.article FROM input}}"
    )
    with pytest.raises(Mistake, match="the column ccsid of the records"):
        bench.plan("p", reads=False)
