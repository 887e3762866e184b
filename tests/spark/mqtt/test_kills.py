"""Kills with SIGKILL at each step: each acknowledged publication exists once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from bridge.spark.mq.queue_manager import APPLICATION_NAME
from bridge.telemetry.message import Publication
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.patience import PATIENCE, until
from tests.spark.conftest import ROOT, Queues
from tests.spark.faults import Fault, fault, kill_driver
from tests.spark.mqtt.conftest import Clients
from tests.spark.mqtt.driver import drain
from tests.spark.mqtt.proxy import PUBACK, PUBCOMP, PUBREC, SUBSCRIBE, Proxy
from tests.spark.mqtt.spooler import payloads, session_made, subscriber_of

DRIVER_PATIENCE = 150


def process(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A module as a process, in a separate process group."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    "qos, steps",
    [
        (2, [(SUBSCRIBE, 1, False), (PUBREC, 1, False), (PUBREC, 30, True), (PUBCOMP, 1, False), (PUBCOMP, 25, True)]),
        pytest.param(
            1,
            [(SUBSCRIBE, 1, False), (PUBACK, 1, False), (PUBACK, 1, True), (PUBACK, 30, False), (PUBACK, 30, True)],
            marks=pytest.mark.slow,
        ),
        (1, [(PUBACK, 1, False)]),
        (1, [(PUBACK, 1, True)]),
    ],
)
def test_a_spool_whose_process_is_killed_at_each_step(
    qos: int, steps: list[tuple[int, int, bool]], mosquitto: Mosquitto, clients: Clients, tmp_path: Path
) -> None:
    """Before, or after, the broker gets the n-th packet of a kind. With QoS 1 a publication may be several rows."""
    topic = f"killed/{tmp_path.name}"
    sender = clients(f"sender {tmp_path.name}")
    session_made(mosquitto.port, tmp_path, topic)
    expected: list[bytes] = []
    with Proxy(mosquitto.port) as proxy:
        for number, (packet, count, after) in enumerate(steps):
            bodies = [b"%d %02d" % (number, index) for index in range(50)]
            sender.publish_all(*[Publication(topic=topic, payload=body, qos=qos) for body in bodies])
            expected += bodies
            running = process("tests.spark.mqtt.spooler", proxy.port, tmp_path, topic)
            proxy.at(packet, running.kill, number=count, after=after)
            assert running.wait(PATIENCE) == -signal.SIGKILL
            assert proxy.happened
        subscriber = subscriber_of(proxy.port, tmp_path, topic)
        subscriber.start()
        sender.publish_all(Publication(topic=topic, payload=b"end", qos=qos))
        until(lambda: b"end" in payloads(subscriber))
        subscriber.stop()
    rows = payloads(subscriber)
    assert (rows if qos == 2 else list(dict.fromkeys(rows))) == [*expected, b"end"]
    subscriber.spool.close()


@pytest.mark.slow
def test_a_killed_driver(
    spark: SparkSession, mosquitto: Mosquitto, clients: Clients, queues: Queues, tmp_path: Path
) -> None:
    """To a queue and to a table: each publication arrives once. (The last driver is that of all tests.)"""
    queue = queues.queue()
    bodies = [b"%03d" % number for number in range(40)]
    sender = clients("drivers")
    for topic in ("queue", "table"):
        session_made(mosquitto.port, tmp_path / topic, topic)
        sender.publish_all(*[Publication(topic=topic, payload=body, qos=2) for body in bodies])
    driver = process("tests.spark.mqtt.driver", mosquitto.port, queues.directory, queue, tmp_path)
    # After the first batch is put, and before Spark has recorded it. The first commit is that of the first states.
    committed = Fault(
        lambda verb, request: verb == "MQCMIT",
        2,
        action=lambda _: kill_driver(driver.pid),
        after=True,
    )
    with fault(APPLICATION_NAME, committed):
        assert driver.wait(DRIVER_PATIENCE) == -signal.SIGKILL
    assert committed.happened
    drain(spark, mosquitto.port, queues.directory, queue, tmp_path)
    assert queues.bodies(queue) == bodies
    # Spark's list of valid files does not contain the file of a killed batch.
    listed = [
        line
        for log in (tmp_path / "rows" / "_spark_metadata").iterdir()
        if not log.name.startswith(".")
        for line in log.read_text().splitlines()[1:]
    ]
    files = [str(tmp_path / "rows" / msgspec.json.decode(line)["path"].rpartition("/")[2]) for line in listed]
    table = pyarrow.dataset.dataset(files, format="parquet").to_table()
    assert Counter(table.column("body").to_pylist()) == Counter(bodies)
    assert not list((tmp_path / "queue").glob("*/*.arrow"))
