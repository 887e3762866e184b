"""Event time: which column has the watermark, and that windows by it end, whoever says it."""

from __future__ import annotations

import json

import pytest

from bridge.spark.flow.mistake import Mistake
from tests.spark.flow.conftest import Bench

WINDOWS = "window(ts, '1 minute')"
BY_CLAUSE = f"""
    select: |
      WITH events AS (SELECT payload:ts::timestamp AS ts FROM input)
      SELECT {WINDOWS}.start AS minute, count(*) AS n FROM (SELECT * FROM events) WATERMARK ts DELAY OF INTERVAL 10 SECONDS
      GROUP BY {WINDOWS}
"""
BY_KEY = f"""
    schema: {{ts: timestamp}}
    watermark: {{column: ts, delay: 10 s}}
    select: SELECT {WINDOWS}.start AS minute, count(*) AS n FROM input GROUP BY {WINDOWS}
"""
IN_WITH = f"""
    watermark: 1 h
    select: |
      WITH events AS (SELECT payload:ts::timestamp AS ts FROM input),
           timely AS (SELECT * FROM events WATERMARK ts DELAY OF INTERVAL 10 SECONDS)
      SELECT {WINDOWS}.start AS minute, count(*) AS n FROM timely GROUP BY {WINDOWS}
"""


def at(minute: int) -> bytes:
    return json.dumps({"ts": f"2026-01-01 00:{minute:02d}:00"}).encode()


@pytest.mark.parametrize("said", [BY_KEY, *(pytest.param(one, marks=pytest.mark.slow) for one in (BY_CLAUSE, IN_WITH))])
def test_windows_by_a_time_of_the_payload(said: str, bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    text = """
pipelines:
  minutes:
    from: {mq: {queue: $source}}
    to: {mq: {queue: $target}}
"""
    bench.write(text + said, source=source, target=target)
    counts = []
    for minutes in ((0, 0, 5), (5, 10)):  # again: it goes on where it was
        bench.queues.put(source, *map(at, minutes))
        bench.run()
        assert bench.queues.depth(source) == 0
        counts += [json.loads(body) for body in bench.queues.bodies(target)]
    assert [(one["minute"][11:16], one["n"]) for one in counts] == [("00:00", 2), ("00:05", 2)]
    assert not any("tried again" in line for line in bench.lines)


#: SELECTs, and what is told of the rows that come late below; of joins they are counted by Spark, one row for two
LATE = {
    f"SELECT {WINDOWS}.start AS minute, count(*) AS n FROM input GROUP BY {WINDOWS}": "6",
    "SELECT DISTINCT ts FROM input": "6",
    "SELECT a.ts FROM input a JOIN input b USING (ts)": "at least 6",
    "SELECT ts FROM input": "",
}


@pytest.mark.parametrize(
    "select", [*list(LATE)[2:], *(pytest.param(one, marks=pytest.mark.slow) for one in list(LATE)[:2])]
)
def test_rows_that_come_late_are_told(select: str, bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          late:
            from: {mq: {queue: $source}}
            schema: {ts: timestamp}
            watermark: {column: ts, delay: 10 s}
            select: "$select"
            to: {mq: {queue: $target}}
        """,
        source=source,
        target=target,
        select=select,
    )
    bench.queues.put(source, at(20))
    bench.run()
    assert bench.lines[-1] == "late: done" and "late, " not in str(bench.batches[0])
    bench.queues.put(source, *map(at, (0, 0, 0, 0, 0, 1, 30, 31, 32)))
    bench.run()
    (batch,) = (one for one in bench.batches if one.rows == 9)
    told = LATE[select]
    assert batch.late == int(told.rpartition(" ")[2] or 0)
    if told:
        assert f" out, {told} late, " in str(batch)
        assert bench.lines[-1] == f"late: done; {told} rows came too late, and are in no result"


#: (keys of a pipeline; where the mistake is; words of it)
MISTAKES = [
    (f"watermark: {{column: ts, delay: 1}}{BY_CLAUSE}", "watermark", "WATERMARK of its own"),
    ("watermark: {column: md, delay: 1}", "watermark.column", "of type timestamp, or a field"),
    ("watermark: {column: ts, delay: 1}\n    schema: {ts: string}", "watermark.column", "(put_time), found 'ts'"),
    ("watermark: {column: other, delay: 1}\n    schema: {ts: timestamp}", "watermark.column", "(put_time, ts), found"),
]


@pytest.mark.parametrize(("said", "where", "words"), MISTAKES)
def test_mistake(said: str, where: str, words: str, bench: Bench) -> None:
    select = "" if "select" in said else "\n    select: SELECT body FROM input"
    bench.write(f"pipelines:\n  a:\n    from: {{mq: {{queue: Q}}}}\n    to: {{mq: {{queue: R}}}}\n    {said}{select}")
    with pytest.raises(Mistake) as raised:
        bench.plan("a")
    assert ".".join(map(str, raised.value.location)) == where and words in str(raised.value)


def test_a_column_of_the_source_that_is_a_time(bench: Bench) -> None:
    bench.write(
        "pipelines: {a: {from: {mq: {queue: Q}}, to: {mq: {queue: R}}, watermark: {column: put_time, delay: 1 min},"
        " select: \"SELECT window(put_time, '1 minute').start AS w, count(*) AS n FROM input"
        " GROUP BY window(put_time, '1 minute')\"}}"
    )
    assert bench.plan("a").frame.isStreaming
