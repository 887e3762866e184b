"""Pipelines as `mqbridge pipeline run --once` runs them, beside what Spark, or a plain program, does with the same messages.

Queue to archive beside Spark's own stream from Parquet to Parquet; queue to queue beside a loop of batches of MQGET and MQPUT
in units of work. A rate is that of the batches: all have the same rows, and the first, in which Spark warms up, is left out.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bridge.cli.pipeline import chosen_of, environment_of
from bridge.config import load
from bridge.mapping.message import Message
from bridge.mq.batch import get_many
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, GetOptions
from bridge.pipeline.flow.plan import plan
from bridge.pipeline.flow.plan import register as register_sources
from bridge.pipeline.flow.progress import Batch
from bridge.pipeline.flow.runner import Runner
from bridge.pipeline.session import session
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.bench.pipeline_mq import Place, place_of

#: Rows of a batch, and batches that are measured.
BATCH: Final = 20_000
BATCHES: Final = 5
ROWS: Final = BATCH * (BATCHES + 1)
SIZES: Final = (200, 1_024)

_YAML: Final = """
queue_manager: {{data_directory: {data}}}
channels: [{{name: LOCAL, port: 0}}]
pipelines:
  {name}:
    from: {{mq: {{queue: {queue}}}, options: {{partitions: 2}}}}
    select: SELECT {columns} FROM input
    to: {to}
    payload: bytes
    batch: {batch}
    checkpoint: {folder}/{name}
"""


def _put(place: Place, queue: str, size: int) -> None:
    handle = place.connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
    message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"x" * size)
    for number in range(1, ROWS + 1):
        place.connection.put(handle, message, cmqc.MQPMO_SYNCPOINT)
        if not number % 5_000:
            place.connection.commit()
    place.connection.commit()
    place.connection.close(handle)


def _rate(rows: list[int], seconds: list[float]) -> float:
    """The rows of a second in the middle one of the batches."""
    return statistics.median(number / taken for number, taken in zip(rows[1:], seconds[1:], strict=True))


def _pipeline(spark: SparkSession, place: Place, folder: Path, name: str, queue: str, to: str, columns: str) -> float:
    file = folder / f"{name}.yaml"
    places = {"data": place.directory, "folder": folder, "batch": BATCH}
    file.write_text(_YAML.format(name=name, queue=queue, to=to, columns=columns, **places))
    configuration = load(file)
    environment = environment_of(configuration, file, None)
    (config,) = chosen_of(configuration, None).values()
    done: list[Batch] = []
    runner = Runner(
        spark, {name: lambda: plan(spark, name, config, environment)}, tell=lambda _: None, once=True, seen=done.append
    )
    assert not runner.run() and sum(one.written for one in done) == ROWS, done
    return _rate([one.rows for one in done], [one.seconds for one in done])


def _spark_alone(spark: SparkSession, rows: DataFrame, folder: Path, name: str) -> float:
    """Spark's own stream from Parquet to Parquet, of the same rows, in files of which two are a batch."""
    rows.repartition(2 * (BATCHES + 1)).write.parquet(f"{folder}/{name}-in")
    read = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 2).parquet(f"{folder}/{name}-in")
    writer = read.writeStream.format("parquet").option("checkpointLocation", f"{folder}/{name}-checkpoint")
    query = writer.trigger(availableNow=True).start(f"{folder}/{name}-out")
    query.awaitTermination()
    done = [one for one in query.recentProgress if one.numInputRows]
    return _rate([one.numInputRows for one in done], [one.durationMs["triggerExecution"] / 1_000 for one in done])


def _plain(place: Place, source: str, target: str) -> float:
    """A program without Spark that moves messages in units of work."""
    options = GetOptions(Options=cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    connection = place.connection
    taken = connection.open(MQOD(ObjectName=source), cmqc.MQOO_INPUT_SHARED)
    put = connection.open(MQOD(ObjectName=target), cmqc.MQOO_OUTPUT)

    def move() -> None:
        open_units = 0
        try:
            while True:
                for message in get_many(connection, taken, options):
                    connection.put(put, Message(message.md, message.data), cmqc.MQPMO_SYNCPOINT)
                    open_units += 1
                if open_units >= 5_000:
                    connection.commit()
                    open_units = 0
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
        connection.commit()

    cost = place.cost(move)
    connection.close(taken)
    connection.close(put)
    return ROWS / cost.seconds


def measure() -> dict[str, float]:
    """All ways, in rows a second."""
    spark = session("bench", master="local[2]", settings={"spark.log.level": "ERROR"})
    register_sources(spark)
    found: dict[str, float] = {}
    with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-bench-") as name:
        folder = Path(name)
        for size in SIZES:
            queue = place.queue()
            _put(place, queue, size)
            rows = spark.read.format("mq").options(**place.options(queue=queue)).load()
            found[f"Parquet -> Parquet, {size} B"] = _spark_alone(spark, rows, folder, f"plain{size}")
            to = f"{{archive: {folder}/archive{size}}}"
            found[f"queue -> archive, {size} B"] = _pipeline(spark, place, folder, f"archive{size}", queue, to, "*")
        source, target = place.queue(), place.queue()
        _put(place, source, SIZES[0])
        found["queue -> queue"] = _pipeline(spark, place, folder, "moved", source, f"{{mq: {{queue: {target}}}}}", "body")
        found["queue -> queue, a plain program"] = _plain(place, target, place.queue())
    spark.stop()
    return found


def main() -> None:
    """Measure and print."""
    found = measure()
    for way, rate in found.items():
        print(f"{way}: {rate:,.0f} rows/s")
    for size in SIZES:
        ratio = found[f"queue -> archive, {size} B"] / found[f"Parquet -> Parquet, {size} B"]
        print(f"queue -> archive, {size} B: {ratio:.2f} x Spark's Parquet -> Parquet (0.6 wanted)")
    ratio = found["queue -> queue"] / found["queue -> queue, a plain program"]
    print(f"queue -> queue: {ratio:.2f} x a plain program")
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
