"""Streaming reads: batches of messages that are browsed, and taken away once their batch is committed.

A message is known by its MsgId and its fingerprint, and equal ones are counted: so a MsgId that comes again names another
message. One reader at a time has the lease of a queue.

Spark asks for the offset behind that of a batch only when the batch is in its commit log: so that is when the messages of
the batch before are removed. It asks once more before an availableNow run ends, which leaves the queue empty, and again
and again while there is nothing new; and after a restart, which removes what a crash left. Nothing waits for Spark's
`commit`, which comes with the next batch that has messages.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from bridge.mq.batch import Seen
from bridge.mq.mqi import Connection, MQError
from bridge.spark.mq import browsing
from bridge.spark.mq.backlog import backlog
from bridge.spark.mq.lease import Lease
from bridge.spark.mq.offset import BrowseOffset, Entry, Offset, counted
from bridge.spark.mq.reader import parts, read
from bridge.spark.mq.source_options import SourceOptions
from bridge.wire import cmqc


class MqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues batch by batch."""

    def __init__(self, options: SourceOptions, on_behalf: str = "") -> None:
        """Read as `options` say. `on_behalf`: see `Lease`."""
        self._options = options
        self._on_behalf = on_behalf
        self._connection: Connection | None = None
        #: the queues that are read, each open, and what of a queue of before is to be removed still
        self._leases: dict[str, Lease] = {}
        self._queues: tuple[str, ...] = ()
        self._handles: dict[str, int] = {}
        #: since when fewer than `minMessages` wait
        self._few_since: float | None = None
        #: numbers of the offset that was planned last here, and of the one whose messages are known to be off the queues
        self._planned: int | None = None
        self._removed: int | None = None
        #: what was there when an availableNow run began, and is not in a batch yet
        self._target: deque[tuple[str, Seen]] | None = None
        #: of the batch that was planned last: its messages by queue, and the next of each queue behind them
        self._batch: dict[str, list[Seen]] = {}
        self._behind: dict[str, Seen] = {}

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch."""
        return Offset(reader=_new_reader()).json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxMessagesPerTrigger`; `maxBytesPerTrigger` is kept beside it."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what is there now: the run ends when that is read."""
        connection = self._connected()
        self._target = deque(self._look(connection))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next batch; `start` when nothing is there. The messages of `start`, which is committed, are removed."""
        last = Offset.of(start)
        connection = self._connected()
        self._remove(connection, last)
        if self._target is None:
            self._plan(self._look(connection), limit)
        else:
            self._forget(self._target, last)
            self._plan(self._target, limit)
        if not self._batch:
            return start
        self._planned = last.number + 1
        entries = {queue: entries_of(messages) for queue, messages in self._batch.items()}
        return Offset(self._planned, self._options.partitions, entries, last.reader or _new_reader()).json()

    def finish(self, committed: dict[str, Any]) -> None:
        """Take the messages of a committed batch off the queues."""
        self._remove(self._connected(), Offset.of(committed))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the messages of a batch, as many partitions for each queue as its offset says."""
        return [] if start == end else parts_of(Offset.of(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the envelopes of a partition, as record batches."""
        return read(self._options, partition)

    def stop(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the backlog of each queue, for the progress of the query; it is no offset to start from."""
        connection = self._connected()
        found = {}
        for queue, handle in self._handles.items():
            batch = self._batch.get(queue, ())
            waiting = self._waiting(connection, queue, len(batch))
            found[queue] = backlog(connection, handle, batch, waiting, self._behind.get(queue))
        return found

    def _waiting(self, connection: Connection, queue: str, planned: int) -> int:
        """Return how many messages of a queue are behind so many of a batch: also those that are not committed."""
        return max(browsing.depth(connection, self._handles[queue]) - planned, 0)

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = self._options.queue_manager.connect()
            try:
                self._queues = self._options.queue_names(connection)
                self._handles = {queue: self._opened(connection, queue) for queue in self._queues}
            except BaseException:
                self._leases.clear()
                with contextlib.suppress(MQError):
                    connection.disconnect()
                raise
            self._connection = connection
        return self._connection

    def _lease(self, connection: Connection, queue: str, selector: str = "") -> Lease:
        return Lease(connection, queue, selector, on_behalf=self._on_behalf)

    def _opened(self, connection: Connection, queue: str) -> int:
        """Return a handle of a queue, to browse it; whoever takes its messages away has its lease."""
        self._leases[queue] = self._lease(connection, queue, self._options.selector)
        return self._leases[queue].handle

    def _look(self, connection: Connection) -> Iterator[tuple[str, Seen]]:
        """Yield what is on the queues; a message of each in turn, so that a busy queue does not hide the others."""
        looks = deque(
            (queue, browsing.look(connection, self._handles[queue])) for queue in self._queues
        )
        while looks:
            queue, look = looks.popleft()
            for seen in look:
                yield queue, seen
                looks.append((queue, look))
                break

    def _plan(self, waiting: Iterable[tuple[str, Seen]], limit: ReadLimit) -> None:
        """Plan the next batch of the messages that wait; none where few wait for more."""
        batch = self._cut(waiting, limit)
        self._batch = {}
        if self._target is None and self._waits_for_more(len(batch)):
            self._behind = dict(reversed(batch))
            return
        for queue, seen in batch:
            self._batch.setdefault(queue, []).append(seen)

    def _cut(self, waiting: Iterable[tuple[str, Seen]], limit: ReadLimit) -> list[tuple[str, Seen]]:
        """Return the messages of the next batch: the first of those that wait, within the limits, but one at least."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        batch: list[tuple[str, Seen]] = []
        size = 0
        self._behind = {}
        rest = iter(waiting)
        for queue, seen in rest:
            size += seen.length
            if most is not None and batch and (len(batch) >= most or size > self._options.max_bytes):
                # The queues have turns: among so many is the next of each.
                self._behind = dict(reversed([(queue, seen), *islice(rest, len(self._queues) - 1)]))
                break
            batch.append((queue, seen))
        return batch

    def _waits_for_more(self, count: int) -> bool:
        """Return whether a batch of so many messages is put off, for `minMessages` or until `maxDelay` is over."""
        if count >= self._options.min_messages:
            self._few_since = None
            return False
        now = time.monotonic()
        if self._few_since is None and count:
            self._few_since = now
        if self._few_since is None or now - self._few_since < self._options.max_delay:
            return True
        self._few_since = None
        return False

    def _forget(self, target: deque[tuple[str, Seen]], last: Offset) -> None:
        """Strike the messages of a committed batch off what is still to be read."""
        done = Counter(
            (queue, one.msg_id, one.fingerprint) for queue, entries in last.messages.items() for one in entries
        )

        def struck(one: tuple[str, Seen]) -> bool:
            for fingerprint in (one[1].fingerprint, b""):  # blank: version 1 of an offset
                key = one[0], one[1].msg_id, fingerprint
                if done[key]:
                    done[key] -= 1
                    return True
            return False

        while target and struck(target[0]):  # all of it, where it was cut from the front here
            target.popleft()
        if self._planned != last.number:
            waiting = [one for one in target if not struck(one)]
            target.clear()
            target.extend(waiting)

    def _remove(self, connection: Connection, last: Offset) -> None:
        """Take the messages of a committed batch off the queues."""
        if self._removed == last.number:
            return
        for queue, entries in last.messages.items():
            if queue not in self._leases:
                try:
                    self._leases[queue] = self._lease(connection, queue)
                except MQError as error:
                    if error.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME:
                        continue  # a subscription was removed, and its queue with it
                    raise
            planned_here = self._planned == last.number
            self._leases[queue].remove(last.reader, last.number, entries, planned_here=planned_here)
        self._removed = last.number


def parts_of(offset: Offset | BrowseOffset) -> list[InputPartition]:
    """Return the partitions of a batch."""
    return [
        part
        for queue, entries in offset.messages.items()
        for part in parts(queue, list(entries), offset.partitions)
    ]


def entries_of(messages: Iterable[Seen]) -> list[Entry]:
    """Return the entries of messages for an offset."""
    return counted((one.msg_id, one.fingerprint, one.expires) for one in messages)


def _new_reader() -> str:
    """Return a name for the reader of a new checkpoint."""
    return os.urandom(8).hex()
