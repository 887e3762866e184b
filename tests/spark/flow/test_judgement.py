"""What a SELECT must not have, by the plan that Spark makes of it; where it stands; and what it may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bridge.config import PipelineConfig
from bridge.spark.flow.judgement import is_repeatable, judge
from bridge.spark.flow.mistake import Mistake
from bridge.spark.schema import MQ_SCHEMA
from tests.spark.flow.conftest import Bench

BOUNDED = "a.n = b.n AND a.put_time BETWEEN b.put_time AND b.put_time + INTERVAL 1 MINUTE"
#: A stream with a column that two rows can agree in.
NUMBERS = "(SELECT payload:n::int AS n, put_time FROM input)"
#: A stream of windows, in one of the ways to make one.
WINDOWS = "FROM input GROUP BY window(put_time, '1 minute')"

#: (SELECT, what stands at the place, words of the sentence)
REFUSED = [
    ("SELECT body FROM input LIMIT 3", "LIMIT", "without LIMIT, because rows that it leaves out would"),
    ("SELECT body FROM input LIMIT 3 OFFSET 2", "LIMIT", "without LIMIT"),
    ("SELECT body FROM (SELECT * FROM input LIMIT 3)", "LIMIT", "without LIMIT"),
    ("WITH few AS (SELECT * FROM input LIMIT 3) SELECT body FROM few", "LIMIT", "without LIMIT"),
    ("SELECT body FROM input OFFSET 2", "OFFSET", "without OFFSET"),
    ("SELECT body FROM input TABLESAMPLE (10 PERCENT)", "TABLESAMPLE", "without TABLESAMPLE"),
    (f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON a.n = b.n", "JOIN", "how far apart in time two rows"),
    (f"SELECT a.n FROM {NUMBERS} a, {NUMBERS} b WHERE a.n = b.n", None, "how far apart in time two rows"),
    (
        f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON a.n = b.n AND a.put_time >= b.put_time",
        "JOIN",
        "how far apart in time two rows",
    ),
    ("SELECT a.body FROM unmarked a JOIN unmarked b ON a.queue = b.queue", "JOIN", "a watermark on both sides"),
    (
        "SELECT body FROM (SELECT * FROM input WATERMARK put_time DELAY OF INTERVAL 1 SECOND)"
        " WATERMARK put_time DELAY OF INTERVAL 2 SECONDS",
        "WATERMARK",
        "one WATERMARK at most",
    ),
]


@pytest.fixture
def selected(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], DataFrame]]:
    """A SELECT over messages, and over a table `t`."""
    messages = spark.readStream.schema(MQ_SCHEMA).parquet(str(tmp_path)).withColumn("payload", f.expr("try_parse_json(text)"))
    messages.withWatermark("put_time", "10 seconds").createOrReplaceTempView("input")
    messages.createOrReplaceTempView("unmarked")
    spark.createDataFrame([(1, 2)], "x int, y int").createOrReplaceTempView("t")
    yield spark.sql
    for name in ("input", "unmarked", "t"):
        spark.catalog.dropTempView(name)


def pipeline(select: str) -> PipelineConfig:
    rest = {"from": {"mq": {"queue": "Q"}}, "to": {"mq": {"queue": "R"}}}
    return PipelineConfig.model_validate({**rest, "select": select})


@pytest.mark.parametrize(("select", "at", "words"), REFUSED)
def test_refused(select: str, at: str | None, words: str, selected: Callable[[str], DataFrame]) -> None:
    with pytest.raises(Mistake) as raised:
        judge(selected(select), pipeline(select))
    mistake = raised.value
    assert mistake.location == ("select",) and words in str(mistake)
    if at is not None:
        assert mistake.position is not None and select[mistake.position :].startswith(at)


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON {BOUNDED}",
        f"SELECT a.n FROM {NUMBERS} a, {NUMBERS} b WHERE {BOUNDED}",
        f"SELECT n, put_time FROM {NUMBERS} a JOIN {NUMBERS} b USING (n, put_time)",
        "SELECT body FROM input JOIN t ON ccsid = x WHERE md.Priority IN (SELECT max(y) FROM t LIMIT 1)",
    ],
)
def test_taken(select: str, selected: Callable[[str], DataFrame]) -> None:
    judge(selected(select), pipeline(select))


#: (SELECT, to queues, to tables: whether a batch comes out the same when it is run again, as far as they mind)
REPEATABLE = [
    ("SELECT *, current_timestamp() AS at, current_date AS day, unix_timestamp() AS s FROM input", True, True),
    ("SELECT payload:n::int AS n, put_time FROM input WHERE payload:n::int > 1", True, True),
    ("WITH good AS (SELECT * FROM input) SELECT explode(split(queue, ',')) FROM good", True, True),
    ("SELECT uuid() AS id, put_time FROM input", False, True),
    ("SELECT upper(concat('x', rand())) AS id FROM input", False, True),
    ("SELECT body FROM input WHERE rand(3) < 0.5", False, True),
    ("SELECT monotonically_increasing_id() AS id FROM input", False, True),
    ("SELECT reflect('java.util.UUID', 'randomUUID') AS id FROM input", False, True),
    ("SELECT unix_timestamp(now()) AS at FROM input", False, True),
    ("SELECT timestamp_seconds(rand() * 1e9) AS received FROM input", False, False),
    ("SELECT body FROM input JOIN t ON ccsid = x", False, False),
    ("SELECT body FROM input WHERE md.Priority IN (SELECT y FROM t)", False, False),
    ("SELECT body FROM input DISTRIBUTE BY queue", False, False),
    ("SELECT /*+ REPARTITION(3) */ body FROM input", False, False),
    (f"SELECT count(*) AS n {WINDOWS}", False, False),
    (f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON {BOUNDED}", False, False),
]


@pytest.mark.parametrize(("select", "queue", "table"), REPEATABLE)
def test_repeatable(select: str, queue: bool, table: bool, selected: Callable[[str], DataFrame]) -> None:
    made = selected(select)
    destinations = ({"mq"}, {"archive"}, {"mq", "archive"}, {"mqtt"}, {"rows"})
    assert [is_repeatable(made, one) for one in destinations] == [queue, table, queue, True, True]


@pytest.mark.parametrize(
    ("keys", "staged"),
    [
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {archive: a, mq: {queue: R}}", True),
        ("select: 'SELECT body, put_time FROM input', to: {archive: a}, changes: {key: [put_time]}", True),
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {archive: a}", False),
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {mqtt: a}", False),
        ("select: SELECT body FROM input WHERE rand() > 0.5, mapping: out", False),
    ],
)
def test_batches_that_are_kept_before_they_are_written(keys: str, staged: bool, bench: Bench) -> None:
    """By the destinations that a pipeline has, or its mapping."""
    out = "out: {enabled: false, from: {queue: Q}, to: {mqtt: a}}"
    bench.write(f"{{mappings: {{{out}}}, pipelines: {{a: {{from: {{mq: {{queue: Q}}}}, {keys}}}}}}}")
    assert (bench.plan("a").staging is not None) == staged
