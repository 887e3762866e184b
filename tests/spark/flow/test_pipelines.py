"""Pipelines from a queue or a broker to each kind of destination."""

from __future__ import annotations

import json

import pytest

from bridge.wire.mq import decode_mqdlh
from bridge.wire.mq.ccsid import character_set
from tests.helpers.mosquitto import Mosquitto, Subscriber, publish
from tests.spark.flow.conftest import Bench


def test_queue_to_parquet(bench: Bench) -> None:
    queue = bench.queues.queue()
    bench.write(
        "pipelines: {events: {from: {mq: {queue: $queue}}, to: {archive: $out}}}",
        queue=queue,
        out=bench.directory / "out",
    )
    bench.queues.put(queue, b"no JSON", b'{"n": 1}', Format=b"MQSTR   ")
    bench.run()
    rows = bench.spark.read.parquet(str(bench.directory / "out")).collect()
    assert sorted(row.text for row in rows) == ["no JSON", '{"n": 1}']
    assert {"md", "rfh2", "body", "put_time", "date", "hour"} <= set(rows[0].asDict()) and "payload" not in rows[
        0
    ].asDict()
    assert bench.sums() == {"in": 2, "out": 2}


def test_queue_to_queue_with_dead_letters(bench: Bench) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          temperatures:
            from: {mq: {queue: $queue}}
            schema: {temp: double, n: int}
            select: SELECT payload:temp::double * 2 AS temp, payload:n::int AS n FROM input
            to: {mq: {queue: $out}}
            dead_letters: {queue: $dead}
        """,
        queue=queue, out=out, dead=dead,
    )  # fmt: skip
    bad = [b"no JSON", b'{"temp": "hot"}', b'{"n": 3.7}', b"\xff", b'{"a": 1, "a": 2}']
    bench.queues.put(queue, b'{"temp": 2.5, "n": 1}', *bad, b"{}", b'{"temp": null, "n": 4.0}')
    bench.run()
    documents = [json.loads(body) for body in bench.queues.bodies(out)]
    assert sorted(map(str, documents)) == sorted(
        ["{'temp': 5.0, 'n': 1}", "{'temp': None, 'n': None}", "{'temp': None, 'n': 4}"]
    )
    letters = bench.queues.take(dead)
    assert sorted(letter.data[172:] for letter in letters) == sorted(bad)
    assert bench.sums() == {"in": 8, "out": 3, "dead": 5}
    assert any(line.endswith(f"; dead letter: {bench.batches[0].why}") for line in bench.lines)


def test_windows_count_dead_letters_and_late_rows(bench: Bench) -> None:
    queue, out, late = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          averages:
            from: {mq: {queue: $queue}}
            schema: {ts: timestamp, temp: double}
            watermark: {column: ts, delay: 10 s}
            select: |
              SELECT window(ts, '1 minute').start AS minute, avg(payload:temp::double) AS temp, count(*) AS n
              FROM input GROUP BY window(ts, '1 minute')
            to: {mq: {queue: $out}}
            late: {mq: {queue: $late}, window: 1 min}
            dead_letters: {archive: $dead}
        """,
        queue=queue, out=out, late=late, dead=bench.directory / "dead",
    )  # fmt: skip

    def put(*times: str) -> None:
        bench.queues.put(queue, *(b'{"ts": "2026-01-01T%s", "temp": 2}' % time.encode() for time in times))
        bench.run()

    put("10:00:01", "10:00:02", "10:00:59")
    bench.queues.put(queue, b"no JSON")
    put("10:01:20")  # the watermark passes 10:01
    put("10:00:30", "10:01:01", "10:02:30")  # the first is late, the second is not, because its window is open
    put("10:10:00")
    windows = [json.loads(body) for body in bench.queues.bodies(out)]
    assert {window["minute"][11:16]: window["n"] for window in windows} == {"10:00": 3, "10:01": 2, "10:02": 1}
    assert [json.loads(body)["ts"][11:] for body in bench.queues.bodies(late)] == ["10:00:30"]
    (letter,) = bench.spark.read.parquet(str(bench.directory / "dead")).collect()
    assert letter.reason == "the payload is not JSON, or names a member twice" and letter.body == b"no JSON"
    assert bench.sums() == {"in": 9, "out": 3, "dead": 1, "late": 1}


def test_join_of_input_with_itself_counts_each_message_once(bench: Bench) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          pairs:
            from: {mq: {queue: $queue}}
            select: |
              SELECT a.payload:n::int AS n, b.payload:n::int AS m FROM input a JOIN input b
              ON a.payload:n::int = b.payload:n::int + 1
              AND a.put_time BETWEEN b.put_time - INTERVAL 1 MINUTE AND b.put_time + INTERVAL 1 MINUTE
            to: {mq: {queue: $out}}
            dead_letters: {queue: $dead}
        """,
        queue=queue, out=out, dead=dead,
    )  # fmt: skip
    bench.queues.put(queue, b'{"n": 1}', b'{"n": 2}')
    bench.run()
    assert [json.loads(body) for body in bench.queues.bodies(out)] == [{"n": 2, "m": 1}]
    assert bench.queues.depth(dead) == 0 and bench.sums() == {"in": 2, "out": 1}


def test_a_star_within_a_function_means_all_columns(bench: Bench) -> None:
    queue, out = bench.queues.queue(), bench.queues.queue()
    text = "pipelines: {p: {from: {mq: {queue: $queue}}, select: 'SELECT $what AS body FROM input', to: {mq: {queue: $out}}}}"
    for expression in ("to_json(struct(*))", "CAST(length(text) * 2 AS STRING)"):
        bench.write(text, queue=queue, out=out, what=expression)
        bench.queues.put(queue, b'{"n": 1}', Format=b"MQSTR   ")
        bench.run()
    row, number = bench.queues.bodies(out)
    assert {"payload", "put_time", "md", "queue"} <= json.loads(row).keys() and number == b"16"


def test_changes(bench: Bench) -> None:
    queue, out = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          changes:
            from: {mq: {queue: $queue}}
            select: SELECT payload:k::string AS k, payload:v::int AS v, put_time FROM input
            changes: {key: [k], of: [v]}
            to: {mq: {queue: $out}}
        """,
        queue=queue, out=out,
    )  # fmt: skip
    for values in (["a1", "a1", "b1", "a2"], ["a2", "b1", "a1"]):
        bench.queues.put(queue, *(b'{"k": "%c", "v": %c}' % tuple(value.encode()) for value in values))
        bench.run()
    changes = [json.loads(body) for body in bench.queues.bodies(out)]
    assert sorted(f"{change['k']}{change['v']}" for change in changes) == ["a1", "a1", "a2", "b1"]


