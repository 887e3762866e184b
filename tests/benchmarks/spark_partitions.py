"""The option `partitions` of the source `mq`: rates with one and several queues, with `local[1]` and `local[2]`.

    python -m tests.benchmarks.spark_partitions [ROWS]

Messages of 200 bytes are read from queues, a field of their JSON is parsed, and the rows are written to Parquet. A rate
is that of the batches after the first, in which Spark warms up. The CPU time is that of the JVM and Python's processes,
which depends less on the load of the machine than the rate.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bridge.mq.mqi import MQOD
from bridge.mq.remote import put_many
from bridge.spark.session import session
from bridge.telemetry.message import Message
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.benchmarks.pipeline_mq import UNIT, Place, place_of
from tests.benchmarks.spark_sources import Meter

#: Rows per batch, and bytes of a payload.
BATCH: Final = 20_000
BODY: Final = b'{"line": "L1", "temperature": 21.5}'.ljust(200)
#: Number of queues, and the option `partitions`. "" is its default.
CASES: Final = ((1, ""), (1, "2"), (4, ""), (4, "2"))


def queues(place: Place, count: int, rows: int) -> list[str]:
    """Return new queues with the same number of messages."""
    names = [place.queue() for _ in range(count)]
    for name in names:
        handle = place.connection.open(MQOD(ObjectName=name), cmqc.MQOO_OUTPUT)
        message = Message(MQMD(Format=cmqc.MQFMT_STRING, CodedCharSetId=1208), BODY)
        for _ in range(rows // count // UNIT):
            remaining = [(handle, message, cmqc.MQPMO_SYNCPOINT)] * UNIT
            while remaining:
                remaining = remaining[len(put_many(place.connection, remaining)) :]
            place.connection.commit()
        place.connection.close(handle)
    return names


def measure(master: str, rows: int) -> None:
    """Print a line for each case."""
    spark = session("bench", master=master, settings={"spark.log.level": "ERROR"})
    with place_of() as place, tempfile.TemporaryDirectory(prefix="mqbridge-bench-") as folder:
        for number, (count, partitions) in enumerate(CASES):
            here = Path(folder, str(number))
            options = place.options(queue=",".join(queues(place, count, rows)), spool=str(here / "spool"))
            options |= {"maxMessagesPerTrigger": str(BATCH), **({"partitions": partitions} if partitions else {})}
            frame = spark.readStream.format("mq").options(**options).load()
            selected = frame.selectExpr("put_time", "md", "parse_json(text):temperature::double AS temperature", "body")
            writer = selected.writeStream.format("parquet").option("checkpointLocation", str(here / "checkpoint"))
            meter = Meter({place.process.pid})
            query = writer.trigger(availableNow=True).start(str(here / "out"))
            while query.isActive and not any(progress.numInputRows for progress in query.recentProgress):
                time.sleep(0.01)
            before = meter.read()
            query.awaitTermination()
            spent = meter.read() - before
            meter.stop()
            batches = [progress for progress in query.recentProgress if progress.numInputRows][1:]
            measured_rows = sum(progress.numInputRows for progress in batches)
            seconds = sum(progress.durationMs["triggerExecution"] for progress in batches) / 1000
            cpu = (spent["JVM"] + spent["Python"]) / measured_rows * 1e6
            name = f"{count} queue{'s' if count > 1 else ''}, partitions {partitions or 'default'}"
            print(f"{master:9} {name:32} {measured_rows / seconds:8,.0f} rows/s  CPU {cpu:5.1f} us a row", flush=True)
    spark.stop()


def main(rows: str) -> None:
    """Measure each master in its own process."""
    for master in ("local[1]", "local[2]"):
        subprocess.run([sys.executable, "-m", "tests.benchmarks.spark_partitions", rows, master], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(sys.argv[2], int(sys.argv[1]))
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else "160000")
