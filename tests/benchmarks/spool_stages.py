"""Rows per second and CPU time per row of each stage of a read through the spool, and of a write.

    python -m tests.benchmarks.spool_stages [ROWS]

The queue manager runs in its own process, and Spark is not involved. A path cannot be faster than the sum of its
stages.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.mq.mqi import MQOD, GetOptions, MQError
from bridge.mq.remote import get_many, put_many
from bridge.spark.columns import MQ_ARROW_SCHEMA, subset
from bridge.spark.mq.envelope import record_batch
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mq.queue_reader import QueueReader
from bridge.spark.spool import Spool, StreamOptions, read_segments
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.pipeline_mq import Place, place_of

UNIT: Final = 8_000
GET: Final = 1_000
TWO: Final = subset(MQ_ARROW_SCHEMA, ["body", "put_time"])


def main(rows: int = 200_000, size: int = 200) -> dict[str, dict[str, float]]:
    """Measure and print."""
    figures = {}
    with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-stages-") as folder:

        def measure(stage: str, work: Callable[[], Any]) -> Any:
            returned: list[Any] = []
            cost = place.cost(lambda: returned.append(work()))
            client, server = cost.others / rows * 1e6, cost.queue_manager / rows * 1e6
            figures[stage] = {"rows_per_second": rows / cost.seconds, "client": client, "queue_manager": server}
            print(f"{stage:45} {rows / cost.seconds:9,.0f} rows/s  CPU {client:5.1f} + {server:4.1f} us", flush=True)
            return returned[0]

        queue = place.queue()
        md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
        measure("put, units of 5,000", lambda: put(place, queue, [Message(md, b"x" * size)] * rows, 5_000))
        messages = measure("get under syncpoint, units of 8,000", lambda: take(place, queue))
        parts = [messages[start : start + UNIT] for start in range(0, rows, UNIT)]
        for name, schema in (("two columns", TWO), ("all columns", MQ_ARROW_SCHEMA)):
            batches = measure(f"columns of Arrow, {name}", lambda: [record_batch(queue, p, schema) for p in parts])  # noqa: B023
            spool = Spool(f"{folder}/{name}", queue)

            def append() -> None:
                for batch in batches:  # noqa: B023
                    spool.publish(spool.append([batch], 0, 1))  # noqa: B023

            measure(f"segments on disk, {name}", append)
            names = [segment.name for segment in spool.between(0, spool.last)]
            measure(f"segments read, {name}", lambda: list(read_segments(spool.place.path, names, schema)))  # noqa: B023
            table = pa.Table.from_batches(batches)
            measure(f"Parquet by Arrow, {name}", lambda: pq.write_table(table, f"{folder}/{name}.parquet"))  # noqa: B023
        for name, schema in (("two columns", TWO), ("all columns", MQ_ARROW_SCHEMA)):
            put(place, queue, [Message(md, b"x" * size)] * rows, 5_000)
            measure(f"queue -> spool, {name}", lambda: fill(place, queue, f"{folder}/fill {name}", schema, rows))  # noqa: B023
    return figures


def put(place: Place, queue: str, messages: list[Message], unit: int) -> None:
    connection = place.connection
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
    for start in range(0, len(messages), unit):
        remaining = [(handle, message, cmqc.MQPMO_SYNCPOINT) for message in messages[start : start + unit]]
        while remaining:
            remaining = remaining[len(put_many(connection, remaining)) :]
        connection.commit()
    connection.close(handle)


def take(place: Place, queue: str) -> list[Any]:
    connection = place.connection
    options = GetOptions(Options=cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_EXCLUSIVE)
    messages: list[Any] = []
    uncommitted = 0
    try:
        while True:
            some = get_many(connection, handle, options, GET, 4 * 1024 * 1024)
            messages += [(message.md, message.data) for message in some]
            uncommitted += len(some)
            if uncommitted >= UNIT:
                connection.commit()
                uncommitted = 0
    except MQError as error:
        if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
            raise
    connection.commit()
    connection.close(handle)
    return messages


def fill(place: Place, queue: str, directory: str, schema: Any, rows: int) -> None:
    options = QueueManagerOptions(data_directory=str(place.directory))
    reader = QueueReader(options, queue, Spool(directory, queue), schema, StreamOptions(spool_limit=2**40))
    reader.finish()
    reader.start()
    while not reader.finished:
        reader.check()
        time.sleep(0.01)
    assert sum(segment.rows for segment in reader.spool.between(0, reader.spool.last)) == rows
    reader.stop()


if __name__ == "__main__":
    print(json.dumps(main(*map(int, sys.argv[1:]))))
