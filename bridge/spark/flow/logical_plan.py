"""Logical plans of Catalyst, walked through py4j: their nodes, and what nodes and expressions say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

#: A view is a frame of its own, such as `input` and reference tables: what stands behind it is no part of a SELECT.
_VIEW: Final = "View"


def parsed(spark: SparkSession, select: str) -> Any:
    """Return the plan of a SELECT as it is written, with nothing looked up. Raises ParseException."""
    return spark._jsparkSession.sessionState().sqlParser().parseQuery(select)


def analysed(frame: DataFrame) -> Any:
    """Return the analysed plan of a frame."""
    return frame._jdf.queryExecution().analyzed()


def kind(node: Any) -> str:
    """Return the name of the class of a node or an expression."""
    return str(node.getClass().getSimpleName())


def elements(sequence: Any) -> list[Any]:
    """Return what is in a Seq of Scala."""
    return [sequence.apply(index) for index in range(sequence.size())]


def below(plan: Any) -> list[Any]:
    """Return the plans right below a plan: its children, its subqueries, the definitions of a WITH."""
    return [] if kind(plan) == _VIEW else [*elements(plan.children()), *elements(plan.innerChildren())]


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan and all plans below it."""
    yield plan
    for one in below(plan):
        yield from nodes(one)


def position(node: Any) -> int | None:
    """Return the character of the SQL text where a node or an expression stands; None where nobody knows."""
    start = node.origin().startIndex()
    return int(start.get()) if start.isDefined() else None