def test_broker_to_broker(bench: Bench, broker: Mosquitto) -> None:
    bench.write(
        """
        links: {b: {host: 127.0.0.1, port: $port}}
        pipelines:
          lines:
            from: {mqtt: in/+, link: b, options: {qos: 2}}
            schema: {v: int}
            select: SELECT split(topic, '/')[1] AS line, payload:v::int + 1 AS v FROM input
            to: {mqtt: "out/{line}", link: b, qos: 2, archive: $archive}
        """,
        port=broker.port, archive=bench.directory / "archive",
    )  # fmt: skip
    bench.run()  # creates the session
    subscriber = Subscriber(broker.port, "out/#", qos=2)
    for number in (1, 2):
        publish(broker.port, f"in/l{number}", f'{{"v": {number}}}', qos=2)
    bench.run()
    documents = {
        message["topic"]: json.loads(message["payload"]) for message in (subscriber.message(), subscriber.message())
    }
    assert documents == {"out/l1": {"line": "l1", "v": 2}, "out/l2": {"line": "l2", "v": 3}}
    subscriber.stop()
    assert bench.spark.read.parquet(str(bench.directory / "archive")).count() == 2
    assert bench.sums() == {"in": 2, "out": 2}


def test_mappings(bench: Bench, broker: Mosquitto) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        links: {b: {host: 127.0.0.1, port: $port}}
        mappings:
          arriving: {enabled: false, from: {mqtt: "arriving/{line}", link: b}, to: {queue: $out}, payload: {type: json}}
          leaving: {enabled: false, from: {queue: $queue}, to: {mqtt: leaving/all, link: b}}
        pipelines:
          one: {from: {mqtt: arriving/+, link: b}, mapping: arriving, dead_letters: {queue: $letters}}
          two: {from: {mq: {queue: $queue}}, mapping: leaving}
        """,
        port=broker.port, queue=queue, out=out, letters=dead,
    )  # fmt: skip
    bench.run("one")  # creates the session
    subscriber = Subscriber(broker.port, "leaving/#", qos=1)
    publish(broker.port, "arriving/l1", '{"v": 1}', qos=1)
    publish(broker.port, "arriving/l1", "no JSON", qos=1)
    bench.queues.put(queue, b"hot", Format=b"MQSTR   ")
    bench.run()
    assert [body.endswith(b'{"v": 1}') for body in bench.queues.bodies(out)] == [True]
    assert [body.endswith(b"no JSON") for body in bench.queues.bodies(dead)] == [True]
    message = subscriber.message()
    assert (message["topic"], message["payload"]) == ("leaving/all", "hot")
    subscriber.stop()
    assert bench.sums() == {"in": 3, "out": 2, "dead": 1}


@pytest.mark.parametrize("archived", [False, True], ids=["queue", "archive"])
def test_text_that_its_ccsid_cannot_encode(archived: bool, bench: Bench) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          to_ebcdic:
            from: {mq: {queue: $queue}}
            payload: text
            select: SELECT payload AS body, 'MQSTR' AS format, 273 AS ccsid FROM input
            to: {mq: {queue: $out}}
            dead_letters: $dead
        """,
        queue=queue, out=out, dead=f"{{archive: {bench.directory}/dead}}" if archived else f"{{queue: {dead}}}",
    )  # fmt: skip
    bench.queues.put(queue, b"plain", "5 €".encode(), b"\xff", Format=b"MQSTR   ", CodedCharSetId=1208)
    bench.run()
    assert bench.queues.bodies(out) == [character_set(273).encode("plain")]
    assert bench.sums() == {"in": 3, "out": 1, "dead": 2}
    if archived:
        letters = bench.spark.read.parquet(str(bench.directory / "dead")).where("reason LIKE 'CCSID%'").collect()
        assert [(row.body, row.queue, row.ccsid) for row in letters] == [("5 €".encode(), out, 273)]
        why = "CCSID 273 has no '€', which is character 3 of the text (MQRC_NOT_CONVERTED, 2119)"
        assert letters[0].reason == why
    else:
        texts = {letter.data[172:]: decode_mqdlh(letter.data) for letter in bench.queues.take(dead)}
        assert texts.keys() == {"5 €".encode(), b"\xff"}
        header = texts["5 €".encode()]
        assert (header.Reason, header.DestQName.strip(), header.CodedCharSetId) == (2119, out.encode(), 1208)
