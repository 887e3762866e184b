"""The casts of a SELECT, found in plans as Spark shows them; and what is wrong with payloads, as Spark judges them."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bridge.spark.flow.bad_rows.payload import casts, declared, is_read, wrong_type
from bridge.spark.schema import MQ_SCHEMA, MQTT_SCHEMA
from bridge.wire.mq.ccsid import character_set
from tests.spark.flow.conftest import Bench

#: Expressions over `payload` -> (path, type) of the casts that end a query where they cannot be done.
CASTS = {
    "payload:a::double": {("$.a", "double")},
    "payload:a.b[0].c::int + 1": {("$.a.b[0].c", "int")},
    "CAST(payload:a AS TIMESTAMP)": {("$.a", "timestamp")},
    "variant_get(payload, '$.a', 'boolean')": {("$.a", "boolean")},
    "variant_get(payload, '$.a', 'long')": {("$.a", "bigint")},
    "concat(payload:a::string, payload:b::string)": {("$.a", "string"), ("$.b", "string")},
    "try_variant_get(payload, '$.a', 'int')": set(),
    "try_cast(payload:a AS INT)": set(),
    "payload:a": set(),
    "schema_of_variant(payload)": set(),
}


@pytest.mark.parametrize("expression", CASTS)
def test_casts(expression: str, spark: SparkSession) -> None:
    frame = spark.sql("SELECT parse_json('{}') AS payload").selectExpr(f"{expression} AS x")
    assert set(casts(frame._jdf.queryExecution().analyzed().toString())) == CASTS[expression]


JUDGED = [
    ('{"a": {"b": 1.5}}', None),
    ('{"a": {"b": null}}', None),
    ('{"a": 1}', None),
    ("{}", None),
    ("3", None),
    ('{"a": {"b": "1.5"}}', None),  # as :: has it
    ('{"a": {"b": "x"}}', 'a.b of the payload is no double: "x"'),
    ('{"a": {"b": {"c": 1}}}', 'a.b of the payload is no double: {"c":1}'),
    ("{", "the payload is no JSON, or names a member twice"),
    ('{"a": 1, "a": 2}', "the payload is no JSON, or names a member twice"),
]


def test_wrong_types(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text.encode(),) for text, _ in JUDGED], "body binary")
    rows = frame.selectExpr("CAST(body AS STRING)", wrong_type("CAST(body AS STRING)", declared({"a.b": "double"})))
    assert {row[0]: row[1] for row in rows.collect()} == dict(JUDGED)


#: (type, JSON of a field, whether a cast makes another number of it, or none)
NUMBERS = [
    ("int", "3.7", True),
    ("int", "3.0", False),
    ("int", "-3", False),
    ("int", "3e2", False),
    ("int", '"3"', False),
    ("int", "true", False),
    ("bigint", "9223372036854775807", False),
    ("bigint", "9223372036854775808", True),
    ("bigint", "0.5", True),
    ("tinyint", "300", True),
    ("double", "1" + "0" * 400, True),
    ("double", "-1e400", True),
    ("double", "1e300", False),
    ("double", "0.1", False),
    ("double", '"Infinity"', False),
    ("float", "1e300", True),
    ("string", "3.7", False),
]


def test_numbers_that_a_cast_would_change(spark: SparkSession) -> None:
    for kind in {kind for kind, *_ in NUMBERS}:
        texts = {text: wrong for one, text, wrong in NUMBERS if one == kind}
        frame = spark.createDataFrame([(text,) for text in texts], "text string")
        document = "concat('{\"a\": ', text, '}')"
        rows = frame.selectExpr("text", f"{wrong_type(document, declared({'a': kind}))} IS NOT NULL").collect()
        assert {row[0]: row[1] for row in rows} == texts


#: SELECTs over a view `one` of publications, and whether they read their payload.
READ = {
    "SELECT body FROM one": False,
    "SELECT topic, count(*) AS n FROM one GROUP BY topic": False,
    "SELECT * EXCEPT (payload) FROM one": False,
    "SELECT parse_json('{}') AS payload, topic FROM one": False,
    "SELECT topic FROM (SELECT * FROM one)": False,
    "SELECT * FROM one": True,
    "SELECT topic FROM one WHERE payload:a IS NOT NULL": True,
    "SELECT topic, count(payload) AS n FROM one GROUP BY topic": True,
    "SELECT a.body FROM one a JOIN one b ON a.topic = b.payload:topic::string": True,
    "SELECT no_such_column FROM one": True,
    # Spark computes these while it plans, and has no plan then.
    "SELECT body, 1 DIV 0 AS x FROM one": True,
    "SELECT body, CAST('x' AS INT) AS x FROM one": True,
}


@pytest.mark.parametrize("select", READ)
def test_whether_a_payload_is_read(select: str, spark: SparkSession) -> None:
    source = spark.createDataFrame([], MQTT_SCHEMA)
    assert is_read(spark, source, "payload", select, "one") is READ[select]
    spark.catalog.dropTempView("one")


def test_whether_the_body_of_a_message_is_read(spark: SparkSession) -> None:
    source = spark.createDataFrame([], MQ_SCHEMA)
    assert not is_read(spark, source, "body", "SELECT body, md FROM one", "one")
    assert is_read(spark, source, "body", "SELECT body, payload:a::int AS a FROM one", "one")
    spark.catalog.dropTempView("one")


def test_text_by_its_ccsid(bench: Bench) -> None:
    """As text and as JSON; what is no text in its CCSID is a dead letter that says so, and a message keeps its CCSID."""
    source, target, same = (bench.queues.queue() for _ in range(3))
    texts = {
        500: ("é[1]".encode("cp500"), "é[1]"),
        819: (b"\xe91", "é1"),
        1200: ("é2".encode("utf-16-be"), "é2"),
        1208: ("é3".encode(), "é3"),
    }
    wrong = {1208: b"\xff", 1200: b"\0", 99999: b"x"}
    for payload, made in (("text", "{}"), ("json", '{{"a": "{}"}}')):
        bench.write(
            """
            pipelines:
              $payload:
                from: {mq: {queue: $source}}
                payload: $payload
                select: "SELECT $what AS text, ccsid AS c FROM input"
                to: {mq: {queue: $target}}
                dead_letters: {archive: bad-$payload}
            """,
            payload=payload,
            what="payload" if payload == "text" else "payload:a::string",
            source=source,
            target=target,
        )
        for ccsid, (_, text) in texts.items():
            characters = character_set(ccsid, 273)
            assert characters is not None
            data = characters.encode(made.format(text))
            bench.queues.put(source, data, Format=b"MQSTR", CodedCharSetId=ccsid, Encoding=273)
        for ccsid, data in wrong.items():
            bench.queues.put(source, data, Format=b"MQSTR", CodedCharSetId=ccsid, Encoding=273)
        bench.queues.put(source, made.format("no MQSTR").encode(), CodedCharSetId=500)  # no text that MQ would convert
        bench.run()
        rows = [json.loads(body) for body in bench.queues.bodies(target)]
        expected = {(text, ccsid) for ccsid, (_, text) in texts.items()} | {("no MQSTR", 500)}
        assert {(row["text"], row["c"]) for row in rows} == expected and len(rows) == len(expected)
        assert bench.queues.depth(source) == 0
        bad = [row for file in (bench.directory / f"bad-{payload}").iterdir() for row in pq.read_table(file).to_pylist()]
        reasons = {(row["ccsid"], row["body"]): row["reason"] for row in bad}
        assert set(reasons) == set(wrong.items())
        assert "99999, which the message says it has, is not known" in reasons[99999, b"x"]
        assert "no text in CCSID 1208" in reasons[1208, b"\xff"] and "no text in CCSID 1200" in reasons[1200, b"\0"]
        assert bench.batches[-1].found == "the payload is no text in its CCSID"
    bench.write(
        "pipelines: {same: {from: {mq: {queue: $source}}, payload: text, to: {mq: {queue: $same}},"
        " select: 'SELECT concat(payload, payload) AS body, md FROM input'}}",
        source=source,
        same=same,
    )
    bench.queues.put(source, texts[500][0], Format=b"MQSTR", CodedCharSetId=500)
    bench.run()
    (message,) = bench.queues.take(same)
    assert (message.data, message.md.CodedCharSetId) == (texts[500][0] * 2, 500)
