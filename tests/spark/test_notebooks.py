"""The shipped notebooks, run one after the other in one session, with a bridge."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bridge.mq.mqi import MQOD, MQSD, GetOptions
from bridge.mq.remote import RemoteConnection
from bridge.spark.mq.source import browse_all, open_for_browse
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.mosquitto import free_port

NOTEBOOKS = Path(__file__).parents[2] / "deploy" / "notebooks"


@pytest.fixture
def connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteConnection]:
    """An MQ application of the bridge in the shipped configuration file."""
    port = free_port()
    text = (NOTEBOOKS / "bridge.yaml").read_text(encoding="utf-8").replace("port: 1883", f"port: {port}")
    bridge = BridgeProcess(tmp_path / "data", config=text)
    bridge.port = port
    bridge.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MQBRIDGE_CONFIG", str(bridge.config))
    connected = RemoteConnection(tmp_path / "data", application="tests")
    for line in text.splitlines():
        if "DEFINE" in line:
            assert connected.command(line.removeprefix("##"))[0].ok
    yield connected
    connected.disconnect()
    bridge.stop()


def bodies(connection: RemoteConnection, queue: str) -> list[bytes]:
    return [data for part in browse_all(connection, open_for_browse(connection, queue)) for _, data in part]


def put(connection: RemoteConnection, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        connection.put1(MQOD(ObjectName=queue), Message(MQMD(Format=cmqc.MQFMT_STRING), body))


def test_shipped_notebooks_run(
    spark: SparkSession, connection: RemoteConnection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> dict[str, Any]:
        return runpy.run_path(str(NOTEBOOKS / f"{name}.py"))

    run("mqtt_read")  # creates the session
    run("mq_write")
    assert len(bodies(connection, "PLANT.EVENTS")) == 10
    assert [tuple(row) for row in run("mq_read")["sites"].collect()] == [("north", 5, 8), ("south", 5, 9)]
    assert "5 messages of the north" in capsys.readouterr().out
    run("mq_stream")
    assert "'messages': 4, " in (output := capsys.readouterr().out) and "'waiting': 2" in output
    assert (spark.read.parquet(str(tmp_path / "out" / "events")).count(), bodies(connection, "PLANT.EVENTS")) == (
        10,
        [],
    )
    run("to_messages")
    (message,), (refused,) = bodies(connection, "PLANT.LINE1"), bodies(connection, "SYSTEM.DEAD.LETTER.QUEUE")
    assert message.endswith(b'{"value": 21.5}') and refused.endswith(b"no JSON")
    run("mqtt_write")
    run("mqtt_read")
    assert sorted(row.value for row in spark.read.parquet(str(tmp_path / "out" / "readings")).collect()) == [
        20.0,
        21.0,
        22.0,
    ]
    times = ("10:00:01", "10:00:59", "10:05:00")
    readings = [f'{{"line": "1", "temp": 2, "ts": "2026-01-01T{time}"}}'.encode() for time in times]
    put(connection, "PLANT.TELEMETRY", *readings, b"no JSON")
    run("windows")
    (average,) = bodies(connection, "PLANT.AVERAGES")
    assert json.loads(average) == {"line": "1", "minute": "2026-01-01T10:00:00.000Z", "temp": 2.0}
    managed = cmqc.MQSO_CREATE | cmqc.MQSO_NON_DURABLE | cmqc.MQSO_MANAGED
    _, handle = connection.subscribe(MQSD(Options=managed, ObjectString="plant/alarms/unknown"))
    put(connection, "PLANT.ALARMS", b"hot")
    run("queue_to_topic")
    assert connection.get(handle, GetOptions()).data.endswith(b"hot")
    assert {path.stem for path in NOTEBOOKS.glob("*.py")} == {
        "mq_read",
        "mq_stream",
        "mq_write",
        "mqtt_read",
        "mqtt_write",
        "to_messages",
        "windows",
        "queue_to_topic",
    }
