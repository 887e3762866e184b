"""Batch reads: all that is on the queues when the read is planned, browsed. Nothing is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from bridge.spark.mq import browsing
from bridge.spark.mq.message_range import browse_messages
from bridge.spark.mq.offset import Entry, counted
from bridge.spark.mq.source_options import SourceOptions


class QueueFront(InputPartition):
    """The first `count` messages of a queue."""

    def __init__(self, queue: str, count: int) -> None:
        super().__init__(None)
        self.queue = queue
        self.count = count


class Messages(InputPartition):
    """Certain messages of a queue."""

    def __init__(self, queue: str, messages: list[Entry]) -> None:
        super().__init__(None)
        self.queue = queue
        self.messages = messages


def parts(queue: str, messages: list[Entry], count: int) -> list[Messages]:
    """Return messages of a queue in at most `count` partitions, each a range of the queue; none where there are none."""
    size = max(-(-len(messages) // count), 1)
    return [Messages(queue, messages[start : start + size]) for start in range(0, len(messages), size)]


class MqReader(DataSourceReader):
    """Reads queues as they are."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each queue, or as many for each as the option `partitions` says."""
        options = self._options
        found: list[InputPartition] = []
        with options.queue_manager.connected() as connection:
            for queue in options.queue_names(connection):
                handle = browsing.open_for_browse(connection, queue, options.selector)
                if options.partitions == 1:
                    found.append(QueueFront(queue, browsing.depth(connection, handle)))
                else:
                    seen = ((one.msg_id, one.fingerprint, one.expires) for one in browsing.look(connection, handle))
                    found += parts(queue, counted(seen), options.partitions)
        # Spark makes a partition of None where a reader has none.
        return found or [Messages("", [])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the envelopes of a partition, as record batches."""
        return read(self._options, partition)


def read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Yield the envelopes of a partition, as record batches."""
    match partition:
        case QueueFront(queue=queue, count=count):
            with options.queue_manager.connected() as connection:
                handle = browsing.open_for_browse(connection, queue, options.selector)
                messages = islice(browsing.browse_all(connection, handle), count)
                yield from browsing.record_batches(queue, messages)
        case Messages(queue=queue, messages=wanted) if wanted:
            with options.queue_manager.connected() as connection:
                found = browse_messages(connection, queue, wanted, lenient=options.lenient)
                yield from browsing.record_batches(queue, found)
