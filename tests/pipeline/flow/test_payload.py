"""The casts of a SELECT, found in plans as Spark shows them; and what is wrong with payloads, as Spark judges them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bridge.pipeline.flow.payload import casts, declared, is_read, wrong_type
from bridge.pipeline.schema import MQ_SCHEMA, MQTT_SCHEMA

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
    rows = frame.selectExpr("CAST(body AS STRING)", wrong_type("body", declared({"a.b": "double"})))
    assert {row[0]: row[1] for row in rows.collect()} == dict(JUDGED)


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
