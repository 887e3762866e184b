"""Streaming reads from spools: a reader per queue or topic filter fills each, and batches are ranges of segments.

The offset of a batch contains the number of the last segment of each spool, so a repeated batch contains the same rows. Spark
requests the offset after a batch only when the batch is in its commit log. Then the segments of the batch are deleted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from bridge.spark.columns import EnvelopeColumn, check_part, schema_of
from bridge.spark.options import TABLE_OPTION, OptionError, Options
from bridge.spark.schema import spark_schema
from bridge.spark.segment import Segment, SpoolDamaged
from bridge.spark.spool import (
    DataLoss,
    Spool,
    SpoolFiller,
    SpoolPlace,
    StreamOptions,
    check_abandoned,
    content_of,
    read_content,
    slice_of,
)

#: The version of the offsets. Versions 1 and 2 contained MsgIds or row numbers.
_VERSION: Final = 3
#: Seconds between checks of the spools.
_TURN: Final = 0.02

#: The key of the options of a table in the metadata of its first column.
_TABLE_OPTIONS: Final = "mqbridge.options"

Offset = dict[str, Any]


class MessageSource(DataSource):
    """A data source whose columns are an envelope, or a part of it."""

    #: the name for `format`
    NAME: str
    #: the options of reads, and those of other sources that users may try
    READS: tuple[str, ...]
    FOREIGN: Mapping[str, str]
    #: returns the checked options of a read. Their attribute `schema` is the second argument if given
    CHECKED: Callable[[Options, Any], Any]
    COLUMNS: Sequence[EnvelopeColumn]

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return cls.NAME

    def schema(self) -> StructType:
        """Return the envelope. Raises OptionError. `load` calls this for reads only."""
        schema = spark_schema(self.read_options().schema, self.COLUMNS)
        if any(name.startswith(TABLE_OPTION) for name in self.options):
            # CREATE TABLE … USING passes options to this method only. Spark passes its result to the readers of a table.
            schema.fields[0].metadata[_TABLE_OPTIONS] = dict(self.options)
        return schema

    def read_options(self, schema: StructType | None = None) -> Any:
        """Return the options of a read, for the columns of a schema. Raises OptionError."""
        options, part = dict(self.options), None
        if schema is not None:
            part = check_part(self.source(), to_arrow_schema(schema, timezone="UTC"), schema_of(self.COLUMNS))
            if schema.fields:
                options = schema.fields[0].metadata.get(_TABLE_OPTIONS, {}) | options
        return self.CHECKED(Options(self.source(), options, self.READS, self.FOREIGN), part)

    def write_options(self, names: Iterable[str], *, overwrite: bool = False, stream: bool = False) -> Options:
        """Return the options of a write. Raises OptionError."""
        options = Options(self.source(), dict(self.options), names)
        if overwrite:
            raise OptionError(f"{self.source()} adds messages, and overwrites none: write with mode append")
        if stream:
            options.allow((), ("writeId", "epoch"), "because a streaming query has its own identity")
        return options

    @classmethod
    def source(cls) -> str:
        """Return the name of the source in errors."""
        return f"the data source {cls.NAME}"


class AsyncProgress(Exception):
    """The query has asyncProgressTrackingEnabled."""


class Slice(NamedTuple):
    """Rows of a segment: `rows` of them, after the first `start`."""

    #: of the spool
    path: str
    segment: Segment
    start: int
    rows: int


class Slices(InputPartition):
    """A part of a batch. `embedded`: the Arrow files of the slices, for workers that do not reach the spool."""

    def __init__(self, slices: list[Slice], embedded: list[bytes] | None) -> None:
        super().__init__(None)
        self.slices = slices
        self.embedded = embedded


class SpoolReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads spools batch by batch."""

    def __init__(
        self,
        options: StreamOptions,
        schema: Any,
        fillers: Callable[[], Mapping[str, SpoolFiller]],
        former: Callable[[], Mapping[str, Spool]] = dict,
        *,
        keeps_state: bool = False,
    ) -> None:
        """Create a reader. `fillers` returns the producers of the spools, by queue or topic filter, not started.

        `former` returns the spools of queues or topic filters that are no longer read. A batch that was planned when they
        were still read is completed from them. Messages after that batch cause a DataLoss.
        `keeps_state`: the last segment of a spool is kept, because it contains state.
        """
        self._stream = options
        self._schema = schema
        self._new_fillers = fillers
        self._find_former = former
        self._keeps_state = keeps_state
        self._fillers: dict[str, SpoolFiller] = {}
        self._former: Mapping[str, Spool] = {}
        #: messages in spools that are no longer read, if that is not an error
        self._abandoned: dict[str, int] = {}
        self._available_now = False
        #: number of the last segment of each spool in an availableNow run
        self._target: dict[str, int] | None = None
        #: segments of the last planned batch, by spool
        self._batch: dict[str, list[Segment]] = {}
        #: the end of the last planned batch, and of the last batch that Spark has committed
        self._planned: Offset | None = None
        self._committed: Offset | None = None

    # Offsets ---------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return the offset before the first batch, which precedes everything in the spools."""
        return {"version": _VERSION, "spools": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxMessagesPerTrigger`. `maxBytesPerTrigger` is applied too."""
        return ReadMaxRows(self._stream.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """End the run after the messages that are available now."""
        self._available_now = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch, or `start` without one. Delete the segments up to `start`, which is committed."""
        self.finish(start)
        end = self._next(start, limit)
        while end == start and self._available_now and self._target is None:
            self._check()
            if all(filler.finished for filler in self._fillers.values()):
                self._target = {source: filler.spool.last for source, filler in self._fillers.items()}
            else:
                time.sleep(_TURN)
            end = self._next(start, limit)
        self._planned = end
        return end

    def finish(self, committed: Offset) -> None:
        """Delete the segments of a committed batch. Raises DataLoss if messages follow in a spool that is no longer read."""
        self._start()
        self._check()
        for source, spool in self._spools.items():
            spool.delete_through(self._position(committed, source), keep_state=self._keeps_state)
        for source, spool in self._former.items():
            if rows := check_abandoned(spool, self._position(committed, source), self._stream):
                self._abandoned[source] = rows
        self._close_former()

    def commit(self, end: Offset) -> None:
        """Delete the segments of a committed batch. Spark calls this late. `latestOffset` has usually deleted them."""
        self._committed = end
        self.finish(end)

    def _check_progress(self, start: Offset, end: Offset) -> None:
        """Raise AsyncProgress if the commit log of the query is written asynchronously.

        Otherwise Spark commits a batch after `latestOffset` and before the partitions of the next one. A source cannot
        read the option of the query.
        """
        if end == self._planned and start["spools"] and start != self._committed:
            raise AsyncProgress(
                "the query has the option asyncProgressTrackingEnabled, with which a batch may run again after its messages"
                " were deleted from the spool; hint: remove the option"
            )

    def _start(self) -> None:
        if not self._fillers:
            fillers = dict(self._new_fillers())
            if self._available_now:
                for filler in fillers.values():
                    filler.finish()
            try:
                self._former = self._find_former()
                for filler in fillers.values():
                    filler.start()
            except BaseException:
                _stop(fillers)
                self._close_former()
                raise
            self._fillers = fillers

    @property
    def _spools(self) -> dict[str, Spool]:
        """The spools by source, including those that are no longer read."""
        return {**{source: filler.spool for source, filler in self._fillers.items()}, **self._former}

    def _close_former(self) -> None:
        for spool in self._former.values():
            spool.close()
        self._former = {}

    def _check(self) -> None:
        for filler in self._fillers.values():
            filler.check()

    def _position(self, offset: Offset, source: str) -> int:
        """Return the number of the last segment of a spool before an offset. Raises SpoolDamaged, ValueError."""
        if offset.get("version") != _VERSION:
            raise ValueError(
                "the checkpoint has an offset of another version of mqbridge; hint: let that version finish the query"
                " (trigger availableNow), then start with a new checkpoint"
            )
        spool = self._spools[source]
        if source not in offset["spools"]:
            return spool.first - 1
        identity, number = offset["spools"][source]
        if identity != spool.id or number > spool.last:
            raise SpoolDamaged(
                f"the checkpoint is at segment {number} of spool {identity} of {source}, but {spool.place.path} is spool"
                f" {spool.id} with {spool.last} segments; hint: restore the spool of this query, or start with a new"
                " checkpoint"
            )
        return int(number)

    def _next(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the next batch: segments of each spool in turn, within the limits, at least one."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 2**62
        size = self._stream.max_bytes
        waiting: dict[str, Iterator[Segment]] = {}
        for source, filler in self._fillers.items():
            end = filler.spool.last if self._target is None else self._target[source]
            position = self._position(start, source)
            complete = self._stream.fail_on_data_loss
            waiting[source] = iter(filler.spool.between(position, max(end, position), complete=complete))
        batch: dict[str, list[Segment]] = {source: [] for source in waiting}
        count = 0
        while waiting:
            for source, segments in list(waiting.items()):
                segment = next(segments, None)
                if segment is None or (count and (segment.rows > rows or segment.size > size)):
                    del waiting[source]
                    continue
                batch[source].append(segment)
                count += segment.rows
                rows -= segment.rows
                size -= segment.size
        self._batch = batch
        if not count:
            return start
        spools = {}
        for source, chosen in batch.items():
            end = chosen[-1].number if chosen else self._position(start, source)
            spools[source] = [self._fillers[source].spool.id, end]
        return {"version": _VERSION, "spools": {**start["spools"], **spools}}

    # Batches ---------------------------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the rows of a batch in parts: one for each spool, or as many of equal size as the options specify."""
        self._check_progress(start, end)
        self._start()
        spools, complete = self._spools, self._stream.fail_on_data_loss
        batch: list[list[Slice]] = []
        for source, position in end["spools"].items():
            if source in spools:
                spool = spools[source]
                segments = spool.between(self._position(start, source), self._position(end, source), complete=complete)
                batch.append(
                    [Slice(spool.place.path, segment, 0, segment.rows) for segment in segments if segment.rows]
                )
            elif position != start["spools"].get(source) and complete:
                raise DataLoss(
                    f"the batch has messages of {source}, which is no longer read and has no spool in {self._stream.spool};"
                    " hint: restore its spool, or set the option failOnDataLoss to false to continue without them"
                )
        if self._stream.partitions is not None:
            batch = _even([piece for slices in batch for piece in slices], self._stream.partitions)
        if self._stream.embed:
            return [partition for slices in batch for partition in _embedded(slices, max_task_bytes())]
        return [Slices(slices, None) for slices in batch if slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the envelopes of a partition, as record batches."""
        assert isinstance(partition, Slices)
        if partition.embedded is not None:
            for content in partition.embedded:
                yield from read_content(content, self._schema)
            return
        for path, segment, start, rows in partition.slices:
            yield from read_content(content_of(SpoolPlace(path), segment.name), self._schema, segment.name, start, rows)

    def stop(self) -> None:
        """Disconnect."""
        _stop(self._fillers)
        self._fillers = {}
        self._close_former()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog of each spool, for the progress of the query. A query cannot start from this offset."""
        backlog: dict[str, Any] = {
            source: {"messages": 0, "bytes": 0, "waiting": rows, "oldest": None}
            for source, rows in self._abandoned.items()
        }
        for source, filler in self._fillers.items():
            batch = self._batch.get(source, [])
            after = batch[-1].number if batch else filler.spool.first - 1
            segments = filler.spool.between(after, max(filler.spool.last, after), complete=False)
            oldest = next((segment for segment in segments if segment.rows), None)
            since = None if oldest is None else datetime.fromtimestamp(oldest.time / 1000, UTC)
            backlog[source] = {
                "messages": sum(segment.rows for segment in batch),
                "bytes": sum(segment.size for segment in batch),
                "waiting": sum(segment.rows for segment in segments) + filler.depth,
                "oldest": None if since is None else since.isoformat(timespec="milliseconds"),
            }
        return backlog


def _stop(fillers: Mapping[str, SpoolFiller]) -> None:
    for filler in fillers.values():
        filler.stop()
        filler.spool.close()


def _even(slices: list[Slice], count: int) -> list[list[Slice]]:
    """Divide slices into `count` parts whose numbers of rows differ by at most one, in their order."""
    total = sum(piece.rows for piece in slices)
    parts: list[list[Slice]] = []
    pending = slices[::-1]
    for number in range(count):
        rows_needed = total * (number + 1) // count - total * number // count
        part = []
        while rows_needed:
            path, segment, start, rows = pending.pop()
            rows_taken = min(rows, rows_needed)
            part.append(Slice(path, segment, start, rows_taken))
            if rows_taken < rows:
                pending.append(Slice(path, segment, start + rows_taken, rows - rows_taken))
            rows_needed -= rows_taken
        parts.append(part)
    return parts


#: Environment variable of a source: spark.rpc.message.maxSize, in MiB, which limits a task. Spark's default is 128.
TASK_VARIABLE: Final = "MQBRIDGE_SPARK_MESSAGE_SIZE"
#: Maximum bytes of embedded rows in a task, so that several tasks share a batch, and bytes for the rest of the task.
_EMBEDDED_BYTES: Final = 32 * 1024 * 1024
_TASK_OVERHEAD: Final = 512 * 1024


class RowTooLarge(Exception):
    """A message does not fit into a task."""


def max_task_bytes() -> int:
    """Return the bytes of rows that Spark accepts in a task."""
    return int(os.environ.get(TASK_VARIABLE, "128")) * 1024 * 1024 - _TASK_OVERHEAD


def _embedded(slices: list[Slice], most: int) -> Iterator[Slices]:
    """Yield partitions that contain the rows of slices, each of at most `most` bytes. Raises RowTooLarge."""
    size_limit = min(most, _EMBEDDED_BYTES)
    part: list[Slice] = []
    contents: list[bytes] = []
    pending = slices[::-1]
    while pending:
        piece = pending.pop()
        content = slice_of(SpoolPlace(piece.path), piece.segment, piece.start, piece.rows)
        if len(content) > size_limit and (half := piece.rows // 2):
            pending += [piece._replace(start=piece.start + half, rows=piece.rows - half), piece._replace(rows=half)]
            continue
        if len(content) > most:
            raise RowTooLarge(
                f"row {piece.start} of segment {piece.path}/{piece.segment.name} has {len(content)} bytes, and a task at most"
                f" {most}; hint: put the spool into a directory that all workers reach and set embed to false, or raise"
                " spark.rpc.message.maxSize"
            )
        if part and sum(map(len, contents)) + len(content) > size_limit:
            yield Slices(part, contents)
            part, contents = [], []
        part.append(piece)
        contents.append(content)
    if part:
        yield Slices(part, contents)
