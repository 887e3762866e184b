"""What the sources of pipelines have in common. It imports neither MQ nor MQTT: a worker needs one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from bridge.pipeline.flow.sources.shutdown import STOP
from bridge.pipeline.options import Options


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


def options_of(
    place: str, given: Mapping[str, str], known: Iterable[str], refused: Mapping[str, str]
) -> Options:
    """Return the options that say what is to be read. Raises OptionError.

    That by which the source is told to end is not among them.
    """
    return Options(place, {name: one for name, one in given.items() if name != STOP}, known, refused)
