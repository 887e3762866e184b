"""Queues and topics that the rows of a pipeline choose: names that the configuration does not allow become dead letters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bridge.config.document import load
from bridge.config.mapping import ConfiguredNames
from bridge.config.problems import ConfigurationError
from bridge.mapping.check import warnings_of
from bridge.mapping.chosen_names import ChosenNames, ObjectKind
from bridge.mqtt.packets import Publish
from bridge.spark.destinations import rejected_name
from bridge.spark.options import OptionError
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import decode_mqdlh
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.raw_client import RawClient
from tests.spark.conftest import Queues
from tests.spark.flow.conftest import Bench

STATE = "SYSTEM.MQTT.MAPPING.STATE"
NAMES = [
    "PLANT.A", "SYSTEM.ADMIN.COMMAND.QUEUE", "SYSTEMS", "SYSTEM", "ASKED", "ASKED ", "ASKED.X", "A+B", "AAB", "a\nASKED",
    "$SYS", "$SYS/a", "$SYS\n", "$SYSTEM/a", "SYSTEM.a\nb", "SYSTEM.\x1b[2J\u2028'\\", "",
]  # fmt: skip
ALLOW: list[list[str]] = [[], ["SYSTEM.*"], ["ASKED"], ["*"], ["$SYS", "client:*"], ["SYSTEM.*.QUEUE", "$SYS/*"]]


@pytest.mark.parametrize("allow", ALLOW, ids=str)
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_spark_and_the_writer_have_the_same_rules(spark: SparkSession, kind: ObjectKind, allow: list[str]) -> None:
    rules = ChosenNames(ConfiguredNames(queues=frozenset(("ASKED", "A+B"))), allow, where="pipeline")
    frame = spark.createDataFrame([(name,) for name in NAMES], f"{kind} string")
    rejections = {row[0]: row[1] for row in frame.select(kind, rejected_name(frame, rules)).collect()}
    expected: dict[str, str | None] = {}
    for name in NAMES:
        try:
            rules.object_name(kind, name)
            expected[name] = None
        except Unmappable as error:
            expected[name] = f"{error} (MQRC_NOT_AUTHORIZED, 2035)"
            assert str(error).isprintable()
    assert rejections == expected


PIPELINE = """
mappings:
  asking:
    enabled: false
    from: {mqtt: "ask/#"}
    to: {queue: SERVICE, requests_queue: ASKED}
    attributes: {reply_to_queue: ANSWERS}
pipelines:
  chosen:
    from: {mq: {queue: $queue}}
    select: "SELECT payload:q::string AS $column, body FROM input"
    to: {mq: $mq}
    dead_letters: $dead
    allow: [$allow]
"""
REASON = "'ASKED' is a queue that the bridge uses itself, and the message chose it (hint: allow: [\"ASKED\"] in the pipeline)"


@pytest.mark.parametrize("archived", [False, True], ids=["queue", "archive"])
@pytest.mark.parametrize(("column", "mq"), [("q", '{queue: "{q}"}'), ("queue", "")], ids=["template", "column"])
def test_queues_outside_the_configuration_are_dead_letters(bench: Bench, column: str, mq: str, archived: bool) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.queues.mqsc("DEFINE QLOCAL(ASKED) NOREPLACE")
    where = f"{{archive: {bench.directory}/dead}}" if archived else f"{{queue: {dead}}}"

    def run(allow: str) -> None:
        bench.write(PIPELINE, queue=queue, column=column, mq=mq, dead=where, allow=allow)
        bench.queues.put(queue, *(json.dumps({"q": name}).encode() for name in (out, STATE, "ASKED", out)))
        bench.run()

    run("")
    assert len(bench.queues.bodies(out)) == 2
    assert bench.queues.bodies("ASKED") == []
    assert bench.sums() == {"in": 4, "out": 2, "dead": 2}
    if archived:
        letters = bench.spark.read.parquet(str(bench.directory / "dead")).collect()
        assert {row.queue: row.reason for row in letters}.keys() == {STATE, "ASKED"}
        assert f"{REASON} (MQRC_NOT_AUTHORIZED, 2035)" in {row.reason for row in letters}
    else:
        headers = [decode_mqdlh(letter.data) for letter in bench.queues.take(dead)]
        assert {header.DestQName.decode().strip() for header in headers} == {STATE, "ASKED"}
        assert {header.Reason for header in headers} == {cmqc.MQRC_NOT_AUTHORIZED}
    run('"ASKED"')
    assert len(bench.queues.bodies("ASKED")) == 1
    assert bench.sums() == {"in": 8, "out": 5, "dead": 3}


def test_topics_outside_the_configuration_are_dead_letters(bench: Bench) -> None:
    queue, dead = bench.queues.queue(), bench.queues.queue()
    _, handle = bench.queues.subscribe("chosen/#")
    mq, where = '{topic: "{q}"}', f"{{queue: {dead}}}"
    bench.write(PIPELINE, queue=queue, column="q", mq=mq, dead=where, allow="")
    bench.queues.put(queue, b'{"q": "chosen/a"}', b'{"q": "$SYS/MQ/INFO"}')
    bench.run()
    assert len(bench.queues.take_from(handle)) == 1
    assert len(bench.queues.bodies(dead)) == 1
    assert bench.sums() == {"in": 2, "out": 1, "dead": 1}


TO_MQTT = """
channels: [{name: LOCAL, port: $port}]
links: {elsewhere: {host: 127.0.0.1, port: $port}}
limits: {dead_letter_bytes: $bytes}
pipelines:
  chosen:
    from: {mq: {queue: $queue}}
    select: "SELECT payload:q::string AS q$more FROM input"
    to: {mqtt: "{q}", link: $link}
    dead_letters: $dead
    dead_letters_full: $full
    allow: [$allow]
