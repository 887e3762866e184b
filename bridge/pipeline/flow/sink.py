"""The sink of a pipeline: each row to all of its destinations, in one query.

A row has a struct for each destination: `mq` as the source `mq` takes rows, `mqtt` as that takes them, `archive` as Parquet
files have it. A batch that is run again puts no message and writes no file twice; publications, last in turn, may come
twice, and say which row they are.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bridge.pipeline.flow import table, task
from bridge.pipeline.mq.marker import Identity
from bridge.pipeline.mq.target import WRITE_OPTIONS as MQ_OPTIONS
from bridge.pipeline.mq.target import Target as MqTarget
from bridge.pipeline.mq.target import target_of as mq_target_of
from bridge.pipeline.mq.writer import put_all
from bridge.pipeline.mqtt.target import WRITE_OPTIONS as MQTT_OPTIONS
from bridge.pipeline.mqtt.target import Target as MqttTarget
from bridge.pipeline.mqtt.target import target_of as mqtt_target_of
from bridge.pipeline.mqtt.writer import publish_all
from bridge.pipeline.options import Options

#: The option that says all destinations, in JSON: kind -> options.
ROUTES: Final = "routes"
#: Kinds of destinations, which are also the names of the structs; in the order in which they are written to.
MQ: Final = "mq"
ARCHIVE: Final = "archive"
MQTT: Final = "mqtt"


def mq_target(options: dict[str, str], schema: StructType) -> MqTarget:
    """A destination `mq`. Raises OptionError."""
    return mq_target_of(Options("to: mq", options, MQ_OPTIONS), schema)


def mqtt_target(options: dict[str, str], schema: StructType) -> MqttTarget:
    """A destination `mqtt`. Raises OptionError."""
    return mqtt_target_of(Options("to: mqtt", options, MQTT_OPTIONS), schema)


class Route(msgspec.Struct, frozen=True):
    """A destination."""

    kind: str
    #: an MqTarget, an MqttTarget, or a directory
    target: Any

    def write(self, identity: Identity, batches: list[Any]) -> None:
        """Write its struct of each row of a partition."""
        own = (pa.RecordBatch.from_struct_array(batch.column(self.kind)) for batch in batches)
        if self.kind == MQ:
            put_all(self.target, identity, own)
        elif self.kind == ARCHIVE:
            table.write_all(self.target, identity, own)
        else:
            publish_all(self.target, f"{identity.query}/{identity.batch}/{identity.partition}", own)


class Written(WriterCommitMessage):
    """A task has written all."""


class RouteWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self._routes = routes

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write a partition of a batch."""
        identity = task.identity()
        batches = [batch for batch in iterator if batch.num_rows]
        for route in self._routes:
            route.write(identity, batches)
        return Written()


class PipelineSink(DataSource):
    """The sink of a pipeline."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """For `format`."""
        return "mqbridge_sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming write. Raises OptionError."""
        given = msgspec.json.decode(dict(self.options)[ROUTES], type=dict[str, dict[str, str]])
        return RouteWriter(routes_of(given, schema))


def routes_of(given: dict[str, dict[str, str]], schema: StructType) -> tuple[Route, ...]:
    """The destinations that options name, for rows of a schema. Raises OptionError."""
    routes = []
    for kind in (MQ, ARCHIVE, MQTT):
        if (options := given.get(kind)) is None:
            continue
        columns = schema[kind].dataType
        assert isinstance(columns, StructType)
        if kind == MQ:
            routes.append(Route(kind, mq_target(options, columns)))
        elif kind == MQTT:
            routes.append(Route(kind, mqtt_target(options, columns)))
        else:
            routes.append(Route(kind, options["path"]))
    return tuple(routes)
