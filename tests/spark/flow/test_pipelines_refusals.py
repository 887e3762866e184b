"""Rows that cannot be made, or that a destination refuses: those are dead letters, and the others go on."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, decode_chain
from tests.helpers.mosquitto import Mosquitto
from tests.spark.faults import Fault, fault
from tests.spark.flow.conftest import Bench


def letters_on(bench: Bench, queue: str) -> list[tuple[MQDLH, bytes]]:
    """The header and the message of each dead letter of a queue."""
    found = []
    for letter in bench.queues.take(queue):
        chain = decode_chain(letter.md.Format, letter.md.Encoding, letter.md.CodedCharSetId, letter.data)
        header = chain.headers[0]
        assert isinstance(header, MQDLH)
        found.append((header, bytes(chain.body)))
    return found


#: (SELECT, words of the reason of each bad row); row n has {"n": n}
SELECTS = {
    "SELECT 12 / payload:n::int AS x FROM input": {0: "DIVIDE_BY_ZERO"},
    "SELECT CAST(payload:n::int AS TINYINT) AS x FROM input": {500: "CAST_OVERFLOW"},
    "SELECT array(1, 2, 3)[payload:n::int] AS x FROM input WHERE payload:n::int <> 500": {3: "INVALID_ARRAY_INDEX"},
    "SELECT IF(payload:n::int IN (1, 2), raise_error(concat('no ', payload:n::int)), 1) AS x FROM input": {
        1: "USER_RAISED_EXCEPTION: no 1",
        2: "USER_RAISED_EXCEPTION: no 2",
    },
    "SELECT t.y / (input.payload:n::int - 3) AS x FROM input CROSS JOIN t": {3: "DIVIDE_BY_ZERO"},
}


@pytest.mark.parametrize(
    "select", [*list(SELECTS)[3:], *(pytest.param(one, marks=pytest.mark.slow) for one in list(SELECTS)[:3])]
)
def test_rows_that_the_select_cannot_be_made_of(select: str, bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    (bench.directory / "t.csv").write_text("y\n1\n")
    bench.write(
        """
        pipelines:
          made:
            from: {mq: {queue: $source}}
            tables: {t: t.csv}
            select: "$select"
            to: {mq: {queue: $target}}
            dead_letters: {archive: bad}
        """,
        source=source,
        select=select,
        target=target,
    )
    numbers = [0, 1, 2, 3, 500]
    bad = SELECTS[select]
    bench.queues.put(source, *(json.dumps({"n": number}).encode() for number in numbers), b"no JSON")
    bench.run()
    assert bench.queues.depth(source) == 0
    rows = [row for file in (bench.directory / "bad").iterdir() for row in pq.read_table(file).to_pylist()]
    reasons = {row["body"]: row["reason"] for row in rows}
    assert len(rows) == len(reasons) and "no JSON" in reasons.pop(b"no JSON")
    assert {json.loads(body)["n"]: reason for body, reason in reasons.items()} == {
        number: next(one for one in reasons.values() if one.startswith(words)) for number, words in bad.items()
    }
    without = {500} if "WHERE" in select else set()
    assert bench.queues.depth(target) == len(set(numbers) - set(bad) - without)


def test_rows_that_are_diverted_come_once_and_in_their_unit(bench: Bench) -> None:
    """With the trigger, dead letters on a queue, and batches before and behind that have nothing bad."""
    source, target, dead = (bench.queues.queue() for _ in range(3))
    bench.write(
        """
        pipelines:
          one:
            from: {mq: {queue: $source}}
            payload: bytes
            select: SELECT 10 DIV (length(body) - 3) AS x FROM input
            to: {mq: {queue: $target}}
            batch: 12
            dead_letters: {queue: $dead}
        """,
        source=source,
        target=target,
        dead=dead,
    )
    bodies: list[bytes] = [b"%d" % 10**(index % 5) for index in range(23)]
    bench.queues.put(source, *bodies)
    bench.run()
    assert bench.queues.depth(source) == 0
    assert sorted(body for _, body in letters_on(bench, dead)) == [b"100"] * bodies.count(b"100")
    assert bench.queues.depth(target) == len(bodies) - bodies.count(b"100")
    assert sum(batch.bad for batch in bench.batches) == bodies.count(b"100")




def test_rows_that_the_queue_manager_refuses(bench: Bench) -> None:
    """A message that is too long, queues that are not there, an MQMD that cannot be: with their reasons, once each."""
    source, small, dead = bench.queues.queue(), bench.queues.queue("MAXMSGL(5)"), bench.queues.queue()
    bench.write(
        """
        pipelines:
          refused:
            from: {mq: {queue: $source}}
            payload: text
            select: SELECT body, IF(payload LIKE 'lost%', 'NOWHERE', IF(payload LIKE 'null%', NULL, '$small')) AS queue,
                    IF(payload LIKE 'f%', 'NINE CHARS', 'MQSTR') AS format FROM input
            to: {mq: {}}
            dead_letters: {queue: $dead}
        """,
        source=source,
        small=small,
        dead=dead,
    )
    bench.queues.put(source, b"1", b"too long", b"lost", b"2", b"null", b"f", b"3")
    # The first unit of work with messages breaks after its commit: what is in it is not put again.
    with fault(APPLICATION_NAME, Fault(lambda verb, request: verb == "MQCMIT", 2, after=True)) as verbs:
        bench.run()
    assert verbs and bench.queues.depth(source) == 0
    assert sorted(bench.queues.bodies(small)) == [b"1", b"2", b"3"]
    assert sum(batch.bad for batch in bench.batches) in (2, 4)  # what is put before the break is not told again
    found = letters_on(bench, dead)
    assert sorted((body, header.Reason) for header, body in found) == [
        (b"f", cmqc.MQRC_MD_ERROR),
        (b"lost", cmqc.MQRC_UNKNOWN_OBJECT_NAME),
        (b"null", cmqc.MQRC_MD_ERROR),
        (b"too long", cmqc.MQRC_MSG_TOO_BIG_FOR_Q),
    ]
    places = {body: header.DestQName.rstrip(b" \0").decode() for header, body in found}
    assert places[b"too long"] == small and places[b"lost"] == "NOWHERE"


def test_refused_rows_of_a_destination_that_has_a_name_wait_for_it(bench: Bench) -> None:
    """The pipeline says it, not the row: no data is at fault, and none is dead-lettered. What is too long is, to a table."""
    source = bench.queues.queue()
    target = f"{source}.LATER"
    bench.write(
        """
        pipelines:
          later:
            from: {mq: {queue: $source}}
            payload: text
            select: SELECT body FROM input
            to: {mq: {queue: $target}}
            dead_letters: {archive: bad}
        """,
        source=source,
        target=target,
    )
    bench.queues.put(source, b"1", b"too long", b"2")
    lines = bench.run_mended(f"DEFINE QLOCAL('{target}') MAXMSGL(5)")
    assert "MQRC_UNKNOWN_OBJECT_NAME" in lines[1] and "to do: define it" in lines[1]
    assert sorted(bench.queues.bodies(target)) == [b"1", b"2"]
    rows = [row for file in (bench.directory / "bad").iterdir() for row in pq.read_table(file).to_pylist()]
    assert [(row["body"], row["queue"]) for row in rows] == [(b"too long", target)]
    assert "MQRC_MSG_TOO_BIG_FOR_Q" in rows[0]["reason"]
    (batch,) = bench.batches
    assert "3 in, 2 out, 1 dead letter, " in str(batch) and "; refused: MQRC_MSG_TOO_BIG_FOR_Q" in str(batch)


def test_a_dead_letter_that_is_too_long_for_its_queue_waits_for_a_longer_maxmsgl(bench: Bench) -> None:
    source, target, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue("MAXMSGL(180)")
    bench.write(
        """
        pipelines:
          long:
            from: {mq: {queue: $source}}
            select: SELECT payload:n::int AS n FROM input
            to: {mq: {queue: $target}}
            dead_letters: {queue: $dead}
        """,
        source=source,
        target=target,
        dead=dead,
    )
    bench.queues.put(source, b"no JSON at all", b'{"n": 1}', b"none", Format=b"MQSTR")
    lines = bench.run_mended(f"ALTER QLOCAL('{dead}') MAXMSGL(1000)")
    assert any("MQRC_MSG_TOO_BIG_FOR_Q" in line and "to do: raise MAXMSGL of the queue" in line for line in lines)
    found = letters_on(bench, dead)
    assert sorted(body for _, body in found) == [b"no JSON at all", b"none"]
    assert {(one.Reason, one.Format.rstrip(), one.DestQName.rstrip(b" \0").decode()) for one, _ in found} == {
        (cmqc.MQRC_FORMAT_ERROR, b"MQSTR", source)
    }
    assert bench.queues.bodies(target) == [b'{"n":1}']


def test_a_full_queue_is_waited_for(bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    bench.queues.mqsc(f"ALTER QLOCAL('{target}') MAXDEPTH(2)")
    bench.write(
        """
        pipelines:
          full:
            from: {mq: {queue: $source}}
            payload: bytes
            select: SELECT body FROM input
            to: {mq: {queue: $target}}
        """,
        source=source,
        target=target,
    )
    bench.queues.put(source, b"1", b"2", b"3")
    lines = bench.run_mended(f"ALTER QLOCAL('{target}') MAXDEPTH(3)")
    assert "MQRC_Q_FULL" in lines[1] and "MAXDEPTH" in lines[1].partition("to do: ")[2]
    assert sorted(bench.queues.bodies(target)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("sink", ["queue", "archive"])
def test_publications_that_the_broker_refuses(sink: str, bench: Bench, broker: Mosquitto) -> None:
    source, dead = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        links: {plant: {host: 127.0.0.1, port: $port}}
        pipelines:
          out:
            from: {mq: {queue: $source}}
            payload: text
            select: SELECT body AS payload, split_part(payload, ' ', 1) AS place FROM input
            to: {mqtt: "{place}", link: plant}
            dead_letters: {$sink}
        """,
        source=source,
        sink=f"queue: {dead}" if sink == "queue" else "archive: bad",
        port=broker.port,
    )
    bench.queues.put(source, b"plant/a 1", b"plant/# 2", b"plant/b 3")
    bench.run()
    assert bench.queues.depth(source) == 0
    if sink == "queue":
        ((header, body),) = letters_on(bench, dead)
        assert header.Reason == cmqc.MQRC_PUBLICATION_FAILURE and body == b"plant/# 2"
        assert header.DestQName.rstrip(b" \0") == b"plant/#"
    else:
        ((file),) = (bench.directory / "bad").iterdir()
        ((row),) = pq.read_table(file).to_pylist()
        assert row["payload"] == b"plant/# 2" and row["topic"] == "plant/#" and row["reason"]