"""


@pytest.mark.parametrize("more", ["", ", body"], ids=["json", "body"])
@pytest.mark.parametrize("archived", [False, True], ids=["queue", "archive"])
def test_topics_at_the_bridge(bench: Bench, broker: Mosquitto, archived: bool, more: str) -> None:
    """Another broker takes the place of the bridge, because the link `local` is the first channel."""
    queue, dead = bench.queues.queue(), bench.queues.queue()
    where = f"{{archive: {bench.directory}/dead}}" if archived else f"{{queue: {dead}}}"
    own = f"chosen/{queue}"
    with RawClient.connected(broker.port, f"chosen-{queue}") as client:
        client.subscribe((own, 1), (f"SYSTEM.X/{queue}", 1))

        def run(allow: str, link: str) -> list[str]:
            """Run the pipeline, and return the topics of the publications."""
            bench.write(
                TO_MQTT, port=broker.port, queue=queue, more=more, dead=where, allow=allow, link=link, bytes=10_000,
                full="null",
            )  # fmt: skip
            topics = (own, f"SYSTEM.X/{queue}", own)
            bench.queues.put(queue, *(json.dumps({"q": name}).encode() for name in topics))
            bench.run()
            client.ping()
            received_topics = [packet.topic for packet in client.inbox if isinstance(packet, Publish)]
            client.inbox.clear()
            return received_topics

        assert run("", "local") == [own, own]
        assert bench.sums() == {"in": 3, "out": 2, "dead": 1}
        if archived:
            (letter,) = bench.spark.read.parquet(str(bench.directory / "dead")).collect()
            assert letter.topic == f"SYSTEM.X/{queue}"
            assert "is a topic of the queue manager, and the message chose it (hint: allow:" in letter.reason
            assert bytes(letter.payload) == json.dumps({"q": letter.topic}).encode().replace(
                b" ", b" " if more else b""
            )
        else:
            (message,) = bench.queues.take(dead)
            header = decode_mqdlh(message.data)
            assert header.Reason == cmqc.MQRC_NOT_AUTHORIZED
            assert header.DestQName.decode().strip(" \0") == f"SYSTEM.X/{queue}"[:48]
            assert message.data.endswith(b"}")
        assert run('"SYSTEM.X/*"', "local") == [own, f"SYSTEM.X/{queue}", own]
        # Another broker has different rules.
        assert run("", "elsewhere") == [own, f"SYSTEM.X/{queue}", own]
        assert bench.sums() == {"in": 9, "out": 8, "dead": 1}


def test_rows_with_such_topics_are_discarded_beyond_the_limit_of_dead_letters(bench: Bench, broker: Mosquitto) -> None:
    queue, dead = bench.queues.queue(), bench.queues.queue()
    bench.write(
        TO_MQTT, port=broker.port, queue=queue, more="", dead=f"{{queue: {dead}}}", allow="", link="local", bytes=0,
        full="discard",
    )  # fmt: skip
    bench.queues.put(queue, b'{"q": "SYSTEM.X"}', b'{"q": "t"}')
    bench.run()
    assert bench.queues.bodies(dead) == []
    assert [(batch.rows_out, batch.dead_letters, batch.discarded) for batch in bench.batches] == [(1, 0, 1)]


def test_late_rows(bench: Bench) -> None:
    queue, out, dead = bench.queues.queue(), bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          averages:
            from: {mq: {queue: $queue}}
            schema: {ts: timestamp}
            watermark: {column: ts, delay: 10 s}
            select: "SELECT window(ts, '1 minute').start AS minute, count(*) AS n FROM input GROUP BY window(ts, '1 minute')"
            to: {mq: {queue: $out}}
            late: {mq: {queue: "{format}"}, window: 1 min}
            dead_letters: {queue: $dead}
        """,
        queue=queue, out=out, dead=dead,
    )  # fmt: skip
    bench.queues.mqsc("DEFINE QLOCAL(LATE) NOREPLACE")

    def put(time: str, format_: bytes = b"") -> None:
        bench.queues.put(queue, b'{"ts": "2026-01-01T%s"}' % time.encode(), Format=format_)
        bench.run()

    put("10:00:01")
    put("10:05:00")
    put("10:00:02", b"SYSTEM.A")  # is late
    put("10:00:03", b"LATE")
    assert len(bench.queues.bodies("LATE")) == 1
    (letter,) = bench.queues.take(dead)
    assert decode_mqdlh(letter.data).Reason == cmqc.MQRC_NOT_AUTHORIZED
    assert (bench.sums()["late"], bench.sums()["dead"]) == (2, 1)


