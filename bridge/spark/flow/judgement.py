"""What a SELECT must not have in a pipeline, though Spark takes it, found in Catalyst's plan of it.

Two things: rows that are removed from their queue and never seen, and state that grows without end. The plan says also
whether rows come out otherwise when a batch is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from bridge.config import PipelineConfig
from bridge.spark.flow.columns import TIMES
from bridge.spark.flow.logical_plan import analysed, below, elements, kind, nodes, position
from bridge.spark.flow.mistake import Mistake, word
from bridge.spark.flow.sink import ARCHIVE, MQ

#: Nodes that leave rows of a stream out, by no property of theirs.
_LEAVING_OUT: Final = {
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Tail": "LIMIT",
    "Sample": "TABLESAMPLE",
}
#: Nodes that make of each row by itself what comes of it, in the partition where it is.
_WITH: Final = ("WithCTE", "CTERelationDef", "CTERelationRef")
ROW_BY_ROW: Final = frozenset(("Project", "Filter", "Generate", "SubqueryAlias", "View", "EventTimeWatermark", *_WITH))
#: Times that are not fixed for a batch, as current_timestamp() is. (Spark calls them deterministic.)
_CLOCKS: Final = frozenset(("Now", "CurrentTime"))
#: A moment, in ms, as a watermark has it: any will do that Java takes for a Long.
_MOMENT: Final = 1 << 40


def judge(made: DataFrame, config: PipelineConfig) -> None:
    """Check what the SELECT of a pipeline makes. Raises Mistake."""
    plan = analysed(made)
    for node in nodes(plan):
        if node.isStreaming() and (what := _LEAVING_OUT.get(kind(node))):
            why = f"a SELECT without {what}, because rows that it leaves out would be gone unseen: a WHERE can say which"
            raise _mistake(config, why, node)
    _check_watermarks(plan, config)
    _check_joins(made, plan, config)


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


def is_repeatable(made: DataFrame, destinations: AbstractSet[str]) -> bool:
    """Return whether a batch that is run again comes out the same for its kinds of destinations, as far as they mind."""
    if not destinations & {MQ, ARCHIVE}:
        return True  # what is published comes at least once, whatever it is
    plan = analysed(made)
    if any(not node.isStreaming() or kind(node) not in ROW_BY_ROW for node in nodes(plan)):
        return False
    computed = [one for node in nodes(plan) if kind(node) != "View" for one in elements(node.expressions())]
    if MQ in destinations:
        return all(map(is_fixed, computed))
    # A file of the archive is written again as a whole, so what is in it may differ, but not the hour it is filed under.
    source = {one.exprId().id() for node in nodes(plan) if kind(node) == "View" for one in elements(node.output())}
    return all(one.exprId().id() in source for one in elements(plan.output()) if one.name() in TIMES)


def is_fixed(expression: Any) -> bool:
    """Return whether an expression makes the same value when it is computed again."""
    return expression.deterministic() and not any(kind(one) in _CLOCKS for one in _parts(expression))


def _parts(expression: Any) -> Iterator[Any]:
    yield expression
    for one in elements(expression.children()):
        yield from _parts(one)


def _mistake(config: PipelineConfig, expected: str, node: Any) -> Mistake:
    at = position(node)
    return Mistake(("select",), expected, None if at is None else repr(word(config.select, at)), at)
