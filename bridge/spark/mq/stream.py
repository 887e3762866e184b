"""Streaming reads of queues, through a spool for each."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.spark.mq.queue_reader import queue_readers
from bridge.spark.mq.source_options import SourceOptions
from bridge.spark.spool import SpoolFiller
from bridge.spark.spool_options import require_spool
from bridge.spark.spool_reader import SpoolReader


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
