"""Rows at fault, found by trying parts of a batch; and what is told of errors, and whether they heal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.mq.mqi import MQError
from bridge.spark.columns import MQTT_ARROW_SCHEMA
from bridge.spark.flow.bad_rows.diverted_rows import DivertedRows, keys_of, load, save
from bridge.spark.flow.faulty_rows import data_error, find_faulty_rows
from bridge.spark.flow.query_failure import query_failure_of
from bridge.spark.mq.envelope import record_batch
from bridge.wire import cmqc
from bridge.wire.mq import MQMD


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_each_row_that_fails_alone_is_found(bad: list[bool]) -> None:
    def trial(part: Any) -> str | None:
        rows = [number for number, one in enumerate(part.column("bad").to_pylist()) if one]
        return f"bad: {part.column('n')[rows[0]].as_py()}" if rows else None

    table = pa.table({"bad": bad, "n": list(range(len(bad)))})
    expected = {number: f"bad: {number}" for number, one in enumerate(bad) if one}
    assert find_faulty_rows(table, trial) == expected


def test_rows_that_fail_only_together_are_not_at_fault() -> None:
    table = pa.table({"n": [100, 100, 1]})
    assert find_faulty_rows(table, lambda part: "sum" if sum(part.column("n").to_pylist()) > 127 else None) == {}


def test_a_search_ends_in_time_with_what_it_has() -> None:
    assert find_faulty_rows(pa.table({"n": [1]}), lambda part: "bad", patience=0) == {}


DIVISION = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. Use
`try_divide` to tolerate it. SQLSTATE: 22012
== SQL (line 2, position 8) ==
  1/payload:n::int
  ^^^^^^^^^^^^^^^^
 SQLSTATE: XXKST"""
WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
Traceback (most recent call last):
  File "x.py", line 1, in f
    g()
%s
 SQLSTATE: XXKST"""

#: (text of the error; sentence; a word of what is to be done, "" where nobody knows)
TROUBLES = [
    (DIVISION, "DIVIDE_BY_ZERO: Division by zero. Use `try_divide` to tolerate it (line 2, column 8 of select)", "try_"),
    (
        WORKER % "bridge.mq.mqi.MQError: MQRC_Q_FULL (2053): put (to queue Q)",
        "MQRC_Q_FULL (2053): put (to queue Q)",
        "MAXDEPTH",
    ),
    (
        WORKER % "bridge.mq.mqi.MQError: MQRC_CONNECTION_BROKEN (2009)",
        "MQRC_CONNECTION_BROKEN (2009)",
        "nothing is to be done",
    ),
    (WORKER % "bridge.spark.mqtt.writer.BrokerAway: no connection", "no connection", "broker comes back"),
    (WORKER % "OSError: [Errno 28] No space left on device", "OSError: [Errno 28] No space left on device", "disk"),
    (WORKER % "KeyError: 'x'", "KeyError: 'x'", ""),
    (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker exited SQLSTATE: XXKST",
        "Python worker exited",
        "",
    ),
    (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST (no cause message)",
        "Spark does not say why (a process of it was killed?)",
        "",
    ),
    (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in"
        " stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage 1.0 (TID 1) (host executor driver):"
        " java.lang.OutOfMemoryError: Java heap space\n\tat a.B.c(B.java:1)\n\nDriver stacktrace:\n=== Streaming Query ===",
        "java.lang.OutOfMemoryError: Java heap space",
        "",
    ),
    (
        "[STREAM_FAILED] Query x [id = 1, runId = 2] terminated with exception: Redefining watermark is disallowed. No.\n"
        "=== Streaming Query ===\nIdentifier: x\nLogical Plan:\n~WriteToMicroBatchDataSource",
        "Redefining watermark is disallowed. No",
        "",
    ),
    (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Join of streams is not supported.;\n~Join Cross\n"
        ":- ~Project [value#1L AS id#3L]\n SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: x",
        "Join of streams is not supported",
        "",
    ),
    ("An error occurred while calling o1.start.\n: java.io.IOException: no room\n\tat a.B.c(B.java:1)", "no room", ""),
    (
        "An error occurred while calling o1.save.\n: org.postgresql.util.PSQLException: Connection to 127.0.0.1:5 refused.\n"
        "\tat a.B.c(B.java:1)\nCaused by: java.net.ConnectException: Connection refused\n\tat a.B.c(B.java:1)",
        "Connection to 127.0.0.1:5 refused",
        "the server that it names comes back",
    ),
    (
        "An error occurred while calling o1.save.\n: java.sql.SQLException: No suitable driver\n\tat a.B.c(B.java:1)",
        "No suitable driver",
        "--jars",
    ),
]


@pytest.mark.parametrize(("text", "what", "remedy"), TROUBLES)
def test_troubles(text: str, what: str, remedy: str) -> None:
    found = query_failure_of(RuntimeError(text))
    assert found.what == what
    assert remedy in found.remedy and bool(remedy) == bool(found.remedy)
    assert (found.data is not None) == (text == DIVISION)


def test_trouble_of_an_error_of_this_process() -> None:
    assert "user" in query_failure_of(MQError(cmqc.MQRC_NOT_AUTHORIZED, "open")).remedy
    assert query_failure_of(OSError(28, "No space left on device")).remedy


def test_errors_that_no_data_is_the_cause_of() -> None:
    assert data_error(RuntimeError("[TABLE_OR_VIEW_NOT_FOUND] no t SQLSTATE: 42P01")) is None


def test_what_is_written_down_counts_for_one_batch(tmp_path: Path) -> None:
    assert load(tmp_path) == DivertedRows()
    once = DivertedRows().and_also(7, {"a": "why"})
    twice = once.and_also(7, {"b": "why not"})
    assert [(key, one.search) for key, one in twice.rows.items()] == [("a", 1), ("b", 2)]
    save(tmp_path, twice)
    assert load(tmp_path) == twice
    assert [(key, one.search) for key, one in twice.and_also(8, {"c": ""}).rows.items()] == [("c", 1)]


def test_keys_of_publications() -> None:
    rows = [{"topic": "t", "payload": b"1", "received": 1}, {"topic": "t", "payload": b"2", "received": 1}]
    batch = pa.RecordBatch.from_pylist(rows, MQTT_ARROW_SCHEMA)
    assert len(set(keys_of(batch))) == 2
    times = batch.column("received").cast(pa.timestamp("us", tz="Asia/Tokyo"))
    elsewhere = batch.set_column(batch.schema.get_field_index("received"), "received", times)
    assert keys_of(elsewhere) == keys_of(batch)


def test_keys_of_messages() -> None:
    """Applications may use a MsgId again; and time goes by between two browses."""
    message = MQMD(MsgId=b"M" * 24, Expiry=600)
    keys = keys_of(record_batch("Q", [(message, b"1"), (message, b"2")]))
    assert len(set(keys)) == 2
    later = msgspec.structs.replace(message, Expiry=500, BackoutCount=1)
    assert keys_of(record_batch("Q", [(later, b"1"), (later, b"2")])) == keys
