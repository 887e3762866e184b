"""A batch that ended its query because of the data of some row: the rows are found, and diverted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bridge.config import PipelineConfig
from bridge.spark.columns import MQ_ARROW_SCHEMA, MQTT_ARROW_SCHEMA
from bridge.spark.flow.bad_rows.dead_letters import BadPayloads
from bridge.spark.flow.bad_rows.diverted_rows import DivertedRows, keys_of, load, save
from bridge.spark.flow.bad_rows.payload import REASON
from bridge.spark.flow.columns import routed
from bridge.spark.flow.environment import CHECKPOINT, PipelineEnvironment
from bridge.spark.flow.faulty_rows import find_faulty_rows, last_batch, try_rows
from bridge.spark.flow.input_table import INPUT, fault_of, input_of, payload_column
from bridge.spark.flow.plan import names, table_of
from bridge.spark.flow.sources.mq import PipelineMqSource
from bridge.spark.flow.sources.mqtt import PipelineMqttSource

_SOURCES: Final = {
    "mq": (PipelineMqSource, MQ_ARROW_SCHEMA),
    "mqtt": (PipelineMqttSource, MQTT_ARROW_SCHEMA),
}


class FaultyRows(msgspec.Struct, frozen=True):
    """Rows that fail alone: they are dead letters when the batch is run again."""

    batch: int
    #: rows of the batch, and those found
    rows: int
    why: Mapping[str, str]


class FailedBatch:
    """The batch that a pipeline was at when its SELECT ended it."""

    def __init__(self, spark: SparkSession, name: str, config: PipelineConfig, environment: PipelineEnvironment) -> None:
        self._spark = spark
        self._name = name
        self._config = config
        self._directory = environment.directory_of(name, config)
        self._options: Callable[[], dict[str, str]] = lambda: environment.source_options(name, config)

    def divert(self, interrupted: Callable[[], bool]) -> FaultyRows | None:
        """Find rows that fail alone, and write them down.

        Return None where there are none, or the source has no replay. Rows that are found when the search is
        `interrupted` count.

        Raises OSError, and errors of Spark, of the source and of the queue manager.
        """
        source = self._config.source
        if source.archive is not None:
            return None
        kind, arrow_schema = _SOURCES["mq" if source.mq is not None else "mqtt"]
        schema = kind.SCHEMA
        reader = kind(self._options()).streamReader(schema)
        replay = last_batch(self._directory / CHECKPOINT, reader, arrow_schema)
        if replay is None:
            return None
        diverted = load(self._directory)
        known = diverted.rows if diverted.batch == replay.number else {}
        rows = replay.rows.combine_chunks()
        keys = [key for batch in rows.to_batches() for key in keys_of(batch)]
        if known:
            kept = [key not in known for key in keys]
            rows, keys = rows.filter(pa.array(kept)), [key for key, one in zip(keys, kept, strict=True) if one]
        tables = {name: table_of(self._spark, path) for name, path in self._config.tables.items()}
        good = self._good(rows, schema, tables)
        rows, keys = rows.take(pa.array(good)), [keys[index] for index in good]
        whole = find_faulty_rows(rows, lambda part: try_rows(self._made(part, schema, tables)), interrupted=interrupted)
        if not whole:
            return None
        found = {keys[index]: why for index, why in whole.items()}
        save(self._directory, diverted.and_also(replay.number, found))
        return FaultyRows(replay.number, replay.rows.num_rows, found)

    @contextmanager
    def _names(self, tables: Mapping[str, DataFrame]) -> Iterator[None]:
        with names(self._spark, self._config):
            for name, table in tables.items():
                table.createOrReplaceTempView(name)
            yield

    def _frame(self, rows: Any, schema: Any) -> DataFrame:
        return self._spark.createDataFrame(rows, schema)

    def _good(self, rows: Any, schema: Any, tables: Mapping[str, DataFrame]) -> list[int]:
        """Return the numbers of the rows whose payload is good: the SELECT never sees the others."""
        frame = self._frame(rows, schema)
        column = payload_column(frame)
        assert column is not None
        with self._names(tables):
            checked = frame.select(column, f.expr(fault_of(self._spark, frame, column, self._config)).alias(REASON))
        judge = BadPayloads(self._name, column, self._config.payload, None, None, DivertedRows())
        reasons = [reason for batch in checked.toArrow().to_batches() for reason in judge.reasons(batch)]
        return [index for index, reason in enumerate(reasons) if reason is None]

    def _made(self, rows: Any, schema: Any, tables: Mapping[str, DataFrame]) -> DataFrame:
        """Return what the SELECT makes of rows, as it goes to the destinations."""
        frame = self._frame(rows, schema)
        with self._names(tables):
            input_of(frame, payload_column(frame), self._config).createOrReplaceTempView(INPUT)
            return routed(self._spark.sql(self._config.select), self._config.destination)
