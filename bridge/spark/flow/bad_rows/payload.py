"""Payloads of JSON: the fields that a SELECT casts, and what is wrong with a payload whose fields have other types.

Spark ends a query at the first value that `payload:temp::double` cannot cast. So the casts are found in the analysed plan,
and what they would refuse is a dead letter before the SELECT sees it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

#: The column of `input` that a SELECT has payloads in, and that of their bytes.
PAYLOAD: Final = "payload"
BODY: Final = "body"
REASON: Final = "reason"

#: Columns that say what the text of a message is.
_OF_TEXT: Final = frozenset(("text", "format", "ccsid", "encoding"))
# As a plan shows payload:a.b::double, cast(payload:a.b AS double), and variant_get(payload, '$.a.b', 'double').
_CAST: Final = re.compile(
    r"(?<![a-z_])cast\(variant_get\(payload#\d+, (?P<path>\$.*?), VariantType, true, (?:None|Some\([^()]*\))\)"
    r" as (?P<type>[a-z]+)\)"
)
_GET: Final = re.compile(r"(?<![a-z_])variant_get\(payload#\d+, (?P<path>\$.*?), (?P<type>[A-Za-z]+)Type, true, ")
_TYPES: Final = frozenset(
    ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "timestamp", "date")
)
_WHOLE: Final = frozenset(("tinyint", "smallint", "int", "bigint"))
_FLOATING: Final = frozenset(("float", "double"))
#: What stands for the payload in a plan that tells whether it is read.
_MARK: Final = "the payload of a probe"
#: Types whose name in plans is not that in SQL.
_SQL_NAMES: Final = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def casts(plan: str) -> dict[tuple[str, str], None]:
    """Return the (path, type) that an analysed plan casts fields of `payload` to, in the order of the plan."""
    found: dict[tuple[str, str], None] = {}
    for pattern in (_CAST, _GET):
        for match in pattern.finditer(plan):
            kind = match["type"].lower()
            kind = _SQL_NAMES.get(kind, kind)
            if kind in _TYPES:
                found[match["path"], kind] = None
    return found


def declared(fields: Mapping[str, str]) -> dict[tuple[str, str], None]:
    """Return the (path, type) of the fields that the section `schema` declares."""
    return {(f"$.{path}", kind): None for path, kind in fields.items()}


def text_of(columns: Collection[str], column: str) -> str:
    """Return the SQL of the text in a binary or string column of a source: of MQSTR by its CCSID, else in UTF-8."""
    utf_8 = f"CAST({column} AS STRING)"
    return f"IF(format = 'MQSTR', text, {utf_8})" if has_text(columns, column) else utf_8


def has_text(columns: Collection[str], column: str) -> bool:
    """Return whether a source has the text of its payloads in a column beside, as the source `mq` has."""
    return column == BODY and set(columns) >= _OF_TEXT


def fault(columns: Collection[str], column: str, kind: str, fields: Mapping[tuple[str, str], None]) -> str:
    """Return the SQL of what is wrong with a payload that is `kind`: json, text or bytes; NULL where nothing is.

    It is what Spark can tell: more than NULL for JSON, and for text that has a CCSID.
    """
    text, faults = text_of(columns, column), ["CAST(NULL AS STRING)"]
    if kind != "bytes" and has_text(columns, column):
        faults.insert(0, f"IF({text} IS NULL, 'the payload is no text in its CCSID', NULL)")
    if kind == "json":
        faults.append(wrong_type(text, fields))
    return f"coalesce({', '.join(faults)})"


def wrong_type(text: str, fields: Mapping[tuple[str, str], None]) -> str:
    """Return the SQL of what is wrong with the JSON in a text (SQL, too), or NULL."""
    document = f"try_parse_json({text})"
    cases = [f"WHEN {document} IS NULL THEN 'the payload is no JSON, or names a member twice'"]
    for path, kind in fields:
        place, what = _literal(path), _literal(f"{path.removeprefix('$').lstrip('.')} of the payload is no {kind}: ")
        value = f"variant_get({document}, {place}, 'variant')"
        cases.append(
            f"WHEN {value} IS NOT NULL AND NOT is_variant_null({value})"
            f" AND ({_changed(document, place, kind)})"
            f" THEN concat({what}, left(to_json({value}), 40))"
        )
    return f"CASE {' '.join(cases)} END"


def _changed(document: str, place: str, kind: str) -> str:
    """Return the SQL of whether a cast of a field cannot be done, or would make another number of it: 3 of 3.7."""
    made = f"try_variant_get({document}, {place}, '{kind}')"
    if kind in _WHOLE:
        return f"{made} IS NULL OR CAST({made} AS DOUBLE) <> try_variant_get({document}, {place}, 'double')"
    if kind in _FLOATING:
        is_text = f"schema_of_variant(variant_get({document}, {place}, 'variant')) = 'STRING'"
        return f"{made} IS NULL OR (abs({made}) = double('Infinity') AND NOT {is_text})"
    return f"{made} IS NULL"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def is_read(spark: SparkSession, source: DataFrame, column: str, select: str, view: str) -> bool:
    """Return whether a SELECT over `view` reads the column `payload` of a source.

    Else it reads `column` (as `body`), or neither. Spark's optimizer knows: it leaves out what nobody reads. Of a stream
    it gives no plan, so the plan is of rows that are made up. Where there is none, for a SELECT with a mistake or columns
    that cannot be made up, it may be read.
    """
    document = f.expr(f"try_parse_json(concat({_literal(_MARK)}, {text_of(source.columns, column)}))")
    try:
        rows = spark.range(1).select(f.from_json(f.col("id").cast("string"), source.schema).alias("row")).select("row.*")
        rows.withColumns({BODY: f.col(column), PAYLOAD: document}).createOrReplaceTempView(view)
        plan = spark.sql(select)._jdf.queryExecution().optimizedPlan().toString()
    except PySparkException:
        return True
    return _MARK in plan