def test_a_literal_name_is_not_restricted(bench: Bench) -> None:
    queue, dead = bench.queues.queue(), bench.queues.queue()
    bench.queues.mqsc("DEFINE QLOCAL(ASKED) NOREPLACE")
    mq, where = "{queue: ASKED}", f"{{queue: {dead}}}"
    text = PIPELINE.replace("payload:q::string AS $column, body", "body")
    bench.write(text, queue=queue, mq=mq, dead=where, allow="")
    bench.queues.put(queue, b"{}")
    bench.run()
    assert len(bench.queues.bodies("ASKED")) == 1


def test_check_prints_the_names_to_add(bench: Bench) -> None:
    def notes(mq: str, allow: str = "") -> list[str]:
        file = bench.write(PIPELINE, queue="Q", column="q", mq=mq, dead="{queue: D}", allow=allow)
        return [note for note in warnings_of(load(file)) if note.startswith("pipeline")]

    note = 'pipeline chosen: to.mq.queue results in SYSTEM names only, which are rejected (hint: allow: ["SYSTEM.X.*"])'
    assert notes('{queue: "SYSTEM.X.{q}"}') == [note]
    assert notes('{queue: "SYSTEM.X.{q}"}', "SYSTEM.X.*") == []
    assert notes('{queue: "X.{q}"}') == []

    def notes_of_topic(topic: str, link: str) -> list[str]:
        names = {"port": 1, "queue": "Q", "more": "", "dead": "{queue: D}", "allow": "", "bytes": 0, "full": "null"}
        file = bench.write(TO_MQTT.replace('"{q}"', f'"{topic}"'), link=link, **names)
        return [note for note in warnings_of(load(file)) if note.startswith("pipeline")]

    note = 'pipeline chosen: to.mqtt results in SYSTEM names only, which are rejected (hint: allow: ["$SYS/*"])'
    assert notes_of_topic("$SYS/{q}", "local") == [note]
    assert notes_of_topic("$SYS/{q}", "elsewhere") == notes_of_topic("X/{q}", "local") == []


def test_mistakes_in_names_have_file_and_line(bench: Bench) -> None:
    file = bench.write(PIPELINE, queue="Q", column="q", mq="{queue: R}", dead="{queue: D}", allow='""')
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "allow:" in text)
    with pytest.raises(ConfigurationError, match="a name, in which") as refused:
        load(file)
    assert f"{file}:{line}:" in str(refused.value)
    bench.write("mappings: {m: {enabled: false, from: {mqtt: a}, to: {queue: Q}}}\npipelines:\n"
                "  p: {from: {mqtt: a}, mapping: m, allow: [X]}\n")  # fmt: skip
    with pytest.raises(ConfigurationError, match="no allow with mapping:, which has its own") as refused:
        load(file)
    assert f"{file}:3:" in str(refused.value)


def test_the_option_names_is_for_pipelines(spark: SparkSession, queues: Queues, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("Q", "x")], "queue string, body string")
    with pytest.raises(Exception, match="only pipelines set it") as refused:
        frame.write.format("mq").options(**queues.options, names="{").mode("append").save()
    assert OptionError.__name__ in str(refused.value)
