"""Streaming reads beside an application: what comes to queues is browsed, and stays there for whoever gets it.

A trigger looks at all that is on the queues, and a batch has what was in none before: the offset names those that were and
are there still. So a message that lies on its queue when a trigger looks comes once, whatever its priority, also after a
restart. One that came and went between two looks is not seen, and one that somebody got, or that expired, before its batch
read it is left out; one that somebody got and backed out may come again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from bridge.mq.batch import Seen
from bridge.mq.mqi import Connection
from bridge.spark.mq.browsing import open_for_browse
from bridge.spark.mq.offset import BrowseOffset
from bridge.spark.mq.source_options import SourceOptions
from bridge.spark.mq.stream import MqStreamReader, entries_of, parts_of


class MqBrowseReader(MqStreamReader):
    """Browses queues batch by batch."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        #: messages of each queue that have been in no batch, when it was looked at last
        self._new: Counter[str] = Counter()

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch."""
        return BrowseOffset().json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next batch; `start` when there is nothing new."""
        last = BrowseOffset.of(start)
        connection = self._connected()
        known = Counter((queue, *one[:2]) for queue, entries in last.seen.items() for one in entries)
        seen: dict[str, list[Seen]] = {}
        new: list[tuple[str, Seen]] = []
        for queue, one in self._look(connection) if self._target is None else self._target:
            key = queue, one.msg_id, one.fingerprint
            if known[key]:
                known[key] -= 1
                seen.setdefault(queue, []).append(one)
            else:
                new.append((queue, one))
        self._new = Counter(queue for queue, _ in new)
        self._plan(new, limit)
        if not self._batch:
            return start
        for queue, messages in self._batch.items():
            seen.setdefault(queue, []).extend(messages)
        return BrowseOffset(
            last.number + 1,
            self._options.partitions,
            {queue: entries_of(messages) for queue, messages in seen.items()},
            {queue: len(messages) for queue, messages in self._batch.items()},
        ).json()

    def finish(self, committed: dict[str, Any]) -> None:
        """Leave the messages of a committed batch where they are."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the messages of a batch, as many partitions for each queue as its offset says."""
        return [] if start == end else parts_of(BrowseOffset.of(end))

    def _opened(self, connection: Connection, queue: str) -> int:
        return open_for_browse(connection, queue, self._options.selector)

    def _waiting(self, connection: Connection, queue: str, planned: int) -> int:
        return self._new[queue] - planned
