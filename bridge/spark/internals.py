"""The only uses of Spark's private API in this package. Each function states why a public call is not sufficient."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from pathlib import Path
from typing import Any, Final

import py4j
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

#: Nodes of a logical plan that keep state between batches.
_STATEFUL: Final = frozenset(("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"))
#: Nodes that would silently remove rows of a stream -> the clause that creates them.
_DROPPING: Final = {"GlobalLimit": "LIMIT", "LocalLimit": "LIMIT", "Offset": "OFFSET", "Sample": "TABLESAMPLE"}
_PY4J: Final = str(Path(py4j.__file__).parent)


def keeps_state(frame: DataFrame) -> bool:
    """Return whether a streaming frame keeps state between batches.

    Spark reports this only after the first batch (`lastProgress.stateOperators`). A pipeline must know it before.
    """
    return any(_is_stateful(node) for node in _nodes(frame))


def dropping_clause(frame: DataFrame) -> str | None:
    """Return the first clause of a frame that silently removes rows of a stream, such as LIMIT.

    Spark accepts such clauses in streams and does not report them.
    """
    return next((_DROPPING[name] for node in _nodes(frame) if (name := str(node.nodeName())) in _DROPPING), None)


def check_streaming(frame: DataFrame) -> None:
    """Raise AnalysisException for what Spark rejects in a streaming query of output mode append.

    Spark makes this check only when a query starts.
    """
    jvm: Any = frame.sparkSession._jvm
    mode = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(_plan(frame), mode)


#: Nodes whose output has only columns of their children that their expressions name, or that the parent node needs.
_NARROW: Final = frozenset(
    (
        "Project",
        "Aggregate",
        "Filter",
        "Join",
        "Sort",
        "SubqueryAlias",
        "Window",
        "Generate",
        "EventTimeWatermark",
        "Expand",
    )
)


def columns_read(frame: DataFrame, table: str) -> set[str]:
    """Return the columns of a temporary view that a query over it reads, from Catalyst's analysed plan.

    Spark prunes the columns of a source only when it executes a plan, and it cannot do so for a source in Python.
    """
    plan = _plan(frame)
    identifiers = _identifiers(plan.output())
    views, pending = [], [plan]
    while pending:
        node = pending.pop()
        children = _items(node.children())
        if str(node.nodeName()) == "SubqueryAlias" and str(node.alias()).lower() == table:
            views.append(node)
            continue
        identifiers |= _identifiers(node.references().toSeq())
        if str(node.nodeName()) not in _NARROW:  # such as UNION, which pairs columns by position
            identifiers = identifiers.union(*(_identifiers(child.output()) for child in children))
        pending += children + _items(node.subqueries())
    return {
        str(column.name()) for view in views for column in _items(view.output()) if column.exprId().id() in identifiers
    }


def _identifiers(attributes: Any) -> set[int]:
    return {attribute.exprId().id() for attribute in _items(attributes)}


def check_sql(spark: SparkSession, text: str) -> None:
    """Raise ParseException if a text is not a query. `spark.sql` would execute a CREATE or an INSERT at once."""
    session: Any = spark._jsparkSession
    session.sessionState().sqlParser().parseQuery(text)


def has_format(spark: SparkSession, name: str) -> bool:
    """Return whether Spark has an output format. A public call would have to write something."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, session.sessionState().conf())
    except py4j.protocol.Py4JJavaError:
        return False
    return True


def has_ended(spark: SparkSession, wait: float = 0) -> bool:
    """Return whether the JVM of a session has ended, or ends within `wait` seconds.

    PySpark only reports a broken connection.
    """
    process: subprocess.Popen[bytes] | None = getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return False
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait)
    return process.returncode is not None


def silence(spark: SparkSession) -> None:
    """Keep Java stacks and plans off standard error. The commands report errors in one line."""
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    logging.getLogger("py4j").propagate = False
    root = logging.getLogger()
    if _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)
    # The accumulator server prints a stack when the JVM has ended.
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return not record.pathname.startswith(_PY4J)


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _nodes(frame: DataFrame) -> list[Any]:
    """Return the streaming nodes of the analysed plan, including those of subqueries."""
    nodes, pending = [], [_plan(frame)]
    while pending:
        node = pending.pop()
        if node.isStreaming():
            nodes.append(node)
            pending += _items(node.children())
        pending += _items(node.subqueries())
    return nodes


def _is_stateful(node: Any) -> bool:
    name = str(node.nodeName())
    joins = name == "Join" and all(child.isStreaming() for child in _items(node.children()))
    subquery = any(plan.isStreaming() for plan in _items(node.subqueries()))
    return name in _STATEFUL or "State" in name or joins or subquery


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
