"""Batches kept on disk before they are written, where Spark might make other rows of them when they are run again.

A SELECT with `uuid()` makes other values; behind a shuffle rows come in another order, and sums of doubles differ; a
reference table may have been changed meanwhile. So rows are in files of Arrow, one for each partition, before a destination
gets any; a batch that is run again is written from those.

    DIR/QUERY-BATCH.json, the manifest: the batch is whole
    DIR/QUERY-BATCH-PARTITION-*.arrow
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from bridge.files import durable_file
from bridge.spark import task

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class Manifest(msgspec.Struct, frozen=True):
    """The files of a batch."""

    #: of its rows, as Spark says it in JSON
    schema: str
    #: names, by the number of the partition; an empty one has none
    files: dict[int, str]


class Staging:
    """The directory where a query has the batch that is under way."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def staged(self, frame: DataFrame, batch: int) -> DataFrame:
        """Return the rows of a batch as they were made first, in the same partitions and order.

        The frame is computed in any case, once, because its operators keep their state only then. Rows of another schema
        count for nothing: they are of a SELECT that was changed meanwhile. Raises PySparkException, OSError.
        """
        query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        name = f"{query}-{batch}"
        self._directory.mkdir(parents=True, exist_ok=True)
        for one in self._directory.iterdir():
            if not one.name.startswith((f"{name}-", f"{name}.")):
                one.unlink()  # the batch before has been written
        schema = frame.schema.json()
        manifest = self._manifest(name)
        if manifest is not None and manifest.schema == schema:
            frame.write.format("noop").mode("append").save()
        else:
            written = frame.mapInArrow(_Stage(self._directory, name), "number INT, file STRING").collect()
            manifest = Manifest(schema, {row.number: row.file for row in written})
            with durable_file(self._directory / f"{name}.json") as file:
                file.write(msgspec.json.encode(manifest))
        count = max(manifest.files, default=0) + 1
        numbers = frame.sparkSession.range(0, count, 1, count)
        return numbers.mapInArrow(_Unstage(self._directory, manifest.files), frame.schema)

    def _manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a batch that is whole. Raises OSError, also for one that is damaged."""
        file = self._directory / f"{name}.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=Manifest)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            # Made anew, the rows could come twice: a destination may have some of them.
            again = "without it the batch is made anew, and its rows may come twice"
            raise OSError(f"{file} is damaged: {error}; {again}") from error


class _Stage(msgspec.Struct, frozen=True):
    """Writes the rows of a partition to a file, and yields its name: for mapInArrow.

    The name is that of the attempt, too: a task that Spark has given up, and that goes on, writes to none that counts.
    """

    directory: Path
    name: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return
        number = task.partition()
        path = self.directory / f"{self.name}-{number}-{uuid.uuid4().hex}.arrow"
        with durable_file(path) as file, pa.ipc.new_file(file, found[0].schema, options=_COMPRESSED) as writer:
            for batch in found:
                writer.write_batch(batch)
        yield pa.record_batch({"number": pa.array([number], pa.int32()), "file": [path.name]})


class _Unstage(msgspec.Struct, frozen=True):
    """Yields the rows of the file that has the number of a partition: for mapInArrow."""

    directory: Path
    files: dict[int, str]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        numbers = (one.as_py() for batch in batches for one in batch.column(0))
        for number in filter(self.files.__contains__, numbers):
            with pa.memory_map(os.fspath(self.directory / self.files[number])) as file:
                reader = pa.ipc.open_file(file)
                yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
