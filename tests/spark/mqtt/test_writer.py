"""The rows of a batch are published by the driver, after all tasks have succeeded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from bridge.spark import staging
from bridge.spark.mqtt.writer import ROW_PROPERTY, WRITE_OPTIONS, publish_batch, sink_options_of
from bridge.spark.options import Options
from bridge.spark.staging import StagedBatch, discard
from bridge.spark.task import BatchIdentity
from tests.helpers.mosquitto import Mosquitto
from tests.helpers.staging import stage_partitions
from tests.spark.mqtt.conftest import Clients


@pytest.mark.parametrize("in_files", [False, True], ids=["messages", "files"])
def test_a_batch_is_published_by_the_driver(
    in_files: bool, mosquitto: Mosquitto, clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MESSAGE_BYTES", 0 if in_files else 2**20)
    topic = f"batch/{in_files}"
    written_options = {"host": "127.0.0.1", "port": str(mosquitto.port), "topic": topic, "stage": str(tmp_path)}
    sink = sink_options_of(
        Options("mqtt", written_options, WRITE_OPTIONS), StructType([StructField("payload", BinaryType())])
    )
    receiver = clients("receiver", topic_filter=topic, qos=1)
    partitions = [[pa.record_batch({"payload": pa.array(rows, pa.binary())})] for rows in ([b"0", b"1"], [b"2"])]
    identity = BatchIdentity("query", 3)
    failed = stage_partitions(sink.stage, identity, *partitions)
    discard(sink.stage, [failed[0], None])
    for _ in range(2):
        publish_batch(sink, StagedBatch(sink.stage, stage_partitions(sink.stage, identity, *partitions)))
    # The failed attempt has published nothing. The repeated one has the same identifiers of rows.
    payloads_and_rows = [
        (publication.payload, dict(publication.properties.user_property)[ROW_PROPERTY])
        for publication in receiver.take_all(6)
    ]
    expected = [(b"0", "query/3/0/0"), (b"1", "query/3/0/1"), (b"2", "query/3/1/0")]
    assert payloads_and_rows == expected * 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
