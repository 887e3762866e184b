"""Streaming reads: a session for each topic filter, kept up by the process that plans the batches of the query.

Offsets are numbers of rows in the spools, so that a batch that is run again has the very same rows. Spark asks for the
offset behind that of a batch only when the batch is in its commit log: then its rows are deleted. The broker gets its
acknowledgement long before, when a message is in the spool; nothing waits for Spark's `commit`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from bridge.spark.mqtt.frame import Slice, SpoolDamaged, read, read_bytes
from bridge.spark.mqtt.source_options import SourceOptions
from bridge.spark.mqtt.spool import Spool, partitions
from bridge.spark.mqtt.subscriber import Subscriber

#: Seconds that the first connection of a process may take.
CONNECT_WAIT: Final = 20.0
#: Seconds of an availableNow run after which it ends with what is there, though messages still come.
LONGEST_RUN: Final = 60.0
#: Bytes of frames of a partition that travel with the plan.
EMBEDDED_BYTES: Final = 256 * 1024

#: Seconds between looks at all spools.
_TURN: Final = 0.02

#: filter -> identity of its spool, number of the first row behind the batch
Offset = dict[str, Any]


class SpooledRows(InputPartition):
    """Rows of a spool."""

    def __init__(self, slices: list[Slice]) -> None:
        super().__init__(None)
        self.slices = slices


class NotConnected(Exception):
    """The broker cannot be reached, or refuses the session."""


class MqttStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topic filters batch by batch."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._spools: dict[str, Spool] = {}
        self._subscribers: dict[str, Subscriber] = {}
        #: when an availableNow run has to have all its messages; None: it is no such run, or it has
        self._deadline: float | None = None
        #: of the batch that was planned last: its first row and the one behind it, and its bytes of payload, by filter
        self._batch: dict[str, tuple[int, int, int]] = {}
        #: row of each filter where an availableNow run ends
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> Offset:
        """Return the offset before the first batch: what no query has committed."""
        return {one: [self._spool(one).id, self._spool(one).committed] for one in self._options.topic_filters}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxMessagesPerTrigger`; `maxBytesPerTrigger` is kept beside it."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Have the run take what is there and what comes until nothing came for the quiet period."""
        self._deadline = time.monotonic() + LONGEST_RUN

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the next batch; `start` when nothing is there. The rows before `start`, which is committed, are deleted."""
        self._subscribe()
        self.finish(start)
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._end_run()
        end = self._next(start, limit)
        while end == start and self._deadline is not None:
            self._wait_quiet(start)
            end = self._next(start, limit)
        return end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the rows of a batch, those of each filter in as many partitions as the options say."""
        found: list[InputPartition] = []
        for one in end:
            spool = self._spool(one)
            first, last = self._position(start, one), self._position(end, one)
            for part in partitions(spool.slices(first, last), self._options.partitions):
                found.append(SpooledRows(self._packed(part)))
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the envelopes of a partition, as record batches."""
        assert isinstance(partition, SpooledRows)
        return read(partition.slices)

    def commit(self, end: Offset) -> None:
        """Delete the rows of a committed batch. Spark comes late with it; `latestOffset` has most often done it."""
        self.finish(end)

    def stop(self) -> None:
        """Disconnect. Nothing needs it: a process that is killed leaves everything to the next one."""
        for subscriber in self._subscribers.values():
            subscriber.stop()
        for spool in self._spools.values():
            spool.close()
        self._subscribers, self._spools = {}, {}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog of each filter, for the progress of the query; it is no offset to start from.

        What waits is what is in the spool; of what waits at the broker, which it tells nobody, nothing is known.
        """
        backlog = {}
        for one, (first, end, size) in self._batch.items():
            spool = self._spool(one)
            waiting = spool.end - end
            oldest = spool.received_at(end).isoformat(timespec="milliseconds") if waiting else None
            backlog[one] = {"messages": end - first, "bytes": size, "waiting": waiting, "oldest": oldest}
        return backlog

    # Spools and sessions ---------------------------------------------------------------------------------------------

    def _spool(self, topic_filter: str) -> Spool:
        if (spool := self._spools.get(topic_filter)) is None:
            spool = self._spools[topic_filter] = Spool(Path(self._options.spool), topic_filter)
        return spool

    def _subscribe(self) -> None:
        """Start what is not started, and see that it runs. Raises NotConnected, and what a subscriber ended by."""
        options = self._options
        new = [one for one in options.topic_filters if one not in self._subscribers]
        for one in new:
            subscriber = Subscriber(options.broker, self._spool(one), one, options.qos, options.spool_limit)
            self._subscribers[one] = subscriber
            subscriber.start()
        before = time.monotonic() + CONNECT_WAIT
        for one in new:
            subscriber = self._subscribers[one]
            if not subscriber.wait_connected(max(before - time.monotonic(), 0)):
                raise NotConnected(
                    f"no session at {options.broker.place} for {one} within {CONNECT_WAIT:g} s: {subscriber.state.error}"
                )
        for subscriber in self._subscribers.values():
            subscriber.check()

    def _position(self, offset: Offset, topic_filter: str) -> int:
        """Return the row of an offset; of a filter that it does not have, the first that no query has committed."""
        spool = self._spool(topic_filter)
        if topic_filter not in offset:
            return spool.committed
        identity, position = offset[topic_filter]
        if identity != spool.id or position > spool.end:
            raise SpoolDamaged(
                f"the checkpoint is at row {position} of spool {identity} of {topic_filter}, and {spool.directory} is"
                f" spool {spool.id} with {spool.end} rows. Give the query its spool back, or begin with a new checkpoint"
            )
        return int(position)

    def finish(self, committed: Offset) -> None:
        """Delete the rows of a committed batch."""
        for one in committed:
            self._spool(one).commit(self._position(committed, one))

    # Batches ---------------------------------------------------------------------------------------------------------

    def _next(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the next batch of what is in the spools.

        The filter with the least has its turn first, and leaves its rest.
        """
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 2**62
        size = self._options.max_bytes
        waiting = []
        for one in self._options.topic_filters:
            spool, position = self._spool(one), self._position(start, one)
            end = spool.end if self._target is None else min(spool.end, self._target.get(one, position))
            waiting.append((end - position, one, position, end))
        found = dict(start)
        for number, (_, one, position, end) in enumerate(sorted(waiting)):
            spool, turns = self._spool(one), len(waiting) - number
            stop, taken = spool.cut(position, end, max(rows // turns, 1), size // turns)
            self._batch[one] = position, stop, taken
            rows -= stop - position
            size -= min(taken, size)
            if stop != position or one in start:
                found[one] = [spool.id, stop]
        return found

    def _wait_quiet(self, start: Offset) -> None:
        """Wait until more has come than `start`, or nothing for the quiet period: then the run ends there."""
        assert self._deadline is not None
        positions = [(self._spool(one), self._position(start, one)) for one in self._options.topic_filters]
        seen, over = -1, 0.0
        while (now := time.monotonic()) < self._deadline:
            if any(spool.end > position for spool, position in positions):
                return
            received = sum(subscriber.received for subscriber in self._subscribers.values())
            if received != seen or any(subscriber.busy for subscriber in self._subscribers.values()):
                seen, over = received, now + self._options.quiet_period
            elif now >= over:
                break
            spool, position = positions[0]
            spool.wait_beyond(position, _TURN)
        self._end_run()

    def _end_run(self) -> None:
        for subscriber in self._subscribers.values():
            subscriber.check()
        self._target = {one: self._spool(one).end for one in self._options.topic_filters}
        self._deadline = None

    def _packed(self, slices: list[Slice]) -> list[Slice]:
        """Have small partitions travel with the plan: no executor needs the disk of the driver for them."""
        if not self._options.embed and sum(one.frame.length for one in slices) > EMBEDDED_BYTES:
            return slices
        return [msgspec.structs.replace(one, embedded=read_bytes(one.frame)) for one in slices]
