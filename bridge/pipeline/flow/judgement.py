"""What a SELECT must not have in a pipeline, though Spark takes it, found in Catalyst's plan of it.

Three things: rows that are removed from their queue and never seen, state that grows without end, and rows that come out
otherwise when a batch is run again, which breaks exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from bridge.config import PipelineConfig
from bridge.pipeline.flow.columns import TIMES
from bridge.pipeline.flow.logical_plan import analysed, below, elements, kind, nodes, position
from bridge.pipeline.flow.mistake import Mistake, word
from bridge.pipeline.flow.sink import ARCHIVE, MQ

#: Nodes that leave rows of a stream out, by no property of theirs.
_LEAVING_OUT: Final = {
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Tail": "LIMIT",
    "Sample": "TABLESAMPLE",
}
#: Nodes that make of each row by itself what comes of it, in the partition where it is.
_ROW_BY_ROW: Final = frozenset(("Project", "Filter", "Generate", "SubqueryAlias", "View", "EventTimeWatermark"))
#: Aggregates that depend on the order of rows, which a shuffle does not keep. (Spark calls them deterministic.)
_BY_ORDER: Final = frozenset(("First", "Last", "AnyValue", "CollectList", "CollectSet", "ListAgg"))
#: What makes the same of their result in whichever order.
_IN_ORDER: Final = "SortArray"
#: Times that are not fixed for a batch, as current_timestamp() is.
_CLOCKS: Final = frozenset(("Now", "CurrentTime"))

_AGAIN: Final = "because a batch that is run again has to make the same rows, or exactly once is broken"
#: A moment, in ms, as a watermark has it: any will do that Java takes for a Long.
_MOMENT: Final = 1 << 40


def judge(made: DataFrame, config: PipelineConfig, destinations: AbstractSet[str]) -> None:
    """Check what the SELECT of a pipeline makes, for its kinds of destinations. Raises Mistake."""
    plan = analysed(made)
    for node in nodes(plan):
        if node.isStreaming() and (what := _LEAVING_OUT.get(kind(node))):
            why = f"a SELECT without {what}, because rows that it leaves out would be gone unseen: a WHERE can say which"
            raise _mistake(config, why, node)
    _check_watermarks(plan, config)
    _check_joins(made, plan, config)
    # What is published to a broker comes at least once, whatever it is.
    if destinations & {MQ, ARCHIVE}:
        _check_shuffles(plan, config)
        # A file of the archive is written again as a whole, so what is in it may differ.
        if MQ in destinations or config.changes is not None or not _is_row_by_row(plan):
            _check_repeatable(plan, config)


# State ---------------------------------------------------------------------------------------------------------------


def _check_watermarks(plan: Any, config: PipelineConfig, above: bool = False) -> None:
    here = kind(plan) == "EventTimeWatermark"
    if here and above:
        raise _mistake(config, "one WATERMARK at most on the way of a row", plan)
    for one in below(plan):
        _check_watermarks(one, config, above or here)


def _check_joins(made: DataFrame, plan: Any, config: PipelineConfig) -> None:
    """Check that joins of streams forget their rows some time: Spark sees to that of outer joins only."""
    if not any(_is_unbounded(made, node) for node in nodes(plan)):
        return
    for node in nodes(_optimised(made, plan)):  # a WHERE that belongs to the join is part of it there
        if _is_unbounded(made, node):
            expected = (
                "a join of streams that says how far apart in time two rows may be, with a watermark on both sides"
                " (a.received BETWEEN b.received AND b.received + INTERVAL 1 MINUTE), because it keeps rows for ever else"
            )
            raise _mistake(config, expected, node)


def _is_unbounded(made: DataFrame, node: Any) -> bool:
    if kind(node) != "Join":
        return False
    left, right = node.left(), node.right()
    if not (left.isStreaming() and right.isStreaming()):
        return False
    jvm: Any = made.sparkSession._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
    if catalyst.isWatermarkInJoinKeys(node):
        return False
    moment, sides = jvm.scala.Option.apply(_MOMENT), (left.outputSet(), right.outputSet())
    bounds = (catalyst.getStateValueWatermark(*order, node.condition(), moment) for order in (sides, sides[::-1]))
    return not all(bound.isDefined() for bound in bounds)


def _optimised(made: DataFrame, plan: Any) -> Any:
    try:
        session: Any = made.sparkSession._jsparkSession
        return session.sessionState().optimizer().execute(plan)
    except (PySparkException, Py4JError):  # of what it computes while it plans, such as 1 / 0
        return plan


# Exactly once --------------------------------------------------------------------------------------------------------


def _check_shuffles(plan: Any, config: PipelineConfig) -> None:
    """Check that rows come to the same partition when a batch is run again: by a hash they do."""
    for node in nodes(plan):
        match kind(node):
            case "Repartition":
                stable = not node.shuffle()
            case "RebalancePartitions":
                stable = False
            case "RepartitionByExpression":
                by = elements(node.partitionExpressions())
                stable = bool(by) and not any(kind(one) == "SortOrder" for one in by)
            case _:
                continue
        if not stable and node.isStreaming():
            raise _mistake(config, f"no shuffle but by columns (DISTRIBUTE BY), {_AGAIN}", node)


def _is_row_by_row(plan: Any) -> bool:
    """Return whether a row stays in its partition, and has its time, by which it is filed, from the source."""
    source = set()
    for node in nodes(plan):
        if node.isStreaming() and kind(node) not in _ROW_BY_ROW:
            return False
        if kind(node) == "View":
            source |= {one.exprId().id() for one in elements(node.output())}
    return all(one.exprId().id() in source for one in elements(plan.output()) if one.name() in TIMES)


def _check_repeatable(plan: Any, config: PipelineConfig) -> None:
    for node in nodes(plan):
        if kind(node) == "View":
            continue
        for expression in elements(node.expressions()):
            for one in _unrepeatable(expression, stream=node.isStreaming()):
                why = f"nothing that comes out otherwise each time, {_AGAIN}"
                if kind(one) in _BY_ORDER:
                    why = f"nothing that depends on the order of rows (min, max_by, sort_array(collect_list(..))), {_AGAIN}"
                elif kind(one) in _CLOCKS:
                    why = f"a time that is fixed for the batch (current_timestamp()), {_AGAIN}"
                raise _mistake(config, why, one)


def _unrepeatable(expression: Any, *, stream: bool, sorted_: bool = False) -> Iterator[Any]:
    """Yield the innermost expressions that make another value when they are computed again."""
    name = kind(expression)
    if name == "AggregateExpression":
        function = expression.aggregateFunction()
        if stream and not sorted_ and kind(function) in _BY_ORDER:
            yield function
    elif name in _CLOCKS:
        yield expression
    children = elements(expression.children())
    yield from (found for one in children for found in _unrepeatable(one, stream=stream, sorted_=name == _IN_ORDER))
    # A subquery is a plan of its own, which is looked at by itself.
    if not expression.deterministic() and all(one.deterministic() for one in children) and not name.endswith("Subquery"):
        yield expression


def _mistake(config: PipelineConfig, expected: str, node: Any) -> Mistake:
    at = position(node)
    return Mistake(("select",), expected, None if at is None else repr(word(config.select, at)), at)
