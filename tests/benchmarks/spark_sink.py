"""CPU time of the sink `mq` per row, without Spark's JVM: `python -m tests.benchmarks.spark_sink`.

Two partitions of 200-byte rows are staged and put, as a task and the driver do. The processes are this one (Python code of
the sink) and an embedded queue manager. CPU time depends on the machine's load less than elapsed time does.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bridge.mq.remote import RemoteConnection
from bridge.spark.mq.queue_manager import QueueManagerOptions
from bridge.spark.mq.writer import SinkOptions, put_batch
from bridge.spark.task import BatchIdentity
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.staging import staged_batch

#: Rows of a batch, and number of batches.
LOADS = ((1_000, 20), (10_000, 4), (100_000, 1))
_numbers = itertools.count()


def partitions(rows: int, *, with_md: bool) -> Iterator[list[Any]]:
    """Yield two partitions, each as record batches of 10,000 rows at most."""
    half = rows // 2
    for first in (0, half):
        numbers = range(first, first + half)
        columns = {"body": pa.array([(b"%d" % number).ljust(200, b"x") for number in numbers], pa.binary())}
        if with_md:
            fields = [
                pa.array([b"%024d" % number for number in numbers], pa.binary()),
                pa.array([1] * half, pa.int32()),
            ]
            columns["md"] = pa.StructArray.from_arrays(fields, ["CorrelId", "Persistence"])
        whole = pa.record_batch(columns)
        yield [whole.slice(start, 10_000) for start in range(0, half, 10_000)]


def main() -> None:
    """Print a line for each load."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "stage").mkdir()
        bridge = BridgeProcess(directory / "data", config="channels: [{name: C, port: 0}]\n")
        bridge.start()
        try:
            measure(directory, bridge)
        finally:
            bridge.discard()


def measure(directory: Path, bridge: BridgeProcess) -> None:
    """Measure all loads."""
    assert bridge.process is not None
    manager = psutil.Process(bridge.process.pid)
    connection = RemoteConnection(directory / "data", application="benchmark")
    assert connection.command("DEFINE QLOCAL('OUT') MAXDEPTH(10000000) DEFPSIST(YES)")[0].ok
    data = QueueManagerOptions(data_directory=str(directory / "data"))
    options = SinkOptions(queue_manager=data, queue="OUT", stage=str(directory / "stage"))

    def put(parts: list[list[Any]]) -> None:
        put_batch(options, staged_batch(BatchIdentity("benchmark", next(_numbers)), *parts, stage=options.stage))

    for with_md, (rows, count) in itertools.product((False, True), LOADS):
        put(list(partitions(1_000, with_md=with_md)))
        parts = list(partitions(rows, with_md=with_md))
        before = time.process_time(), sum(manager.cpu_times()[:2])
        for _ in range(count):
            put(parts)
        after = time.process_time(), sum(manager.cpu_times()[:2])
        sink, queue_manager = ((end - start) / rows / count * 1e6 for start, end in zip(before, after, strict=True))
        kind = "body, MQMD" if with_md else "body"
        print(f"{rows:>7} rows ({kind}): {sink:5.1f} µs sink, {queue_manager:5.1f} µs queue manager", flush=True)
        connection.command("CLEAR QLOCAL('OUT')")
    connection.disconnect()


if __name__ == "__main__":
    main()
