"""What the sources of pipelines have in common. It imports neither MQ nor MQTT: a worker needs one of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bridge.spark.flow.sources.shutdown import STOP, SourceShutdown
from bridge.spark.options import Options


class EndingReader(DataSourceStreamReader):
    """A reader, which stands behind this class among the bases, that plans nothing more once it is told to end."""

    shutdown: SourceShutdown
    #: of the reader: take away the messages of a committed batch
    finish: Callable[[Any], None]

    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:
        """Return the next batch; `start`, whose messages are taken away, when the pipeline is to end."""
        if not self.shutdown.requested:
            return super().latestOffset(start, limit)
        self.finish(start)
        self.shutdown.confirm()
        return start


class PipelineSource(DataSource):
    """A source that only pipelines have."""

    #: what `format` takes
    NAME: ClassVar[str]
    #: of its envelope
    SCHEMA: ClassVar[StructType]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return cls.NAME

    def schema(self) -> StructType:
        """Return the envelope of a message or publication."""
        return self.SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming read. Raises OptionError."""
        given = dict(self.options)
        reader = self.ending_reader(given)
        reader.shutdown = SourceShutdown(Path(given[STOP]))
        return reader

    @abstractmethod
    def ending_reader(self, given: dict[str, str]) -> EndingReader:
        """Return the reader of these options. Raises OptionError."""


def options_of(
    place: str, given: Mapping[str, str], known: Iterable[str], refused: Mapping[str, str]
) -> Options:
    """Return the options that say what is to be read. Raises OptionError.

    That by which the source is told to end is not among them.
    """
    return Options(place, {name: one for name, one in given.items() if name != STOP}, known, refused)
