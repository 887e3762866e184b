"""Pipelines from queues and archives: what becomes of rows, and of payloads that are none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from bridge.config.link import LinkConfig
from bridge.link.connection import LinkConnection
from bridge.mq.mqi import Got
from bridge.spark.columns import Column
from bridge.spark.flow.sink import Route
from bridge.spark.mapping.columns import QUEUE_MESSAGE_COLUMNS, TOPIC_MESSAGE_COLUMNS
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, RFH2, Folder, decode_chain, encode_rfh2
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE
from tests.spark.flow.conftest import Bench


def objects(bodies: list[bytes]) -> list[Any]:
    return [json.loads(body) for body in bodies]


def test_rows_become_json_and_bad_payloads_dead_letters(bench: Bench) -> None:
    source, target, dead = (bench.queues.queue() for _ in range(3))
    bench.write(
        """
        pipelines:
          hot:
            from: {mq: {queue: $source}}
            schema: {unit: string, place.x: double}
            select: SELECT payload:id::int AS id, payload:temp::double * 2 AS twice, payload:tags FROM input
                    WHERE payload:id::int > 1
            to: {mq: {queue: $target}}
            dead_letters: {queue: $dead}
        """,
        source=source,
        target=target,
        dead=dead,
    )
    good = [b'{"id": 1, "temp": 1}', b'{"id": 2, "temp": null}', b'{"id": 3, "temp": 1.5, "tags": ["a", {"b": 1}]}']
    bad = {
        b"no json": "no JSON",
        b'{"id": 1} and more': "trailing",
        b"": "empty",
        b"\xff": "UTF-8",
        b'{"id": 2, "id": 3}': "a member twice",
        b'{"id": "one"}': "cast to int",
        b'{"id": 99999999999}': "beyond int",
        b'{"id": 2, "temp": "hot"}': "cast to double",
        b'{"id": 2, "place": {"x": []}}': "declared double",
    }
    bench.queues.put(source, *good, *bad)
    bench.run()
    expected = [{"id": 2, "twice": None, "tags": None}, {"id": 3, "twice": 3.0, "tags": ["a", {"b": 1}]}]
    assert sorted(objects(bench.queues.bodies(target)), key=lambda row: row["id"]) == expected
    letters = bench.queues.take(dead)
    found = {}
    for letter in letters:
        chain = decode_chain(letter.md.Format, letter.md.Encoding, letter.md.CodedCharSetId, letter.data)
        (header,) = chain.headers
        assert isinstance(header, MQDLH)
        found[bytes(chain.body)] = header
    assert set(found) == set(bad)
    assert {one.Reason for one in found.values()} == {cmqc.MQRC_FORMAT_ERROR}
    assert {one.DestQName.rstrip(b" \0").decode() for one in found.values()} == {source}
    assert bench.queues.depth(source) == 0
    assert [(one.rows, one.made, one.bad) for one in bench.batches] == [(12, 2, 9)]
    assert "12 in, 2 out, 9 dead letters, " in str(bench.batches[0]) and "; bad: " in str(bench.batches[0])


def test_what_a_select_does_not_read_may_be_anything(bench: Bench) -> None:
    """Only what is said to be JSON, or read as such, has to be; the line of a batch says what was wrong."""
    source, target = bench.queues.queue(), bench.queues.queue()
    pipeline = """
        pipelines:
          copy:
            from: {mq: {queue: $source}}
            $said
            select: SELECT $columns FROM input
            to: {mq: {queue: $target}}
            dead_letters: {archive: $bad}
            checkpoint: $state
    """
    bodies = [b"no json", b"{}", b"\xff\x00"]
    cases = [
        ("", "body", 0),
        ("", "body, md", 0),
        ("payload: json", "body", 2),
        ("schema: {a: int}", "body", 2),
        ("payload: text", "body", 1),
        ("", "body, struct(IF(payload IS NULL, 1, 2) AS Priority) AS md", 2),
    ]
    for number, (said, columns, bad) in enumerate(cases):
        names = {"bad": bench.directory / f"bad {number}", "state": bench.directory / f"state {number}"}
        bench.write(pipeline, source=source, target=target, said=said, columns=columns, **names)
        bench.queues.put(source, *bodies)
        bench.run()
        assert bench.queues.depth(source) == 0
        assert bench.queues.depth(target) == len(bodies) - bad
        bench.queues.take(target)
        batch = bench.batches[-1]
        assert batch.bad == bad and (batch.found is not None) is (bad == 2)


def test_a_body_is_the_message_and_a_column_says_where_it_goes(bench: Bench) -> None:
    source, one, other = (bench.queues.queue() for _ in range(3))
    bench.write(
        """
        pipelines:
          sorted:
            from: {mq: {queue: $source}}
            payload: text
            select: SELECT body, md, IF(payload LIKE 'a%', '$one', '$other') AS queue FROM input
            to: {mq: {}}
            dead_letters: {archive: bad}
        """,
        source=source,
        one=one,
        other=other,
    )
    bench.queues.put(source, b"a1", b"b1", b"a2", b"\xff\xfe", CorrelId=b"C" * 24)
    bench.run()
    taken = bench.queues.take(one)
    assert sorted(got.data for got in taken) == [b"a1", b"a2"] and {got.md.CorrelId for got in taken} == {b"C" * 24}
    assert bench.queues.bodies(other) == [b"b1"]
    (file,) = (bench.directory / "bad").iterdir()
    (row,) = pq.read_table(file).to_pylist()
    assert row["body"] == b"\xff\xfe" and "no text" in row["reason"] and row["queue"] == source


def test_to_a_table_and_a_queue_and_from_the_table_again(bench: Bench) -> None:
    source, target, again = (bench.queues.queue() for _ in range(3))
    (bench.directory / "names.csv").write_text("id,name\n1,one\n2,two\n")
    (bench.directory / "table").mkdir()
    bench.write(
        """
        pipelines:
          out:
            from: {mq: {queue: $source}}
            tables: {names: names.csv}
            select: SELECT payload:id::int AS id, name, put_time FROM input LEFT JOIN names ON id = payload:id::int
            to: {mq: {queue: $target}, archive: table}
          back:
            from: {archive: table}
            select: SELECT id, name, date FROM input
            to: {mq: {queue: $again}}
        """,
        source=source,
        target=target,
        again=again,
    )
    bench.queues.put(source, b'{"id": 1}', b'{"id": 3}')
    bench.run("out")
    bench.queues.put(source, b'{"id": 2}')
    bench.run("out")
    rows = objects(bench.queues.bodies(target))
    assert sorted((row["id"], row["name"]) for row in rows) == [(1, "one"), (2, "two"), (3, None)]
    for file in (bench.directory / "table").glob("*/*/*.parquet"):
        day, hour = file.parent.parent.name, file.parent.name
        for row in pq.read_table(file, partitioning=None).to_pylist():
            when: datetime = row["put_time"]
            assert (day, hour) == (f"date={when:%Y-%m-%d}", f"hour={when:%H}")
    bench.run("back")
    bench.run("back")  # nothing is new
    assert sorted(row["id"] for row in objects(bench.queues.bodies(again))) == [1, 2, 3]


def test_no_batch_to_an_archive_has_spark_generate_code_of_its_own(bench: Bench) -> None:
    """Rows without a time are filed under that of their batch, which is in no code."""
    source = bench.queues.queue()
    bench.write(
        """
        pipelines:
          table:
            from: {mq: {queue: $source}}
            select: SELECT payload:n::int AS n FROM input
            to: {archive: table}
            batch: 1
        """,
        source=source,
    )
    bench.queues.put(source, *(b'{"n": %d}' % number for number in range(5)))
    jvm: Any = bench.spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts: list[int] = []
    begun = datetime.now(UTC)
    assert not bench.runner(seen=lambda _: counts.append(compiled.getCount())).run(), bench.lines
    assert len(counts) == 5 and counts[-1] == counts[1]
    hours = {f"date={when:%Y-%m-%d}/hour={when:%H}" for when in (begun, datetime.now(UTC))}
    files = list((bench.directory / "table").glob("*/*/*.parquet"))
    assert len(files) == 5 and {str(file.parent.relative_to(bench.directory / "table")) for file in files} <= hours


def test_changes_are_reported_once_over_restarts(bench: Bench) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          changes:
            from: {mq: {queue: $source}}
            select: SELECT payload:k::string AS k, payload:n::int AS n, payload:t::double AS t, payload:s::string AS s
                    FROM input
            changes: {key: [k], of: [t, s], order: n, deadband: 0.5}
            to: {mq: {queue: $target}}
        """,
        source=source,
        target=target,
    )
    first = [
        ("a", 1, 20.0, "on"),
        ("a", 2, 20.5, "on"),
        ("a", 3, 20.6, "on"),
        ("b", 1, None, "on"),
        ("b", 2, None, "on"),
    ]
    second = [
        ("a", 4, 20.2, "on"),
        ("a", 5, 20.2, "off"),
        ("b", 3, 1.0, "on"),
        ("a", 6, 20.3, "off"),
        ("c", 1, 0, None),
    ]
    for rows, expected in ((first, ["a1", "a3", "b1"]), (second, ["a5", "b3", "c1"])):
        bench.queues.put(source, *(json.dumps(dict(zip("knts", row, strict=True))).encode() for row in rows))
        bench.run()
        reported = objects(bench.queues.bodies(target))
        assert sorted(f"{row['k']}{row['n']}" for row in reported) == expected


