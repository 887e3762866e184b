"""Results of a check of pipelines, and reasons that stop a pipeline."""

from __future__ import annotations

import re

import pytest

from bridge.spark.administration import read_status, runs
from bridge.spark.failures import Mistake
from tests.spark.flow.conftest import Bench

MISTAKES = [
    ("select: SELECT FROM input, to: {mq: {queue: R}}", ("select",), "a SELECT of Spark SQL"),
    ("select: SELECT nothing FROM input, to: {mq: {queue: R}}", ("select",), "nothing"),
    ("select: DROP TABLE input, to: {mq: {queue: R}}", ("select",), "a SELECT of Spark SQL"),
    ("select: SELECT 1 AS one, to: {mq: {queue: R}}", ("select",), "reads the table input"),
    ("select: SELECT body FROM input LIMIT 3, to: {mq: {queue: R}}", ("select",), "silently drop rows"),
    ("select: 'SELECT text, queue AS text FROM input', to: {mq: {queue: R}}", ("select",), "different names"),
    ("select: SELECT count(*) AS n FROM input GROUP BY queue, to: {mq: {queue: R}}", ("select",), "runs in streams"),
    (
        "select: SELECT text FROM input, to: {mq: {queue: 'R.{site}'}}",
        ("to", "mq", "queue"),
        "a column that select makes",
    ),
    ("select: SELECT text FROM input, to: {mq: }", ("to", "mq"), "a column that select makes"),
    ("select: 'SELECT body, priority(1) FROM input', to: {mq: {queue: R}}", ("select",), "priority"),
    ("select: 'SELECT body, 1 AS n FROM input', to: {mq: {queue: R}}", ("to",), "would be lost: n"),
    ("select: SELECT text AS date FROM input, to: {archive: a}", ("to",), "has the columns date and hour"),
    ("select: SELECT text FROM input, to: {format: nothing}", ("to", "format"), "a format that this Spark has"),
    ("select: SELECT text FROM input, to: {format: csv, path: a, partitionBy: [b]}", ("to",), "there is no column b"),
    ("select: SELECT text FROM input, to: {archive: a}, late: {archive: b, window: 0}", ("late",), "keeps no state"),
    ("watermark: {column: ts, delay: 1 s}, to: {archive: a}", ("watermark", "column"), "of type timestamp"),
    ("tables: {t: t.csv}, select: SELECT text FROM input, to: {archive: a}", ("tables", "t"), "a table"),
]


@pytest.mark.parametrize(("text", "location", "expected"), MISTAKES)
def test_a_mistake_is_reported(text: str, location: tuple[str, ...], expected: str, bench: Bench) -> None:
    bench.write(f"pipelines: {{p: {{from: {{mq: {{queue: Q}}}}, {text}}}}}")
    with pytest.raises(Mistake) as raised:
        bench.plan("p", reads=False)
    assert raised.value.location == location and expected in f"{raised.value.expected} {raised.value.found}"


def test_a_check_connects_to_nothing_and_notes_at_least_once(bench: Bench) -> None:
    bench.write(
        """
        pipelines:
          once: {from: {mq: {queue: NOWHERE}}, to: {archive: a, format: json, path: b}}
          again: {from: {mqtt: a/#}, to: {format: parquet, path: "s3a://bucket/a"}}
        """
    )
    assert not bench.plan("once", reads=False).at_least_once
    assert bench.plan("again", reads=False).at_least_once


def test_a_row_that_select_fails_on_stops_the_pipeline_and_loses_nothing(bench: Bench) -> None:
    queue, out = bench.queues.queue(), bench.queues.queue()
    text = "pipelines: {p: {from: {mq: {queue: $queue}}, select: 'SELECT $n AS n FROM input', to: {mq: {queue: $out}}}}"
    bench.write(text, queue=queue, out=out, n="payload:n::int")
    bench.queues.put(queue, b'{"n": 1}', b'{"n": "many"}')
    assert bench.runner(attempts=8).run() == ["p"]
    (line,) = [line for line in bench.lines if "stopped: " in line]
    assert "INVALID_VARIANT_CAST" in line and "try_variant_get" in line and "schema" in line
    assert re.search(rf"for MsgId 414D51[0-9A-F]+ of queue {queue}, in .*/spool/.*\.arrow; hint: ", line)
    status = read_status(bench.directory / "state" / "p")
    assert status is not None and status.state == "given up" and status.last_error is not None
    assert runs(bench.directory / "state" / "p") is None
    bench.write(text, queue=queue, out=out, n="try_cast(payload:n AS int)")
    bench.run()
    assert sorted(bench.queues.bodies(out)) == [b'{"n":1}', b'{"n":null}']


def test_a_put_to_a_full_queue_is_retried(bench: Bench) -> None:
    queue, out = bench.queues.queue(), bench.queues.queue()
    bench.queues.mqsc(f"ALTER QLOCAL('{out}') PUT(DISABLED)")
    bench.write("pipelines: {p: {from: {mq: {queue: $queue}}, to: {mq: {queue: $out}}}}", queue=queue, out=out)
    bench.queues.put(queue, b"1")

    def report(line: str) -> None:
        bench.lines.append(line)
        if "next attempt in" in line:
            assert "PUT(ENABLED)" in line
            bench.queues.mqsc(f"ALTER QLOCAL('{out}') PUT(ENABLED)")

    assert bench.runner(report=report).run() == []
    assert bench.queues.bodies(out) == [b"1"]
