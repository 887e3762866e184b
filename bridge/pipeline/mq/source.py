"""The data source `mq`, as Spark knows it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from bridge.pipeline.errors import OptionError
from bridge.pipeline.mq.origin import READ_OPTIONS, origin_of
from bridge.pipeline.mq.reader import MqReader
from bridge.pipeline.mq.stream import MqStreamReader
from bridge.pipeline.mq.target import WRITE_OPTIONS, target_of
from bridge.pipeline.mq.writer import MqStreamWriter, MqWriter
from bridge.pipeline.options import Options
from bridge.pipeline.schema import MQ_SCHEMA

SOURCE: Final = "the data source mq"


class MqDataSource(DataSource):
    """Messages of queues and subscriptions as rows, and rows as messages."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """`mq`, for `format`."""
        return "mq"

    def schema(self) -> StructType:
        """The envelope of an MQ message."""
        return MQ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read. Raises OptionError."""
        return MqReader(origin_of(self._options(schema)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming read. Raises OptionError."""
        return MqStreamReader(origin_of(self._options(schema)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write: messages are added, whatever the mode. Raises OptionError."""
        options = Options(SOURCE, dict(self.options), WRITE_OPTIONS)
        if overwrite:
            raise OptionError(f"{SOURCE} adds messages, and overwrites none: write with mode append")
        return MqWriter(target_of(options, schema), options.text("writeId"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write. Raises OptionError."""
        options = Options(SOURCE, dict(self.options), WRITE_OPTIONS)
        if "writeId" in options:
            raise options.wrong("writeId", "no value, because a streaming query has an identity of its own")
        return MqStreamWriter(target_of(options, schema))

    def _options(self, schema: StructType) -> Options:
        if [field.name for field in schema] != MQ_SCHEMA.names:
            raise OptionError(f"{SOURCE} has a schema of its own: leave schema() out, and select the columns you want")
        return Options(SOURCE, dict(self.options), READ_OPTIONS)
