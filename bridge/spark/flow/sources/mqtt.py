"""The source `mqtt` as pipelines have it: it can be told to end."""

from __future__ import annotations

from bridge.spark.flow.sources.source import EndingReader, PipelineSource, options_of
from bridge.spark.foreign_options import MQTT_READS
from bridge.spark.mqtt.source_options import READ_OPTIONS, SourceOptions, source_options_of
from bridge.spark.mqtt.stream import MqttStreamReader
from bridge.spark.schema import MQTT_SCHEMA


class _MqttReader(EndingReader, MqttStreamReader):
    pass


class PipelineMqttSource(PipelineSource):
    """The source `mqtt` of a pipeline."""

    NAME = "mqbridge_mqtt"
    SCHEMA = MQTT_SCHEMA

    def ending_reader(self, given: dict[str, str]) -> EndingReader:
        """Return the reader of these options. Raises OptionError."""
        return _MqttReader(mqtt_source_options(given))


def mqtt_source_options(given: dict[str, str]) -> SourceOptions:
    """Return the options of `mqbridge_mqtt`, checked. Raises OptionError."""
    return source_options_of(options_of("from: mqtt", given, READ_OPTIONS, MQTT_READS))
