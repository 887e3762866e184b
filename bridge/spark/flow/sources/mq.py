"""The source `mq` as pipelines have it: it can be told to end. Its workers import nothing of MQTT."""

from __future__ import annotations

from bridge.spark.flow.sources.shutdown import STOP
from bridge.spark.flow.sources.source import EndingReader, PipelineSource, options_of
from bridge.spark.foreign_options import MQ_READS
from bridge.spark.mq.source_options import READ_OPTIONS, SourceOptions, source_options_of
from bridge.spark.mq.stream import MqStreamReader
from bridge.spark.schema import MQ_SCHEMA


class _MqReader(EndingReader, MqStreamReader):
    pass


class PipelineMqSource(PipelineSource):
    """The source `mq` of a pipeline."""

    NAME = "mqbridge_mq"
    SCHEMA = MQ_SCHEMA

    def ending_reader(self, given: dict[str, str]) -> EndingReader:
        """Return the reader of these options. Raises OptionError."""
        return _MqReader(mq_source_options(given), f"the pipeline of {given[STOP]}")


def mq_source_options(given: dict[str, str]) -> SourceOptions:
    """Return the options of `mqbridge_mq`, checked. Raises OptionError."""
    return source_options_of(options_of("from: mq", given, READ_OPTIONS, MQ_READS))
