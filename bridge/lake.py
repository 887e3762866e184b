"""Queues and topics as files and tables of a data lake, exactly once and without Spark.

Readers fill spools (`bridge.spark.spool`). A LakeWriter collects their segments until they are large or old enough. Then it
writes them to a target: a directory of Parquet files, or a Delta table. A target takes each segment exactly once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.files import durable_file, sync
from bridge.spark.spool import Segment, Spool, SpoolFiller, read_segments

#: Bytes of message data of one file or append.
BYTES: Final = 64 * 1024 * 1024
_PAUSE: Final = 0.05
_SUFFIX: Final = ".parquet"


class Target(ABC):
    """Where rows go. `keeps_state`: the last segment of a spool stays, for the state of its session."""

    def __init__(self, place: str, schema: Any, *, keeps_state: bool) -> None:
        self.place = place
        self._schema = schema
        self._keeps_state = keeps_state

    @abstractmethod
    def recover(self, spool: Spool) -> None:
        """Complete what a crash interrupted: delete the segments of a spool that are in the target already."""

    @abstractmethod
    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Write the rows of segments and delete the segments."""

    def _batches(self, spool: Spool, segments: Sequence[Segment]) -> Any:
        return read_segments(spool.place.path, [one.name for one in segments], self._schema)

    def _delete(self, spool: Spool, number: int) -> None:
        spool.delete_through(min(number, spool.last), keep_state=self._keeps_state)


class ParquetTarget(Target):
    """A directory of Parquet files.

    A file is written and brought to disk under a hidden name. Then its segments are deleted, and then it gets its visible
    name. So a hidden file whose name is complete replaces its segments, whatever was killed in between.
    """

    def recover(self, spool: Spool) -> None:
        """Delete the segments of hidden files, and make the files visible."""
        for unfinished in Path(self.place).glob(f"..{spool.id}-*"):
            unfinished.unlink()
        for hidden in sorted(Path(self.place).glob(f".{spool.id}-*{_SUFFIX}")):
            self._reveal(spool, hidden, int(hidden.stem.rpartition("-")[2]))

    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Write one file."""
        first, last = segments[0].number, segments[-1].number
        hidden = Path(self.place, f".{spool.id}-{first:012d}-{last:012d}{_SUFFIX}")
        with durable_file(hidden) as file, pq.ParquetWriter(file, self._schema) as writer:
            writer.write_table(pa.Table.from_batches(self._batches(spool, segments), self._schema))
        self._reveal(spool, hidden, last)

    def _reveal(self, spool: Spool, hidden: Path, last: int) -> None:
        self._delete(spool, last)
        sync(Path(spool.place.path))
        hidden.rename(hidden.with_name(hidden.name[1:]))
        sync(hidden.parent)


class DeltaTable(Target):
    """A Delta table. Each append has the number of its last segment as the version of a transaction of the spool (txn)."""

    def recover(self, spool: Spool) -> None:
        """Delete the segments that the table has by its newest transaction of the spool."""
        from deltalake import DeltaTable as Table

        if Table.is_deltatable(self.place):
            version = Table(self.place).transaction_version(_application(spool))
            if version is not None:
                self._delete(spool, version)

    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Append to the table; create it if it does not exist."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        last = segments[-1].number
        transaction = Transaction(_application(spool), last)
        write_deltalake(
            self.place,
            pa.RecordBatchReader.from_batches(self._schema, self._batches(spool, segments)),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[transaction]),
        )
        self._delete(spool, last)


def _application(spool: Spool) -> str:
    return f"mqbridge-{spool.id}"


#: Formats by name.
TARGETS: Final[dict[str, type[Target]]] = {"parquet": ParquetTarget, "delta": DeltaTable}


class TargetFailed(Exception):
    """A target cannot be written. Nothing is lost."""


class LakeWriter:
    """Writes the segments of spools to a target while their readers fill the spools."""

    def __init__(self, fillers: Mapping[str, SpoolFiller], target: Target, rows: int, interval: float) -> None:
        self._fillers = fillers
        self._target = target
        self._rows = rows
        self._interval = interval
        #: since when rows of a spool wait
        self._since: dict[str, float] = {}
        #: rows that were written
        self.written = 0

    def run(self, stop: threading.Event, *, once: bool) -> None:
        """Write until `stop` is set, or with `once` until all available messages are written.

        Raises the errors of readers and targets. What is in the spools then is written by the next run.
        """
        try:
            for filler in self._fillers.values():
                if once:
                    filler.finish()
                filler.start()
                self._target.recover(filler.spool)
            while not stop.is_set():
                # In this order: what a reader that has finished has read is in its spool.
                finished = once and all(filler.finished for filler in self._fillers.values())
                wrote = [self._write(source, filler, at_once=finished) for source, filler in self._fillers.items()]
                if not any(wrote):
                    if finished:
                        return
                    stop.wait(_PAUSE)
        finally:
            for filler in self._fillers.values():
                filler.stop()
                filler.spool.close()

    def _write(self, source: str, filler: SpoolFiller, *, at_once: bool) -> bool:
        """Write the waiting segments of a spool if they are many or old. Return whether they were written."""
        filler.check()
        spool, now = filler.spool, time.monotonic()
        segments: list[Segment] = []
        rows = size = 0
        for segment in spool.between(spool.first - 1, spool.last):
            if rows >= self._rows or size >= BYTES:
                break
            segments.append(segment)
            rows += segment.rows
            size += segment.size
        if not rows:
            self._since.pop(source, None)
            return False
        since = self._since.setdefault(source, now)
        if not (at_once or rows >= self._rows or size >= BYTES or now - since >= self._interval):
            return False
        try:
            self._target.write(spool, segments)
        except OSError as error:
            raise TargetFailed(
                f"{self._target.place} cannot be written: {error}; hint: the rows are in spool {spool.place.path}, and the"
                " next run writes them"
            ) from error
        self.written += rows
        del self._since[source]
        return True
