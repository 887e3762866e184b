"""The source `mqtt` as pipelines have it: it can be told to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.pipeline.flow.sources.shutdown import STOP, SourceShutdown
from bridge.pipeline.flow.sources.source import PipelineSource, options_of
from bridge.pipeline.foreign_options import MQTT_READS
from bridge.pipeline.mqtt.source_options import READ_OPTIONS, SourceOptions, source_options_of
from bridge.pipeline.mqtt.stream import MqttStreamReader
from bridge.pipeline.schema import MQTT_SCHEMA


class _MqttReader(MqttStreamReader):
    def __init__(self, options: SourceOptions, directory: str) -> None:
        super().__init__(options)
        self._shutdown = SourceShutdown(Path(directory))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not self._shutdown.requested:
            return super().latestOffset(start, limit)
        self._forget(start)
        self._shutdown.confirm()
        return start


class PipelineMqttSource(PipelineSource):
    """The source `mqtt` of a pipeline."""

    NAME = "mqbridge_mqtt"
    SCHEMA = MQTT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        given = dict(self.options)
        return _MqttReader(mqtt_source_options(given), given[STOP])


def mqtt_source_options(given: dict[str, str]) -> SourceOptions:
    """Return the options of `mqbridge_mqtt`, checked. Raises OptionError."""
    return source_options_of(options_of("from: mqtt", given, READ_OPTIONS, MQTT_READS))
