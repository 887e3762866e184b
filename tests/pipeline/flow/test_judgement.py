"""What a SELECT must not have, by the plan that Spark makes of it; where it stands; and what it may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bridge.config import PipelineConfig
from bridge.pipeline.flow.judgement import judge
from bridge.pipeline.flow.mistake import Mistake
from bridge.pipeline.schema import MQ_SCHEMA
from tests.pipeline.flow.conftest import Bench

SAME_ROWS = "a batch that is run again has to make the same rows"
BOUNDED = "a.n = b.n AND a.put_time BETWEEN b.put_time AND b.put_time + INTERVAL 1 MINUTE"
#: A stream with a column that two rows can agree in.
NUMBERS = "(SELECT payload:n::int AS n, put_time FROM input)"
#: A stream of windows, in one of the ways to make one.
WINDOWS = "FROM input GROUP BY window(put_time, '1 minute')"

#: Kinds of destinations.
QUEUE, TABLE, BROKER, ALL = {"mq"}, {"archive"}, {"mqtt"}, {"mq", "archive", "mqtt"}

#: (SELECT, destinations, what stands at the place, words of the sentence)
REFUSED = [
    ("SELECT body FROM input LIMIT 3", BROKER, "LIMIT", "without LIMIT, because rows that it leaves out would"),
    ("SELECT body FROM input LIMIT 3 OFFSET 2", QUEUE, "LIMIT", "without LIMIT"),
    ("SELECT body FROM (SELECT * FROM input LIMIT 3)", QUEUE, "LIMIT", "without LIMIT"),
    ("WITH few AS (SELECT * FROM input LIMIT 3) SELECT body FROM few", QUEUE, "LIMIT", "without LIMIT"),
    ("SELECT body FROM input OFFSET 2", QUEUE, "OFFSET", "without OFFSET"),
    ("SELECT body FROM input TABLESAMPLE (10 PERCENT)", BROKER, "TABLESAMPLE", "without TABLESAMPLE"),
    ("SELECT uuid() AS id, put_time FROM input", QUEUE, "uuid", SAME_ROWS),
    ("SELECT upper(concat('x', rand())) AS id FROM input", ALL, "rand", SAME_ROWS),
    ("SELECT body FROM input WHERE rand(3) < 0.5", QUEUE, "rand", SAME_ROWS),
    ("SELECT monotonically_increasing_id() AS id FROM input", QUEUE, "monotonically_increasing_id", SAME_ROWS),
    ("SELECT reflect('java.util.UUID', 'randomUUID') AS id FROM input", QUEUE, "reflect", SAME_ROWS),
    ("SELECT body FROM input JOIN (SELECT x, uuid() AS y FROM t) ON ccsid = x", QUEUE, "uuid", SAME_ROWS),
    ("SELECT now() AS at FROM input", QUEUE, "now", "fixed for the batch (current_timestamp())"),
    (f"SELECT first(queue) AS q {WINDOWS}", QUEUE, "first", "depends on the order of rows"),
    (f"SELECT any_value(queue) AS q {WINDOWS}", TABLE, "any_value", "depends on the order of rows"),
    (f"SELECT collect_list(queue) AS q {WINDOWS}", QUEUE, "collect_list", "sort_array"),
    (f"SELECT array_join(collect_set(queue), '') AS q {WINDOWS}", QUEUE, "collect_set", "sort_array"),
    (f"SELECT count(*) AS n, rand() AS r {WINDOWS}", TABLE, "rand", SAME_ROWS),
    ("SELECT timestamp_seconds(rand() * 1e9) AS received FROM input", TABLE, "rand", SAME_ROWS),
    ("SELECT /*+ REPARTITION(3) */ body FROM input", QUEUE, "/*+ REPARTITION(3) */", "DISTRIBUTE BY"),
    ("SELECT /*+ REPARTITION_BY_RANGE(3, queue) */ queue FROM input", TABLE, "/*+ REPARTITION_BY_RANGE", "DISTRIBUTE BY"),
    ("SELECT /*+ REBALANCE */ body FROM input", QUEUE, "/*+ REBALANCE */", "DISTRIBUTE BY"),
    (f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON a.n = b.n", BROKER, "JOIN", "how far apart in time two rows"),
    (f"SELECT a.n FROM {NUMBERS} a, {NUMBERS} b WHERE a.n = b.n", QUEUE, None, "how far apart in time two rows"),
    (
        f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON a.n = b.n AND a.put_time >= b.put_time",
        QUEUE,
        "JOIN",
        "how far apart in time two rows",
    ),
    ("SELECT a.body FROM unmarked a JOIN unmarked b ON a.queue = b.queue", BROKER, "JOIN", "a watermark on both sides"),
    (
        "SELECT body FROM (SELECT * FROM input WATERMARK put_time DELAY OF INTERVAL 1 SECOND)"
        " WATERMARK put_time DELAY OF INTERVAL 2 SECONDS",
        QUEUE,
        "WATERMARK",
        "one WATERMARK at most",
    ),
]


Judge = Callable[[str, set[str]], None]


@pytest.fixture
def judged(spark: SparkSession, tmp_path: Path) -> Iterator[Judge]:
    """`judged(select, destinations)`: the judgement of a SELECT over messages, and over a table `t`."""
    messages = spark.readStream.schema(MQ_SCHEMA).parquet(str(tmp_path)).withColumn("payload", f.expr("try_parse_json(text)"))
    messages.withWatermark("put_time", "10 seconds").createOrReplaceTempView("input")
    messages.createOrReplaceTempView("unmarked")
    spark.createDataFrame([(1, 2)], "x int, y int").createOrReplaceTempView("t")

    def judged(select: str, destinations: set[str]) -> None:
        rest = {"from": {"mq": {"queue": "Q"}}, "to": {"mq": {"queue": "R"}}}
        judge(spark.sql(select), PipelineConfig.model_validate({**rest, "select": select}), destinations)

    yield judged
    for name in ("input", "unmarked", "t"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize(("select", "to", "at", "words"), REFUSED)
def test_refused(select: str, to: set[str], at: str | None, words: str, judged: Judge) -> None:
    with pytest.raises(Mistake) as raised:
        judged(select, to)
    mistake = raised.value
    assert mistake.location == ("select",) and words in str(mistake)
    if at is not None:
        assert mistake.position is not None and select[mistake.position :].startswith(at)


#: (SELECT, destinations)
TAKEN = [
    ("SELECT *, current_timestamp() AS at, current_date AS day, unix_timestamp() AS s FROM input", TABLE),
    ("SELECT body FROM input WHERE rand() < 0.5", BROKER),
    ("SELECT uuid() AS id, payload:n::int AS n, put_time FROM input WHERE payload:n::int > 1", TABLE),
    ("SELECT /*+ REPARTITION(3) */ body FROM input", BROKER),
    ("SELECT /*+ COALESCE(1) */ body FROM input", QUEUE),
    ("SELECT body FROM input DISTRIBUTE BY queue", ALL),
    (f"SELECT sort_array(collect_list(queue)) AS q, count(*) AS n, max_by(queue, put_time) AS last {WINDOWS}", ALL),
    (f"SELECT first(queue) AS q {WINDOWS}", BROKER),
    (f"SELECT a.n FROM {NUMBERS} a JOIN {NUMBERS} b ON {BOUNDED}", QUEUE),
    (f"SELECT a.n FROM {NUMBERS} a, {NUMBERS} b WHERE {BOUNDED}", QUEUE),
    (f"SELECT n, put_time FROM {NUMBERS} a JOIN {NUMBERS} b USING (n, put_time)", QUEUE),
    ("SELECT body FROM input JOIN t ON ccsid = x WHERE md.Priority IN (SELECT max(y) FROM t LIMIT 1)", QUEUE),
]


@pytest.mark.parametrize(("select", "to"), TAKEN)
def test_taken(select: str, to: set[str], judged: Judge) -> None:
    judged(select, to)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("select: SELECT body FROM input LIMIT 3, to: {mqtt: a}", "found 'LIMIT'"),
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {archive: a, mq: {queue: R}}", "found 'uuid'"),
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {archive: a}, changes: {key: [id]}", "found 'uuid'"),
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {archive: a}", None),
        ("select: 'SELECT uuid() AS id, put_time FROM input', to: {mqtt: a}", None),
        ("select: SELECT body FROM input WHERE rand() > 0.5, mapping: out", None),
    ],
)
def test_pipelines(keys: str, words: str | None, bench: Bench) -> None:
    """With the destinations that a pipeline has, or its mapping."""
    out = "out: {enabled: false, from: {queue: Q}, to: {mqtt: a}}"
    bench.write(f"{{mappings: {{{out}}}, pipelines: {{a: {{from: {{mq: {{queue: Q}}}}, {keys}}}}}}}")
    if words is None:
        assert bench.plan("a").frame.isStreaming
        return
    with pytest.raises(Mistake, match=words):
        bench.plan("a")
