"""The pipelines that are shipped, as they are shipped, at a mosquitto and the queue manager of the tests."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from bridge.config import load
from bridge.config.link import LinkConfig
from bridge.link.connection import LinkConnection
from bridge.mapping.rules.rule import ToMqRule, rule_of
from bridge.mq.message_producer import MessageProducer
from bridge.mq.mqi import Got
from bridge.telemetry.message import Publication
from bridge.wire.mq import MQMD
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE
from tests.spark.flow.conftest import Bench

SHIPPED = Path(__file__).parents[3] / "mappings" / "pipelines"


Connect = Callable[[str], LinkConnection]


@pytest.fixture
def connect(broker: Mosquitto) -> Iterator[Connect]:
    """connect("topic/filter"): a client that is subscribed to it."""
    made: list[LinkConnection] = []

    def connected(topic_filter: str) -> LinkConnection:
        config = LinkConfig(host="127.0.0.1", port=broker.port)
        made.append(LinkConnection("test", config, f"client{len(made)}", clean=True, topic_filter=topic_filter, qos=2))
        made[-1].start()
        assert made[-1].wait_connected(PATIENCE)
        return made[-1]

    yield connected
    for one in made:
        one.stop(PATIENCE)


def taken(client: LinkConnection, number: int) -> list[Publication]:
    found: list[Publication] = []
    while len(found) < number:
        some = client.take(number - len(found), 1 << 30, PATIENCE)
        assert some, "nothing came"
        client.acknowledge(some)
        client.complete(client.released())
        found += [one.publication for one in some]
    return found


def telemetry(machine: str, temp: float, status: str = "ok") -> Publication:
    payload = json.dumps({"temp": temp, "status": status}).encode()
    return Publication(topic=f"plant/north/telemetry/{machine}", payload=payload, qos=1)


def test_shipped_pipelines(bench: Bench, broker: Mosquitto, connect: Connect) -> None:
    for name in ("AVERAGES", "EVENTS", "ENRICHED", "COMMANDS", "NORTH"):
        bench.queues.mqsc(f"DEFINE QLOCAL(PLANT.{name}) REPLACE")
    bench.queues.mqsc("DEFINE QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) REPLACE")  # which a bridge has
    text = (SHIPPED / "examples.yaml").read_text(encoding="utf-8")
    # A minute, and 10 s more, are long for a test.
    for shipped, here in (
        ("1883", str(broker.port)),
        ("'1 minute'", "'1 second'"),
        ("watermark: 10 s", "watermark: 0"),
    ):
        assert shipped in text
        text = text.replace(shipped, here)
    bench.write(text)
    shutil.copy(SHIPPED / "machines.csv", bench.directory)
    commands, reported = connect("commands/#"), connect("reported/#")
    bench.run("hourly", "averages", "changes", "lines")  # the sessions at the broker begin
    bench.queues.put(
        "PLANT.EVENTS", b'{"event": "stop", "machine": "oven-7"}', b'{"event": "go", "machine": "unknown"}', b"no JSON"
    )
    bench.queues.put("PLANT.COMMANDS", b'{"command": "reset", "devices": ["press-1", "oven-7"]}')
    readings = [
        telemetry("press-1", 20.0),
        telemetry("press-1", 20.4),
        telemetry("press-1", 21.0),
        telemetry("oven-7", 180),
    ]
    assert commands.publish(readings) == {}
    bench.run()
    _until(time.time() + 1)
    hot = telemetry("press-1", 40.0, "hot")
    assert commands.publish([hot]) == {}
    bench.run("hourly", "averages", "changes", "lines")

    resets = taken(commands, 2)
    assert sorted((one.topic, one.payload, one.qos) for one in resets) == [
        ("commands/oven-7", b"reset", 2),
        ("commands/press-1", b"reset", 2),
    ]
    assert len({one.user_properties["mqbridge-msgid"] for one in resets}) == 1
    reports = [(one.topic.rpartition("/")[2], json.loads(one.payload)["temp"]) for one in taken(reported, 4)]
    assert [temp for machine, temp in reports if machine == "press-1"] == [20.0, 21.0, 40.0]
    assert [temp for machine, temp in reports if machine == "oven-7"] == [180.0]
    (event,) = map(json.loads, bench.queues.bodies("PLANT.ENRICHED"))
    assert [body[-7:] for body in bench.queues.bodies("SYSTEM.DEAD.LETTER.QUEUE")] == [b"no JSON"]
    assert event == {"event": "stop", "machine": "oven-7", "name": "Tunnel oven 7", "site": "Malmö"}
    files = list((bench.directory / "telemetry").glob("date=*/hour=*/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert sorted((row["line"], row["machine"], row["temp"], row["status"]) for row in rows) == [
        ("north", "oven-7", 180.0, "ok"),
        ("north", "press-1", 20.0, "ok"),
        ("north", "press-1", 20.4, "ok"),
        ("north", "press-1", 21.0, "ok"),
        ("north", "press-1", 40.0, "hot"),
    ]
    averages = [json.loads(body) for body in bench.queues.bodies("PLANT.AVERAGES")]
    assert sum(one["messages"] for one in averages) == 4 and {one["line"] for one in averages} == {"north"}
    assert sum(one["temp"] * one["messages"] for one in averages) == pytest.approx(20.0 + 20.4 + 21.0 + 180)
    (reading,) = bench.queues.take("PLANT.NORTH")
    assert described(reading) == described(by_the_service(bench, hot, reading))


def by_the_service(bench: Bench, publication: Publication, like: Got) -> Got:
    """What a thread of the service puts on the queue of the mapping `readings`, with the message id that one has."""
    configuration = load(bench.file)
    rule = rule_of("readings", configuration.mappings["readings"], configuration.queue_manager.name)
    number = re.search(rb"<msgid dt='i4'>(\d+)</msgid>", like.data)
    assert number is not None and isinstance(rule, ToMqRule)
    # The link is the client that a publication comes from which tells no other.
    mapped = rule.map(msgspec.structs.replace(publication, message_id=int(number[1]), client_id="plant"))
    assert mapped is not None
    MessageProducer(bench.queues.connection).put(mapped)
    bench.queues.connection.commit()
    (got,) = bench.queues.take("PLANT.NORTH")
    return got


def described(got: Got) -> tuple[MQMD, bytes]:
    """A message without what each one has of its own."""
    own = {"MsgId": b"", "PutDate": b"", "PutTime": b"", "PutApplName": b"", "ApplIdentityData": b""}
    return msgspec.structs.replace(got.md, **own), got.data


def _until(moment: float) -> None:
    """Windows are by the clock: wait until it says so."""
    while (left := moment - time.time()) > 0:
        time.sleep(left)