@pytest.mark.parametrize(
    ("to", "expected"), [("queue: Q", QUEUE_MESSAGE_COLUMNS), ("topic: 'lines/{line}'", TOPIC_MESSAGE_COLUMNS)]
)
def test_all_that_a_mapping_makes_is_written(to: str, expected: tuple[Column, ...], bench: Bench) -> None:
    for letters, refused in (("queue: DEAD", "DEAD"), ("archive: bad", None), ("", "SYSTEM.DEAD.LETTER.QUEUE")):
        bench.write(
            """
            mappings: {m: {enabled: false, from: {mqtt: "plant/{line}"}, to: {$to}}}
            pipelines: {a: {from: {mqtt: plant/+}, mapping: m, dead_letters: {$letters}}}
            """,
            to=to,
            letters=letters,
        )
        plan = bench.plan("a")
        written = plan.frame.schema["mq"].dataType
        assert isinstance(written, StructType) and written.names == [column.name for column in expected]
        (route,) = plan.routes
        assert isinstance(route, Route) and route.options.refused == refused


def letter_of(letter: Got) -> tuple[MQDLH, bytes]:
    """The MQDLH of a dead letter, and the message data behind it."""
    chain = decode_chain(letter.md.Format, letter.md.Encoding, letter.md.CodedCharSetId, letter.data)
    header = chain.headers[0]
    assert isinstance(header, MQDLH)
    return header, letter.data[172:]


