"""The columns of `input` that a SELECT reads, from Catalyst's plan. The source need not read other columns."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from bridge.spark.internals import columns_read

ALL = {"a", "b", "c", "payload"}
READS = {
    "SELECT a FROM input": {"a"},
    "SELECT * FROM input": ALL,
    "FROM input": ALL,
    "SELECT a AS payload FROM input": {"a"},
    "SELECT 'payload' AS b FROM input WHERE c > 1": {"c"},
    "SELECT count(*) FROM input": set(),
    "SELECT to_json(struct(*)) AS body FROM input": ALL,
    "SELECT a * 2, b FROM input -- payload": {"a", "b"},
    "SELECT payload:n::int FROM input": {"payload"},
    "SELECT `payload` FROM input i": {"payload"},
    "SELECT i.A FROM input AS i JOIN input AS j ON i.a = j.b": {"a", "b"},
    "SELECT i.a FROM input AS i NATURAL JOIN (SELECT a, b FROM input) AS j": ALL,
    "SELECT a FROM input UNION ALL SELECT c FROM input": {"a", "c"},
    "SELECT a FROM (SELECT * FROM input)": ALL,
    "WITH x AS (SELECT a, b FROM input) SELECT a FROM x": {"a", "b"},
    "SELECT a FROM input WHERE b IN (SELECT c FROM input)": {"a", "b", "c"},
    "SELECT a, sum(b) FROM input GROUP BY a HAVING max(c) > 1": {"a", "b", "c"},
    "SELECT * EXCEPT (payload) FROM input": {"a", "b", "c"},
    "SELECT DISTINCT a FROM input ORDER BY a": {"a"},
    "SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) FROM input": {"a", "b", "c"},
    "SELECT a, e FROM input LATERAL VIEW explode(array(b)) AS e": {"a", "b"},
}


def test_columns_read(spark: SparkSession, subtests: pytest.Subtests) -> None:
    rows = spark.range(1).selectExpr("id AS a", "id AS b", "id AS c", "parse_json('{}') AS payload")
    rows.createOrReplaceTempView("input")
    for select, columns in READS.items():
        with subtests.test(select=select):
            assert columns_read(spark.sql(select), "input") == columns
    spark.catalog.dropTempView("input")
