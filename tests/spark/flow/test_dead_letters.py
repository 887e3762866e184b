"""Dead letters where no task of Spark writes: formats of Spark's, and brokers."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow.dataset as ds
import pytest
from paho.mqtt import subscribe

from bridge.spark.flow.environment import LEFT
from bridge.spark.flow.mistake import Mistake
from tests.helpers.mosquitto import Mosquitto
from tests.spark.flow.conftest import Bench

NO_JSON = "the payload is no JSON"
TEXT = """
links: {plant: {host: 127.0.0.1, port: $port}}
pipelines:
  bad:
    from: {mq: {queue: $source}}
    select: SELECT payload:n::int AS n, payload:pad::string AS pad FROM input
    to: {mq: {queue: $target}}
    dead_letters: {$where}
"""


def test_a_table_of_dead_letters(bench: Bench) -> None:
    """Payloads that are bad and messages that are refused, with all that a format of tables takes."""
    source, target = bench.queues.queue(), bench.queues.queue("MAXMSGL(60)")
    place = bench.directory / "bad"
    where = f"format: parquet, path: {place}, partitionBy: [pipeline]"
    bench.write(TEXT, source=source, target=target, where=where, port=1)
    before = datetime.now(UTC)
    long = b'{"n": 2, "pad": "%s"}' % (b"x" * 100)
    bench.queues.put(source, b"no JSON", b'{"n": 1}', long)
    bench.run()
    bench.queues.put(source, b'{"n": 3.5}')
    bench.run()
    rows = ds.dataset(place, format="parquet", partitioning="hive").to_table().to_pylist()
    found = {one["reason"].partition(":")[0].partition(" (")[0]: one for one in rows}
    assert sorted(found) == ["MQRC_MSG_TOO_BIG_FOR_Q", "n of the payload is no int", NO_JSON]
    one = found[NO_JSON]
    assert (one["body"], one["queue"], one["topic"], one["batch"], one["pipeline"]) == (b"no JSON", source, None, 0, "bad")
    assert one["headers"] == b"" and one["time"].date() in (before.date(), datetime.now(UTC).date())
    refused = found["MQRC_MSG_TOO_BIG_FOR_Q"]
    assert (refused["queue"], refused["batch"]) == (target, 0) and b"xxx" in refused["body"]
    assert found["n of the payload is no int"]["batch"] == 1
    assert sum(one.bad for one in bench.batches) == 3
    assert not [*(bench.directory / "state" / "bad" / LEFT).iterdir()]


def test_a_table_that_cannot_be_written_is_told_and_tried_again(bench: Bench) -> None:
    source, target, place = bench.queues.queue(), bench.queues.queue(), bench.directory / "bad"
    bench.write(TEXT, source=source, target=target, where=f"format: parquet, path: {place}", port=1)
    place.write_text("no directory")
    bench.queues.put(source, b"no JSON", b'{"n": 1}')
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if "tried again in" in line:
            place.unlink(missing_ok=True)

    assert bench.runner(tell=tell, attempts=3).run() == []
    assert any("tried again in" in line and str(place) in line for line in lines)
    assert ds.dataset(place, format="parquet").to_table().column("body").to_pylist() == [b"no JSON"]
    assert len(bench.queues.bodies(target)) == 1 and bench.queues.depth(source) == 0


def test_dead_letters_that_are_published(bench: Bench, broker: Mosquitto) -> None:
    source, target = bench.queues.queue(), bench.queues.queue()
    where = 'mqtt: "dead/{pipeline}/{queue}", link: plant, retain: true'
    bench.write(TEXT, source=source, target=target, where=where, port=broker.port)
    bench.queues.put(source, b"no JSON", b'{"n": 1}')
    bench.run()
    message = subscribe.simple(f"dead/bad/{source}", port=broker.port)
    assert message.payload == b"no JSON" and message.retain


@pytest.mark.parametrize(
    ("where", "location", "words"),
    [
        ("format: none-such", ("dead_letters", "format"), "a format that this Spark has"),
        ('mqtt: "dead/{n}"', ("dead_letters", "mqtt"), "a column that select makes (pipeline, batch, reason"),
    ],
)
def test_mistake(where: str, location: tuple[str, ...], words: str, bench: Bench) -> None:
    bench.write(TEXT, source="Q", target="R", where=where, port=1)
    with pytest.raises(Mistake) as raised:
        bench.plan("bad")
    assert raised.value.location == location and words in raised.value.expected