def test_mappings_and_what_they_refuse(bench: Bench, broker: Mosquitto) -> None:
    """From a queue to MQTT, from a table to queues, with dead letters on a queue and in a table; and what is persistent.

    A row that the SELECT before a mapping cannot be made of is found and diverted, as without one.
    """
    source, dead, line, plain = (bench.queues.queue() for _ in range(4))
    bench.write(
        """
        links: {plant: {host: 127.0.0.1, port: $port}}
        mappings:
          devices:
            enabled: false
            from: {queue: ANY}
            to: {mqtt: "devices/{usr.device}", link: plant}
            filter: {max_size: 6, others: discard}
          rows:
            enabled: false
            from: {mqtt: "plant/{line}/#"}
            to: {queue: "{line}"}
            attributes: {rfh2: false, retained: never, priority: 7}
        pipelines:
          out:
            from: {mq: {queue: $source}}
            payload: bytes
            select: SELECT * FROM input WHERE 8 DIV (length(body) - 4) < 100
            mapping: devices
            dead_letters: {queue: $dead}
          refused:
            from: {archive: table}
            payload: bytes
            select: SELECT topic, upper(payload) AS payload, 2 AS qos, 7 AS message_id FROM input WHERE topic LIKE '%l%'
            mapping: rows
            dead_letters: {archive: bad}
          plain:
            from: {archive: table}
            payload: bytes
            select: SELECT topic, IF(topic LIKE '%no name%', 'NINE CHARS', 'MQSTR') AS format, payload FROM input
            to: {mq: {queue: $plain, persistence: not-persistent}}
            dead_letters: {queue: $dead}
        """,
        port=broker.port,
        source=source,
        dead=dead,
        plain=plain,
    )
    (bench.directory / "table").mkdir()
    topics = [f"plant/{line}/t", "plant/no name/t", "elsewhere/lost", "other"]
    table = pa.table({"topic": topics, "payload": pa.array([b"a", b"b", b"c", b"d"])})
    pq.write_table(table, bench.directory / "table" / "rows.parquet")
    device = encode_rfh2(RFH2(CodedCharSetId=1208, folders=(Folder.build("usr", {"device": "oven-7"}),)))
    for number, body in enumerate((b"on", b"too long", b"zero")):
        bench.queues.put(source, device + body, Format=cmqc.MQFMT_RF_HEADER_2, MsgId=b"%024d" % number)
    bench.queues.put(source, b"\xffno", CorrelId=b"C" * 24)
    client = LinkConnection(
        "test", LinkConfig(host="127.0.0.1", port=broker.port), "devices", clean=True, topic_filter="devices/#", qos=2
    )
    client.start()
    try:
        assert client.wait_connected(PATIENCE)
        bench.run()
        (taken,) = client.take(1, 1 << 30, PATIENCE)
    finally:
        client.stop(PATIENCE)
    assert (taken.publication.topic, taken.publication.payload) == ("devices/oven-7", b"on")
    assert taken.publication.user_properties["mqbridge-msgid"] == (b"0" * 24).hex()
    assert bench.queues.depth(source) == 0

    letters = {letter_of(one)[1]: (letter_of(one)[0], one.md) for one in bench.queues.take(dead)}
    header, md = letters.pop(b"\xffno")
    assert header.Reason == cmqc.MQRC_PROPERTY_NOT_AVAILABLE and header.DestQName.rstrip(b" \0").decode() == source
    assert md.CorrelId == b"C" * 24
    (diverted,) = (body for body in letters if body.endswith(b"zero"))
    assert diverted == device + b"zero" and letters.pop(diverted)[0].Reason == cmqc.MQRC_FORMAT_ERROR
    ((body, (header, md)),) = letters.items()
    assert (body, header.Reason, md.Persistence) == (b"b", cmqc.MQRC_MD_ERROR, cmqc.MQPER_NOT_PERSISTENT)
    assert [one.md.Persistence for one in bench.queues.take(plain)] == [cmqc.MQPER_NOT_PERSISTENT] * 3

    (mapped,) = bench.queues.take(line)
    assert mapped.data.endswith(b"A") and (mapped.md.Priority, mapped.md.Persistence) == (7, cmqc.MQPER_PERSISTENT)
    assert b"<clientId" not in mapped.data and b"<qos dt='i4'>2</qos>" in mapped.data
    (file,) = (bench.directory / "bad").iterdir()
    ((row),) = pq.read_table(file).to_pylist()
    assert row["body"] == b"B" and "'no name'" in row["reason"] and "from 'plant/no name/t'" in row["reason"]
    made = {batch.pipeline: (batch.rows, batch.made, batch.bad) for batch in bench.batches}
    assert made == {"out": (4, 2, 2), "refused": (4, 2, 1), "plain": (4, 4, 1)}
