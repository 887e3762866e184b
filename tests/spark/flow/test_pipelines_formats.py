"""Destinations that formats of Spark's write to, beside others; each batch written to one after the other."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bridge.spark.flow.mistake import Mistake
from bridge.spark.flow.sink import BatchWriter, FormatRoute, Written
from tests.spark.flow.conftest import Bench


def table(spark: SparkSession, url: str, name: str) -> DataFrame:
    reader = spark.read.format("jdbc").option("url", url).option("dbtable", name)
    return reader.option("driver", "org.apache.derby.jdbc.EmbeddedDriver").option("user", "me").load()


def test_rows_go_to_a_table_of_jdbc_and_to_a_queue(bench: Bench) -> None:
    """By Derby, which Spark brings; the password comes from a file."""
    source, target = bench.queues.queue(), bench.queues.queue()
    (bench.directory / "password").write_text("p\n")
    url = f"jdbc:derby:memory:{source};create=true"
    bench.write(
        """
        pipelines:
          one:
            from: {mq: {queue: $source}}
            select: SELECT payload:id::int AS id, payload AS whole FROM input
            batch: 3
            to:
              mq: {queue: $target}
              format: jdbc
              options: {url: "$url", dbtable: READINGS, driver: org.apache.derby.jdbc.EmbeddedDriver, user: me}
              secrets: {password: password}
        """,
        source=source,
        target=target,
        url=url,
    )
    bench.queues.put(source, *[b'{"id": %d}' % number for number in range(7)])
    bench.run()
    rows = table(bench.spark, url, "READINGS").orderBy("id").collect()
    assert [(row.id, row.whole) for row in rows] == [(number, f'{{"id":{number}}}') for number in range(7)]
    assert len(bench.queues.bodies(target)) == 7 and bench.queues.depth(source) == 0
    assert [(batch.rows, batch.made) for batch in bench.batches] == [(3, 3), (3, 3), (1, 1)]


def test_rows_go_to_files_by_their_columns(bench: Bench) -> None:
    """A path counts from the file of the configuration."""
    source = bench.queues.queue()
    bench.write(
        """
        pipelines:
          one:
            from: {mq: {queue: $source}}
            select: SELECT payload:line::string AS line, payload:n::int AS n FROM input
            to: {format: parquet, path: rows, partitionBy: [line], options: {compression: zstd}}
        """,
        source=source,
    )
    bench.queues.put(source, b'{"line": "a", "n": 1}', b'{"line": "b", "n": 2}')
    bench.run()
    assert sorted(one.name for one in (bench.directory / "rows").iterdir() if one.is_dir()) == ["line=a", "line=b"]
    found = bench.spark.read.parquet(str(bench.directory / "rows")).orderBy("n").collect()
    assert [(row.n, row.line) for row in found] == [(1, "a"), (2, "b")]


def test_a_format_that_is_not_there_is_a_mistake(bench: Bench) -> None:
    bench.write(
        """
        pipelines:
          one:
            from: {mq: {queue: Q}}
            select: SELECT body FROM input
            to: {format: delta, path: "s3a://bucket/rows"}
        """
    )
    with pytest.raises(Mistake, match=r"expected a format that this Spark has .*, found 'delta'") as mistake:
        bench.plan("one")
    assert mistake.value.location == ("to", "format")


class Frame:
    """A batch whose writer tells what it is asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.sparkSession = self.sparkContext = self.write = self

    def getLocalProperty(self, name: str) -> str:
        return {"sql.streaming.queryId": "the query"}[name]

    def select(self, *columns: str) -> Frame:
        self.asked["columns"] = columns
        return self

    def format(self, name: str) -> Frame:
        self.asked["format"] = name
        return self

    def options(self, **options: str) -> Frame:
        self.asked["options"] = options
        return self

    def mode(self, name: str) -> Frame:
        self.asked["mode"] = name
        return self

    def save(self) -> None:
        self.asked["saved"] = True


def test_delta_is_told_which_batch_it_is() -> None:
    """So that it writes a batch that comes again once. (Its jar is not run here.)"""
    frame: Any = Frame()
    writer = BatchWriter([FormatRoute("delta", {"path": "s3a://bucket/rows"}, {}, [])])
    writer(frame, 7)
    options = {"path": "s3a://bucket/rows", "txnAppId": "the query", "txnVersion": "7"}
    assert frame.asked == {"columns": ("rows.*",), "format": "delta", "options": options, "mode": "append", "saved": True}
    assert writer.written == {7: Written()}
