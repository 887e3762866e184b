"""The source `mqtt` as pipelines have it: it can be told to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.pipeline.flow.source import PipelineSource, options_of
from bridge.pipeline.flow.valve import STOP, Valve
from bridge.pipeline.mqtt.origin import READ_OPTIONS, Origin, origin_of
from bridge.pipeline.mqtt.stream import MqttStreamReader
from bridge.pipeline.schema import MQTT_SCHEMA


class _MqttReader(MqttStreamReader):
    def __init__(self, origin: Origin, directory: str) -> None:
        super().__init__(origin)
        self._valve = Valve(Path(directory))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if not self._valve.closed:
            return super().latestOffset(start, limit)
        self._forget(start)
        self._valve.answer()
        return start


class PipelineMqttSource(PipelineSource):
    """The source `mqtt` of a pipeline."""

    NAME = "mqbridge_mqtt"
    SCHEMA = MQTT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        given = dict(self.options)
        return _MqttReader(mqtt_origin(given), given[STOP])


def mqtt_origin(given: dict[str, str]) -> Origin:
    """Return what is to be read, as options of `mqbridge_mqtt` say. Raises OptionError."""
    return origin_of(options_of("from: mqtt", given, READ_OPTIONS))
