"""Pipelines of `mqbridge pipeline run --once`, compared with Spark or a plain program and the same messages.

From a queue and a broker to an archive, compared with Spark's own stream from Parquet to Parquet. From a queue to a
queue, compared with a loop of batches of MQGET and MQPUT in units of work. A rate is that of the batches after the
first, in which Spark warms up.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bridge.config.document import load
from bridge.mq.mqi import MQOD, Connection, GetOptions, MQError
from bridge.mq.remote import MESSAGES, Put, get_many, put_many
from bridge.spark.administration import CompletedBatch
from bridge.spark.environment import environment_of
from bridge.spark.pipeline import plan
from bridge.spark.runner import PipelineRunner
from bridge.spark.session import session
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.mapping import publish
from tests.benchmarks.pipeline_mq import Place, place_of
from tests.benchmarks.servers import Mosquitto, Server

#: Rows per batch, and number of measured batches.
BATCH: Final = 20_000
BATCHES: Final = 5
ROWS: Final = BATCH * (BATCHES + 1)
SIZES: Final = (200, 1_024)
#: Minimum ratios to Spark's own stream and to a plain program.
LEAST_TO_ARCHIVE: Final = 0.6
LEAST_TO_QUEUE: Final = 1.0

#: Puts per unit of work.
UNIT: Final = 5_000

_YAML: Final = """
queue_manager: {{data_directory: {data}}}
channels: [{{name: LOCAL, port: 0}}]
links: {{plant: {{host: 127.0.0.1, port: {port}}}}}
pipelines:
  {name}:
    from: {source}
    select: SELECT {columns} FROM input
    to: {to}
    payload: bytes
    batch: {batch}
    checkpoint: {folder}/{name}
