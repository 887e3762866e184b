"""Directories of Parquet files that several pipelines write: their rows have to have the same columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql.types import StructType

from bridge.spark.flow.mistake import Mistake
from bridge.spark.flow.plan import Plan
from bridge.spark.flow.sink import ARCHIVE


def archive_mistakes(plans: Iterable[Plan]) -> Iterator[tuple[str, Mistake]]:
    """Yield the name of each pipeline that writes other columns into a directory than one before it, and the mistake."""
    writers: dict[Path, Plan] = {}
    for plan in plans:
        to = plan.config.destination
        if to is None or to.archive is None:
            continue
        first = writers.setdefault(to.archive.resolve(), plan)
        if (expected := _columns(first)) != (found := _columns(plan)):
            sentence = f"a directory of its own, or the columns of pipeline {first.name} ({expected})"
            yield plan.name, Mistake(("to", "archive"), sentence, found)


def _columns(plan: Plan) -> str:
    row = plan.frame.schema[ARCHIVE].dataType
    assert isinstance(row, StructType)
    return ", ".join(sorted(f"{field.name} {field.dataType.simpleString()}" for field in row))
