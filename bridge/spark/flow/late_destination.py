"""Where the late rows of a pipeline go: one more destination of each batch, with a marker of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from bridge.config import PipelineConfig
from bridge.spark.flow.columns import routed
from bridge.spark.flow.destinations import destination_options, format_routes
from bridge.spark.flow.environment import LATE, PipelineEnvironment
from bridge.spark.flow.input_table import Payloads
from bridge.spark.flow.late_rows import WATERMARK, LateRows, NotExact, late_rows_of
from bridge.spark.flow.mistake import Mistake, mistakes_at
from bridge.spark.flow.sink import FormatRoute, Route, Written, routes_of
from bridge.spark.flow.staging import Staging

#: The section of a pipeline, and what tells its late rows apart from the others.
SECTION: Final = "late"


class LateDestination(msgspec.Struct, frozen=True):
    """Writes the late rows of a batch where the section `late` says, and counts them (`bridge.spark.flow.sink.Behind`)."""

    rows: LateRows
    pipeline: str
    config: PipelineConfig
    #: none: they are counted only
    routes: Sequence[Route | FormatRoute]
    #: where they are kept before they are written: a reference table may leave other ones the next time
    staging: Path

    def __call__(self, batch: int) -> Written:
        """Write the late rows of a batch that has been computed. Raises PySparkException, Py4JError, OSError."""
        context = self.rows.spark.sparkContext
        found = self.rows.of_batch(str(context.getLocalProperty("sql.streaming.queryId")))
        if found is None:
            return Written(late=0)
        if not self.routes:
            return Written(late=found.count())
        staged = Staging(self.staging).staged(_routed(found, batch, self.pipeline, self.config), batch)
        written = Written(late=staged.count())
        for route in self.routes:
            written = written.and_also(route.write_batch(staged, batch))
        return written


def late_destination(
    selected: DataFrame, raw: DataFrame, payloads: Payloads, name: str, environment: PipelineEnvironment, directory: Path
) -> LateDestination | None:
    """Return where the late rows of a SELECT go, whose source gives rows as those of `raw`. Raises Mistake.

    None: nothing comes late, or nobody can say which rows do.
    """
    config = payloads.config
    try:
        rows = late_rows_of(selected, payloads.again().input_of)
    except NotExact as error:
        if config.late is None:
            return None
        raise Mistake((SECTION,), f"no late, or {error}") from error
    if rows is None:
        if config.late is None:
            return None
        raise Mistake((SECTION,), "no late, because no row is, where the SELECT has no windows or groups by event time")
    routes: list[Route | FormatRoute] = []
    if config.late is not None:
        with mistakes_at((SECTION,), "a destination"):
            schema = _routed(raw.withColumn(WATERMARK, f.current_timestamp()), 0, name, config).schema
            options = destination_options(name, config, config.late, environment, directory)
            routes += [*routes_of(options, schema, SECTION), *format_routes(rows.spark, config.late, SECTION)]
    return LateDestination(rows, name, config, routes, directory / LATE)


def _routed(rows: DataFrame, batch: int, name: str, config: PipelineConfig) -> DataFrame:
    """Return late rows as their destination takes them: messages as they came, tables with where that was, too."""
    made = rows.withColumns({"pipeline": f.lit(name), "batch": f.lit(batch).cast("bigint")})
    if config.source.mqtt is not None:  # where a message of a queue says its topic
        made = made.withColumn("rfh2", f.create_map(f.lit("mqps"), f.create_map(f.lit("Top"), f.col("topic"))))
    return routed(made, config.late, SECTION)
