"""Rows that come too late for a SELECT: which rows of `input` those are, as Spark's operator with the watermark drops them.

Spark says how many groups it has dropped, and not of which rows. So a batch of which it dropped any is read once more, by
the scan that it was read by, and goes as far as that operator through the same plan, each row with itself beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bridge.spark.flow.judgement import ROW_BY_ROW, is_fixed
from bridge.spark.flow.logical_plan import analysed, below, elements, kind, nodes

#: Columns that a row of a batch has beside those of `input`: all of it as the source gave it, and a number of its own.
ROW: Final = "__row"
NUMBER: Final = "__number"
#: Column of late rows.
WATERMARK: Final = "watermark"
#: Operators whose groups end by event time.
_GROUPING: Final = frozenset(("Aggregate", "Distinct"))
#: Nodes that may make several rows of one.
_MULTIPLYING: Final = frozenset(("Expand", "Generate", "Join"))
#: Nodes that a row passes by itself, on its way to such an operator.
_PASSED: Final = ROW_BY_ROW | _MULTIPLYING | {"ResolvedHint"}
#: The scan of files, of an archive or of a table.
_FILES: Final = "FileSourceScanExec"
#: As Catalyst marks a column that has a watermark (EventTimeWatermark.delayKey).
_DELAY: Final = "spark.watermarkDelayMs"
#: As an operator with a watermark counts the groups that it drops.
_DROPPED: Final = "numRowsDroppedByWatermark"


class NotExact(Exception):
    """Which rows come late cannot be said of a SELECT; the text is what is expected of it, and why."""


class LateRows(msgspec.Struct, frozen=True):
    """How the late rows of a batch are found."""

    spark: SparkSession
    #: what is below the operator with the watermark, from the top; the last node is the view `input`
    way: list[Any]
    #: the attribute that it groups by and that has the watermark: a time, or a window, whose end counts
    event_time: Any
    #: makes `input` of the rows of a batch, with the columns ROW and NUMBER where those are there
    input_of: Callable[[DataFrame], DataFrame]

    def of_batch(self, query: str) -> DataFrame | None:
        """Return the rows of the batch under way that are late, as the source gave them; None where there are none.

        Behind their columns there is `watermark`: the one that they were late for.

        The batch has been computed, so that Spark has counted what it dropped. A row that is in time for one of its windows
        is not late. Raises PySparkException, Py4JError.
        """
        session: Any = self.spark._jsparkSession
        executed = session.streams().get(query).streamingQuery().lastExecution().executedPlan()
        operator = [node for node in nodes(executed) if node.metrics().contains(_DROPPED)][-1]
        if not operator.metrics().apply(_DROPPED).value():
            return None
        # Not the watermark of this batch, but of the one before: what ends in this one still takes its rows.
        moment = int(operator.eventTimeWatermarkForLateEvents().get())
        batch = _scanned(self.spark, executed)
        batch = batch.select("*", f.struct("*").alias(ROW), f.monotonically_increasing_id().alias(NUMBER))
        rows = _Surgery(self.spark, analysed(self.input_of(batch))).rows(self.way, self.event_time)
        rows = rows.withColumn("late", f.coalesce(f.col("ends") <= f.timestamp_millis(f.lit(moment)), f.lit(False)))
        if not _MULTIPLYING.isdisjoint(map(kind, self.way)):
            rows = rows.groupBy(NUMBER).agg(f.first(ROW).alias(ROW), f.every("late").alias("late")).orderBy(NUMBER)
        return rows.where("late").select(f"{ROW}.*").withColumn(WATERMARK, f.timestamp_millis(f.lit(moment)))


def late_rows_of(made: DataFrame, input_of: Callable[[DataFrame], DataFrame]) -> LateRows | None:
    """Return how the rows are found that come late for a SELECT; None: none does. Raises NotExact.

    `made` is what it makes of `input`; `input_of` makes that of the rows of a batch.
    """
    plan = analysed(made)
    definitions = {node.id(): node for node in nodes(plan) if kind(node) == "CTERelationDef"}
    way = [plan]
    while streams := [one for one in _below(way[-1], definitions) if one.isStreaming()]:
        if len(streams) > 1:
            raise NotExact("a SELECT that reads input once: else a row may be late on one way and in time on the other")
        way += streams
    found = [(at, time) for at, node in enumerate(way) if (time := _event_time(node)) is not None]
    if not found:
        return None
    at, time = found[-1]
    way = way[at + 1 :]
    for node in way[:-1]:
        if kind(node) not in _PASSED or not all(map(is_fixed, elements(node.expressions()))):
            what = f"a SELECT without {kind(node)} of that kind below its groups"
            raise NotExact(f"{what}: which rows came late could not be told from the batch that is read again")
    return LateRows(made.sparkSession, way, time, input_of)


def _below(node: Any, definitions: Mapping[Any, Any]) -> list[Any]:
    """Return the plans right below one, with what a WITH defines in the places where it is used."""
    if kind(node) == "WithCTE":
        return [node.plan()]
    return [definitions[node.cteId()]] if kind(node) == "CTERelationRef" else below(node)


def _event_time(node: Any) -> Any:
    """Return the attribute with a watermark that an operator groups by; None for any other node."""
    if kind(node) not in _GROUPING:
        return None
    keys = elements(node.groupingExpressions() if kind(node) == "Aggregate" else node.output())
    return next((key for key in keys if kind(key) == "AttributeReference" and key.metadata().contains(_DELAY)), None)


def _scanned(spark: SparkSession, executed: Any) -> DataFrame:
    """Return the rows that a batch has read, to be read again: by a scan of its own, lest they count as read twice."""
    session: Any = spark._jsparkSession
    scans = [one for one in elements(executed.collectLeaves()) if kind(one) in (_FILES, "MicroBatchScanExec")]
    (scan,) = (one for one in scans if one.getStream().isDefined())  # the others are of reference tables
    if kind(scan) == _FILES:
        return DataFrame(session.baseRelationToDataFrame(scan.relation()), spark)
    rows = scan.clone().execute()
    return DataFrame(session.internalCreateDataFrame(rows, scan.schema(), False), spark)


class _Surgery:
    """Makes a plan over the rows of one batch of a plan over the stream, with ROW and NUMBER beside all that passes."""

    def __init__(self, spark: SparkSession, batch: Any) -> None:
        self._spark = spark
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._batch = batch
        self._columns = {one.name(): one for one in elements(batch.output())}
        #: the attributes of both
        self._beside = [self._columns[name] for name in (ROW, NUMBER)]

    def rows(self, way: list[Any], event_time: Any) -> DataFrame:
        """Return ROW, NUMBER and, as `ends`, when the time or the window is over that a row has behind a way."""
        ends = event_time
        if kind(event_time.dataType()) == "StructType":
            ends = self._expressions.GetStructField(event_time, 1, self._jvm.scala.Option.empty())
        plan = self._logical.Project(self._sequence([*self._beside, self._named(ends, "ends")]), self._carried(way))
        return DataFrame(self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan), self._spark)

    def _carried(self, way: list[Any]) -> Any:
        """Return the plan of a way: its nodes from the top, the last of which gives way to the batch."""
        node, *rest = way
        if not rest:
            return self._renamed([self._columns[one.name()] for one in elements(node.output())], node, self._batch)
        plan = self._carried(rest)
        match kind(node):
            case "WithCTE" | "CTERelationDef":
                return plan
            case "CTERelationRef":
                return self._renamed(elements(rest[0].output()), node, plan)
            case "Project":
                return self._logical.Project(self._sequence([*elements(node.projectList()), *self._beside]), plan)
            case "Expand":
                projections = [self._sequence([*elements(one), *self._beside]) for one in elements(node.projections())]
                output = self._sequence([*elements(node.output()), *self._beside])
                return self._logical.Expand(self._sequence(projections), output, plan)
        return node.withNewChildren(self._sequence([plan if one.isStreaming() else one for one in elements(node.children())]))

    def _renamed(self, columns: list[Any], node: Any, plan: Any) -> Any:
        """Return a plan whose columns are known as those of a node are."""
        known = [self._named(one, out.name(), out) for one, out in zip(columns, elements(node.output()), strict=True)]
        return self._logical.Project(self._sequence([*known, *self._beside]), plan)

    def _named(self, expression: Any, name: str, attribute: Any = None) -> Any:
        """Return an expression as a column: a new one, or what an attribute stands for."""
        number = self._expressions.NamedExpression.newExprId() if attribute is None else attribute.exprId()
        empty = self._sequence([])
        return self._expressions.Alias(expression, name, number, empty, self._jvm.scala.Option.empty(), empty)

    def _sequence(self, items: list[Any]) -> Any:
        """Return a Seq of Scala."""
        return self._jvm.PythonUtils.toSeq(items)
