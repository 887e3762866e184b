"""Streaming reads of topic filters, through a spool for each.

The broker gets its acknowledgement when a publication is in the spool, long before the batch that has it.
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.spark.mqtt.source_options import SourceOptions
from bridge.spark.mqtt.subscriber import subscribers
from bridge.spark.spool import SpoolFiller
from bridge.spark.spool_reader import SpoolReader


class MqttStreamReader(SpoolReader):
    """Reads topic filters batch by batch."""

    KEEPS_STATE = True

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options.stream, options.schema)
        self._options = options

    def _new_fillers(self) -> Mapping[str, SpoolFiller]:
        return subscribers(self._options)
