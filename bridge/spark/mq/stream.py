"""Streaming reads of queues, through a spool for each."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.spark.mq.queue_reader import QueueReader
from bridge.spark.mq.source_options import SourceOptions
from bridge.spark.spool import Spool
from bridge.spark.spool_options import require_spool
from bridge.spark.spool_reader import SpoolFiller, SpoolReader


class MqStreamReader(SpoolReader):
    """Reads queues batch by batch."""

    def __init__(self, options: SourceOptions, on_behalf: str = "") -> None:
        """Make a reader. `on_behalf` tells people for whom the process, which Spark has started, reads the queues."""
        require_spool("the data source mq", options.stream)
        super().__init__(options.stream, options.schema)
        self._options = options
        self._on_behalf = on_behalf

    def _new_fillers(self) -> Mapping[str, SpoolFiller]:
        return queue_readers(self._options, self._on_behalf)


def queue_readers(options: SourceOptions, on_behalf: str = "") -> dict[str, QueueReader]:
    """Return a reader for each queue, not started. Raises MQError, OSError, SpoolBusy, SpoolDamaged."""
    with options.queue_manager.connected() as connection:
        queues = options.queue_names(connection)
    # The spool of a subscription survives the deletion of the subscription and its queue.
    sources = queues if options.subscription is None else (f"subscription {options.subscription}",)
    stream = options.stream
    return {
        source: QueueReader(
            options.queue_manager,
            queue,
            Spool(stream.spool, source),
            options.schema,
            selector=options.selector,
            limit=stream.spool_limit,
            unit_rows=stream.max_messages,
            unit_bytes=stream.max_bytes,
            on_behalf=on_behalf,
        )
        for source, queue in zip(sources, queues, strict=True)
    }
