"""The source `mq` as pipelines have it: it can be told to end. Its workers import nothing of MQTT."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.pipeline.flow.source import PipelineSource, options_of
from bridge.pipeline.flow.valve import STOP, Valve
from bridge.pipeline.mq.origin import READ_OPTIONS, Origin, origin_of
from bridge.pipeline.mq.stream import MqStreamReader
from bridge.pipeline.schema import MQ_SCHEMA


class _MqReader(MqStreamReader):
    def __init__(self, origin: Origin, directory: str) -> None:
        super().__init__(origin)
        self._valve = Valve(Path(directory))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not self._valve.closed:
            return super().latestOffset(start, limit)
        self._target = deque()  # nothing is left to plan
        end = super().latestOffset(start, limit)
        self._valve.answer()
        return end


class PipelineMqSource(PipelineSource):
    """The source `mq` of a pipeline."""

    NAME = "mqbridge_mq"
    SCHEMA = MQ_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        given = dict(self.options)
        return _MqReader(mq_origin(given), given[STOP])


def mq_origin(given: dict[str, str]) -> Origin:
    """Return what is to be read, as options of `mqbridge_mq` say. Raises OptionError."""
    return origin_of(options_of("from: mq", given, READ_OPTIONS))
