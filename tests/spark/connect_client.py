"""A client of a Spark Connect server: reads, writes, and streams with the sources and sinks `mq` and `mqtt`.

`python -m tests.spark.connect_client JSON` takes the fields of `Job`, and prints its results.
"""

from __future__ import annotations

import sys

import mqbridge
import msgspec
from pyspark.sql import DataFrame, SparkSession


class Job(msgspec.Struct, frozen=True):
    """The job of the client."""

    url: str
    #: of the queue manager
    options: dict[str, str]
    #: of the broker
    port: int
    directory: str
    #: to read
    queue: str
    #: to write, for each step
    queues: dict[str, str]


def browse(spark: SparkSession, job: Job) -> None:
    """Print the number of messages of the queue."""
    print(spark.read.format("mq").options(**job.options, queue=job.queue).load().count())


def write(spark: SparkSession, job: Job) -> None:
    """Put 12,000 messages, which are several units of work."""
    rows = spark.range(12_000).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("mq").options(**job.options, queue=job.queues["write"]).mode("append").save()


def mapped(spark: SparkSession, job: Job) -> None:
    """Apply the rules of the service on the server."""
    publication = spark.sql("SELECT 'a/b' AS topic, CAST('mapped' AS BINARY) AS payload, 1 AS qos, false AS retain")
    messages = mqbridge.to_messages(publication, queue=job.queues["mapped"])
    messages.write.format("mq").options(**job.options).mode("append").save()


def source(spark: SparkSession, job: Job, name: str) -> DataFrame:
    """Return the stream of the queue."""
    options = {**job.options, "queue": job.queue, "spool": f"{job.directory}/{name}"}
    return spark.readStream.format("mq").options(**options).load().selectExpr("text AS body")


def stream(spark: SparkSession, job: Job) -> None:
    """Move the messages of the queue to another."""
    written = source(spark, job, "stream").writeStream.format("mq").options(**job.options, queue=job.queues["stream"])
    written = written.option("checkpointLocation", f"{job.directory}/stream checkpoint")
    written.trigger(availableNow=True).start().awaitTermination()


def publications(spark: SparkSession, job: Job) -> None:
    """Publish to the broker, and move its publications to a queue."""
    address = {"host": "127.0.0.1", "port": str(job.port)}

    def received() -> None:
        options = {**address, "topic": "connect", "clientId": "connect", "spool": f"{job.directory}/mqtt"}
        read = spark.readStream.format("mqtt").options(**options).load().selectExpr("payload AS body")
        written = read.writeStream.format("mq").options(**job.options, queue=job.queues["mqtt"])
        written = written.option("checkpointLocation", f"{job.directory}/mqtt checkpoint")
        written.trigger(availableNow=True).start().awaitTermination()

    received()  # creates the session
    rows = spark.range(1_000).selectExpr("'connect' AS topic", "CAST(id AS STRING) AS payload")
    rows.write.format("mqtt").options(**address).mode("append").save()
    received()


def for_each_batch(spark: SparkSession, job: Job) -> None:
    """Move the messages of the queue to another in a function, which runs on the server."""
    options = {**job.options, "queue": job.queues["function"], "writeId": "connect", "stage": f"{job.directory}/stage"}

    def put(frame: DataFrame, epoch: int) -> None:
        frame.write.format("mq").options(**options, epoch=str(epoch)).mode("append").save()

    written = source(spark, job, "function").writeStream.foreachBatch(put)
    written = written.option("checkpointLocation", f"{job.directory}/function checkpoint")
    written.trigger(availableNow=True).start().awaitTermination()


STEPS = {
    "browse": browse,
    "write": write,
    "mapped": mapped,
    "stream": stream,
    "publications": publications,
    "function": for_each_batch,
}

if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.argv[2], type=Job)
    started = SparkSession.builder.remote(wanted.url).getOrCreate()
    mqbridge.register(started)
    STEPS[sys.argv[1]](started, wanted)