"""


class Ground:
    """Spark, a queue manager, a broker, and a directory for the files of pipelines."""

    def __init__(self, spark: SparkSession, place: Place, broker: Server, folder: Path) -> None:
        self.spark, self.place, self.broker, self.folder = spark, place, broker, folder

    def pipeline(self, name: str, source: str, to: str, columns: str, rows: int = ROWS) -> float:
        """Return rows per second of a pipeline with this many rows at its source."""
        file = self.folder / f"{name}.yaml"
        places = {"data": self.place.directory, "folder": self.folder, "port": self.broker.port, "batch": BATCH}
        file.write_text(_YAML.format(name=name, source=source, to=to, columns=columns, **places))
        configuration = load(file)
        environment = environment_of(configuration, file, Path(self.place.directory))
        (config,) = configuration.pipelines.values()
        batches: list[CompletedBatch] = []
        plans = {name: lambda: plan(self.spark, name, config, environment)}
        runner = PipelineRunner(self.spark, plans, report=lambda _: None, once=True, on_batch=batches.append)
        assert not runner.run() and sum(batch.rows_out for batch in batches) == rows, batches
        return _rate([batch.rows_in for batch in batches], [batch.seconds for batch in batches]) if rows else 0.0

    def from_queue(self, name: str, queue: str, to: str, columns: str) -> float:
        """Return rows per second from a queue."""
        return self.pipeline(name, f"{{mq: {{queue: {queue}}}, options: {{partitions: 2}}}}", to, columns)

    def from_broker(self, name: str, size: int, to: str) -> float:
        """Return rows per second of publications that wait in a session at the broker, which the first run created."""
        source = f"{{mqtt: '{name}/#', link: plant, options: {{qos: 1, partitions: 2}}}}"
        self.pipeline(name, source, to, "*", rows=0)
        publish(self.broker.port, f"{name}/telemetry", b"x" * size, 1, ROWS)
        return self.pipeline(name, source, to, "*")

    def spark_alone(self, rows: DataFrame, name: str) -> float:
        """Return rows per second of Spark's own stream from Parquet to Parquet, with the same rows in two files per
        batch.
        """
        place = self.folder / name
        rows.repartition(2 * (BATCHES + 1)).write.parquet(f"{place}/in")
        read = self.spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 2).parquet(f"{place}/in")
        writer = read.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
        query = writer.trigger(availableNow=True).start(f"{place}/out")
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        return _rate(
            [progress.numInputRows for progress in batches],
            [progress.durationMs["triggerExecution"] / 1_000 for progress in batches],
        )


def _put(connection: Connection, queue: str, size: int) -> None:
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_OUTPUT)
    message = Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"x" * size)
    for _ in range(ROWS // UNIT):
        _put_all(connection, [(handle, message, cmqc.MQPMO_SYNCPOINT)] * UNIT)
        connection.commit()
    connection.close(handle)


def _put_all(connection: Connection, puts: list[Put]) -> None:
    while puts:
        puts = puts[len(put_many(connection, puts)) :]


def _rate(rows: list[int], seconds: list[float]) -> float:
    """Return the rows per second of the median batch."""
    return statistics.median(number / duration for number, duration in zip(rows[1:], seconds[1:], strict=True))


def _plain(place: Place, source: str, target: str) -> float:
    """Return rows per second of a program without Spark, which moves messages in units of work by batches of verbs."""
    options = GetOptions(Options=cmqc.MQGMO_SYNCPOINT | cmqc.MQGMO_PROPERTIES_FORCE_MQRFH2)
    connection = place.connection
    source_handle = connection.open(MQOD(ObjectName=source), cmqc.MQOO_INPUT_SHARED)
    target_handle = connection.open(MQOD(ObjectName=target), cmqc.MQOO_OUTPUT)

    def move() -> None:
        uncommitted = 0
        try:
            while True:
                messages = get_many(connection, source_handle, options)
                _put_all(
                    connection,
                    [(target_handle, Message(message.md, message.data), cmqc.MQPMO_SYNCPOINT) for message in messages],
                )
                uncommitted += len(messages)
                if uncommitted >= UNIT - MESSAGES:  # the gets and puts of a unit count for MAXUMSGS
                    connection.commit()
                    uncommitted = 0
        except MQError as error:
            if error.reason != cmqc.MQRC_NO_MSG_AVAILABLE:
                raise
        connection.commit()

    cost = place.cost(move)
    connection.close(source_handle)
    connection.close(target_handle)
    return ROWS / cost.seconds


def measure(report: Callable[[str], None]) -> dict[str, float]:
    """Measure all ways in rows per second, and report each."""
    rates: dict[str, float] = {}

    def tell(way: str, rate: float, beside: str = "", least: float = 0.0) -> None:
        rates[way] = rate
        ratio = f", {rate / rates[beside]:.2f} x {beside} ({least:g} wanted)" if beside else ""
        report(f"{way}: {rate:,.0f} rows/s{ratio}")

    spark = session("bench", master="local[2]", settings={"spark.log.level": "ERROR"})
    broker = Mosquitto()
    broker.start()
    try:
        with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-bench-") as name:
            ground = Ground(spark, place, broker, Path(name))
            for size in SIZES:
                queue = place.queue()
                _put(place.connection, queue, size)
                rows = spark.read.format("mq").options(**place.options(queue=queue)).load()
                alone = f"Parquet -> Parquet, {size} B"
                tell(alone, ground.spark_alone(rows, f"plain{size}"))
                to = f"{{archive: {name}/queue-archive{size}}}"
                rate = ground.from_queue(f"queue{size}", queue, to, "*")
                tell(f"queue -> archive, {size} B", rate, alone, LEAST_TO_ARCHIVE)
                to = f"{{archive: {name}/mqtt-archive{size}}}"
                rate = ground.from_broker(f"mqtt{size}", size, to)
                tell(f"MQTT -> archive, {size} B", rate, alone, LEAST_TO_ARCHIVE)
            source, target = place.queue(), place.queue()
            _put(place.connection, source, SIZES[0])
            rate = ground.from_queue("moved", source, f"{{mq: {{queue: {target}}}}}", "body")
            plain = "queue -> queue, a plain program"
            tell(plain, _plain(place, target, place.queue()))
            tell("queue -> queue", rate, plain, LEAST_TO_QUEUE)
    finally:
        broker.stop()
    spark.stop()
    return rates


def main() -> None:
    """Measure and print."""
    print(json.dumps(measure(partial(print, flush=True))))


if __name__ == "__main__":
    main()
