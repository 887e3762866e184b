"""Pipelines that read an archive: that of the bridge, or one that a pipeline has written."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bridge.archive.schema import archive_files, json_of
from bridge.mqtt.packets import PublishProperties
from bridge.spark.failures import Mistake
from bridge.telemetry.outcome import Outcome
from bridge.wire.mq import decode_mqdlh
from tests.helpers.archive import NOON, Story, write
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.paho_clients import PahoSubscriber
from tests.spark.flow.conftest import Bench

PROPERTIES = PublishProperties(
    content_type="text/plain",
    response_topic="answers",
    correlation_data=b"\0\xff",
    user_property=(("site", "1"), ("site", "2"), ("line", "A")),
)
WINDOWS = (
    "SELECT window(received, '1 minute').start AS t, count(*) AS n FROM input GROUP BY window(received, '1 minute')"
)


@pytest.fixture
def archive(bench: Bench) -> Path:
    """An archive of the bridge with a valid and an invalid payload. Other rows have none."""
    story = Story().archive(Outcome.STARTED, 0).subscribed("reader", 0, "plant/#", 1)
    story.put(0, "plant/a", b'{"n": 1}', properties=json_of(PROPERTIES))
    return write(bench.directory / "archive", story.put(1, "plant/b", b"no JSON", properties=json_of(PROPERTIES)).rows)


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "select: SELECT topic FROM input, to: {archive: out}",
        "select: SELECT topic FROM input, to: {archive: out}, dead_letters: {archive: dead}",
        "payload: json, to: {mq: {queue: R}}, select: SELECT topic FROM input",
        "payload: json, to: {mq: {queue: R}}, select: SELECT topic FROM input, dead_letters: {archive: dead}",
        f'payload: json, to: {{mq: {{queue: R}}}}, select: "{WINDOWS}", late: {{archive: late, window: 1 min}}',
        f'payload: json, to: {{mq: {{queue: R}}}}, select: "{WINDOWS}", late: {{mq: {{queue: L}}, window: 1 min}}',
        "mapping: m",
    ],
)
def test_the_archive_of_the_bridge_is_a_source(archive: Path, bench: Bench, text: str, reads: bool) -> None:
    mapping = "m: {enabled: false, from: {mqtt: plant/#}, to: {queue: Q}}"
    bench.write(f"mappings: {{{mapping}}}\npipelines: {{p: {{from: {{archive: {archive}}}, {text}}}}}")
    bench.plan("p", reads=reads)


def test_the_archive_of_the_bridge_is_replayed_to_a_broker(bench: Bench, broker: Mosquitto) -> None:
    """With all properties of MQTT 5, which the archive contains as JSON."""
    properties = msgspec.structs.replace(PROPERTIES, payload_format_indicator=1, message_expiry_interval=600)
    story = Story().archive(Outcome.STARTED, 0).subscribed("reader", 0, "plant/#", 1)
    story.put(0, "plant/a", b"one", qos=2, properties=json_of(properties)).put(1, "plant/b", b"two", qos=1)
    archive = write(bench.directory / "archive", story.rows)
    bench.write(
        """
        links: {b: {host: 127.0.0.1, port: $port, version: "5"}}
        pipelines:
          p:
            from: {archive: $archive}
            payload: bytes
            select: SELECT topic, payload, qos, retain, properties FROM input WHERE direction = 'in'
            to: {mqtt: "again/{topic}", link: b}
        """,
        archive=archive, port=broker.port,
    )  # fmt: skip
    with PahoSubscriber(broker.port, "again/#") as subscriber:
        bench.run()
        first, second = sorted((subscriber.message() for _ in range(2)), key=lambda message: message.topic)
    assert (first.topic, first.payload, first.qos) == ("again/plant/a", b"one", 2)
    assert (second.topic, second.payload, second.qos) == ("again/plant/b", b"two", 1)
    mqtt_properties = first.properties
    assert (mqtt_properties.ContentType, mqtt_properties.ResponseTopic, mqtt_properties.CorrelationData) == (
        "text/plain",
        "answers",
        b"\0\xff",
    )
    assert mqtt_properties.PayloadFormatIndicator == 1 and 590 < mqtt_properties.MessageExpiryInterval <= 600
    # The last value of a name that is repeated.
    assert {"site": "2", "line": "A"}.items() <= dict(mqtt_properties.UserProperty).items()


def test_dead_letters_of_an_archive_have_the_properties_of_the_publication(archive: Path, bench: Bench) -> None:
    out, dead = bench.queues.queue(), bench.queues.queue()
    bench.write(
        """
        pipelines:
          p:
            from: {archive: $archive}
            payload: json
            select: SELECT topic, payload:n::int AS n FROM input WHERE direction = 'in'
            to: {mq: {queue: $out}}
            dead_letters: {queue: $dead}
          q:
            from: {archive: $archive}
            payload: json
            select: SELECT topic, payload:n::int AS n FROM input WHERE direction = 'in'
            to: {mq: {queue: $out}}
            dead_letters: {archive: $letters}
        """,
        archive=archive, out=out, dead=dead, letters=bench.directory / "letters",
    )  # fmt: skip
    bench.run()
    assert bench.queues.bodies(out) == [b'{"topic":"plant/a","n":1}'] * 2
    (letter,) = bench.queues.take(dead)
    assert letter.data.endswith(b"no JSON") and letter.data.count(b"no JSON") == 1
    assert decode_mqdlh(letter.data).DestQName.strip() == b"plant/b"
    for part in (b">2</", b">A</", b"answers", b"text/plain"):
        assert part in letter.data
    (row,) = bench.spark.read.parquet(str(bench.directory / "letters")).collect()
    assert (row.topic, bytes(row.payload)) == ("plant/b", b"no JSON")
    (file,) = archive_files(bench.directory / "letters")
    assert file.parent.relative_to(bench.directory / "letters") == Path("date=2026-03-02/hour=12")


def test_an_archive_without_payloads_has_no_dead_letters(bench: Bench) -> None:
    """An archive that another pipeline wrote with other columns."""
    queue, first, second = bench.queues.queue(), bench.directory / "first", bench.directory / "second"
    bench.write(
        """
        pipelines:
          a: {from: {mq: {queue: $queue}}, select: "SELECT payload:n::int AS n FROM input", to: {archive: $first}}
          b: {from: {archive: $first}, select: SELECT n + 1 AS n FROM input, to: {archive: $second}}
        """,
        queue=queue, first=first, second=second,
    )  # fmt: skip
    bench.queues.put(queue, b'{"n": 1}')
    bench.run("a")
    bench.run("b")
    assert [row.n for row in bench.spark.read.parquet(str(second)).collect()] == [2]


def test_an_archive_with_a_missing_file_is_not_read(bench: Bench) -> None:
    """The first file is missing: a stream of the others would look complete."""
    archive = bench.directory / "archive"
    for number in range(2):
        write(archive, Story().put(number, "t", b"").rows, moment=NOON + timedelta(minutes=number))
    bench.write(
        "pipelines: {p: {from: {archive: $archive}, select: SELECT topic FROM input, to: {archive: $out}}}",
        archive=archive, out=bench.directory / "out",
    )  # fmt: skip
    bench.plan("p")
    archive_files(archive)[0].unlink()
    with pytest.raises(Mistake, match="a complete archive"):
        bench.plan("p")
