"""Batch reads: the messages that are on the queues when the read is planned, browsed. Nothing is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from bridge.spark.mq import browsing
from bridge.spark.mq.source_options import SourceOptions


class QueueFront(InputPartition):
    """The first `count` messages of a queue."""

    def __init__(self, queue: str, count: int) -> None:
        super().__init__(None)
        self.queue = queue
        self.count = count


class MqReader(DataSourceReader):
    """Reads queues as they are."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each queue."""
        options = self._options
        with options.queue_manager.connected() as connection:
            queues = options.queue_names(connection)
            return [
                QueueFront(queue, browsing.depth(connection, browsing.open_for_browse(connection, queue))) for queue in queues
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the envelopes of a partition, as record batches."""
        assert isinstance(partition, QueueFront)
        options = self._options
        with options.queue_manager.connected() as connection:
            handle = browsing.open_for_browse(connection, partition.queue, options.selector)
            messages = islice(browsing.browse_all(connection, handle), partition.count)
            yield from browsing.record_batches(partition.queue, messages, options.schema)
