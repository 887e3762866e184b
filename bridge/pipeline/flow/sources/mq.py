"""The source `mq` as pipelines have it: it can be told to end. Its workers import nothing of MQTT."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.pipeline.flow.sources.shutdown import STOP, SourceShutdown
from bridge.pipeline.flow.sources.source import PipelineSource, options_of
from bridge.pipeline.foreign_options import MQ_READS
from bridge.pipeline.mq.source_options import READ_OPTIONS, SourceOptions, source_options_of
from bridge.pipeline.mq.stream import MqStreamReader
from bridge.pipeline.schema import MQ_SCHEMA


class _MqReader(MqStreamReader):
    def __init__(self, options: SourceOptions, directory: str) -> None:
        super().__init__(options, f"the pipeline of {directory}")
        self._shutdown = SourceShutdown(Path(directory))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not self._shutdown.requested:
            return super().latestOffset(start, limit)
        self._target = deque()  # nothing is left to plan
        end = super().latestOffset(start, limit)
        self._shutdown.confirm()
        return end


class PipelineMqSource(PipelineSource):
    """The source `mq` of a pipeline."""

    NAME = "mqbridge_mq"
    SCHEMA = MQ_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        given = dict(self.options)
        return _MqReader(mq_source_options(given), given[STOP])


def mq_source_options(given: dict[str, str]) -> SourceOptions:
    """Return the options of `mqbridge_mq`, checked. Raises OptionError."""
    return source_options_of(options_of("from: mq", given, READ_OPTIONS, MQ_READS))
