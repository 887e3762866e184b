"""Queues and topics as files and tables of a data lake, exactly once and without Spark.

Readers fill spools (`bridge.spark.spool`). A LakeWriter collects their segments until they are large or old enough. Then it
writes them to a target: a directory of Parquet files, or a Delta table. A target takes each segment exactly once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.files import durable_file, sync
from bridge.spark.record_columns import RecordRows
from bridge.spark.segment import Segment, SpoolDamaged
from bridge.spark.spool import Spool, SpoolFiller, StreamOptions, check_abandoned, read_segments

#: Bytes of message data of one file or append.
BYTES: Final = 64 * 1024 * 1024
_PAUSE: Final = 0.05
_SUFFIX: Final = ".parquet"


class TargetFailed(Exception):
    """A target cannot be read or written. Nothing is lost."""


class OtherColumns(Exception):
    """A table does not have the columns of the rows."""


class LakeTarget(ABC):
    """Where rows go. `keeps_state`: the last segment of a spool stays, for the state of its session."""

    #: exceptions that are raised if the target cannot be read or written
    ERRORS: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, place: str, schema: Any, *, keeps_state: bool, records: RecordRows | None = None) -> None:
        """Make a target for rows of a schema, with the columns of `records` if they are COBOL records."""
        self.place = place
        self._records = records
        self._read = schema
        self._schema = schema if records is None else records.schema(schema)
        self._keeps_state = keeps_state

    @abstractmethod
    def recover(self, spool: Spool) -> None:
        """Complete a write that a crash interrupted: delete the segments of a spool that are in the target already."""

    @abstractmethod
    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Write the rows of segments and delete the segments."""

    def _batches(self, spool: Spool, segments: Sequence[Segment]) -> Any:
        batches = read_segments(spool.place.path, [segment.name for segment in segments], self._read)
        return batches if self._records is None else map(self._records.batch, batches)

    def _delete(self, spool: Spool, number: int) -> None:
        spool.delete_through(min(number, spool.last), keep_state=self._keeps_state)


class ParquetTarget(LakeTarget):
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


class DeltaTable(LakeTarget):
    """A Delta table. Each append has the number of its last segment as the version of a transaction of the spool (txn)."""

    # Besides DeltaError, the package deltalake raises Exception itself.
    ERRORS = (Exception,)
    #: add columns that the table does not have
    merges_schema = False

    @staticmethod
    def columns(place: str) -> list[str] | None:
        """Return the names of the columns of a table. None: it does not exist. Raises TargetFailed."""
        from deltalake import DeltaTable as Table

        try:
            return [field.name for field in Table(place).schema().fields] if Table.is_deltatable(place) else None
        except Exception as error:
            raise TargetFailed(f"{place} cannot be read: {str(error).splitlines()[0]}") from error

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
        from deltalake.exceptions import SchemaMismatchError

        last = segments[-1].number
        transaction = Transaction(_application(spool), last)
        damage: list[SpoolDamaged] = []

        def batches() -> Iterator[Any]:
            try:
                yield from self._batches(spool, segments)
            except SpoolDamaged as error:  # deltalake would raise another exception for it
                damage.append(error)
                raise

        try:
            write_deltalake(
                self.place,
                pa.RecordBatchReader.from_batches(self._schema, batches()),
                mode="append",
                schema_mode="merge" if self.merges_schema else None,
                commit_properties=CommitProperties(app_transactions=[transaction]),
            )
        except SchemaMismatchError as error:
            raise OtherColumns(
                f"its columns are not those of the rows ({error}); with --merge-schema, missing columns are added, and"
                " columns that the rows do not have are null"
            ) from error
        except Exception as error:
            raise (damage[0] if damage else error) from error
        self._delete(spool, last)


def _application(spool: Spool) -> str:
    return f"mqbridge-{spool.id}"


def settle(target: str, spool: Spool, keeps_state: bool) -> None:
    """Delete the segments of a spool that a target has already, whichever its format is."""
    kind = DeltaTable if Path(target, "_delta_log").is_dir() else ParquetTarget
    kind(target, None, keeps_state=keeps_state).recover(spool)


#: Formats by name.
TARGETS: Final[dict[str, type[LakeTarget]]] = {"parquet": ParquetTarget, "delta": DeltaTable}


class LakeWriter:
    """Writes the segments of spools to a target while their readers fill the spools."""

    def __init__(
        self,
        fillers: Mapping[str, SpoolFiller],
        target: LakeTarget,
        rows: int,
        interval: float,
        options: StreamOptions,
        former: Callable[[], Mapping[str, Spool]] = dict,
    ) -> None:
        """Make a writer. `former` returns the spools of queues or topic filters that are no longer read."""
        self._fillers = fillers
        self._options = options
        self._find_former = former
        self._target = target
        self._rows = rows
        self._interval = interval
        #: since when rows of a spool wait
        self._since: dict[str, float] = {}
        #: rows that were written
        self.written = 0

    def run(self, stop: threading.Event, *, once: bool) -> None:
        """Write until `stop` is set, or with `once` until all available messages are written.

        Raises the errors of readers and targets, and DataLoss. What is in the spools then is written by the next run.
        """
        try:
            self._settle_former()
            for filler in self._fillers.values():
                if once:
                    filler.finish()
                filler.start()
                with self._failures(filler.spool):
                    self._target.recover(filler.spool)
            while not stop.is_set():
                # Check first, write second: the spool of a finished reader contains all messages that it has read.
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

    @contextlib.contextmanager
    def _failures(self, spool: Spool) -> Iterator[None]:
        """Raise errors of the target in the block as TargetFailed."""
        try:
            yield
        except SpoolDamaged:
            raise
        except self._target.ERRORS as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise TargetFailed(
                f"{self._target.place} cannot be written: {reason}; hint: the rows are in spool {spool.place.path}, and the"
                " next run writes them"
            ) from error

    def _settle_former(self) -> None:
        """Complete the writes from spools that are no longer read. Raises DataLoss if messages are left in one."""
        former = self._find_former()
        try:
            for spool in former.values():
                with self._failures(spool):
                    self._target.recover(spool)
                check_abandoned(spool, spool.first - 1, self._options)
        finally:
            for spool in former.values():
                spool.close()

    def _write(self, source: str, filler: SpoolFiller, *, at_once: bool) -> bool:
        """Write the waiting segments of a spool if they are many or old. Return whether they were written."""
        filler.check()
        spool, now = filler.spool, time.monotonic()
        segments: list[Segment] = []
        rows = size = 0
        for segment in spool.between(spool.first - 1, spool.last, complete=self._options.fail_on_data_loss):
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
        with self._failures(spool):
            self._target.write(spool, segments)
        self.written += rows
        del self._since[source]
        return True
