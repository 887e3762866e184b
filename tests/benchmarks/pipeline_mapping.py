"""Cost of a mapping in a Spark plan: archived rows are read, mapped and written, compared with an identity."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.archive.schema import NAMES, arrow_schema
from bridge.config.mapping import ToMqMapping
from bridge.spark.mapping import PUBLICATION_TYPES, to_messages, to_publications
from bridge.spark.session import session
from tests.benchmarks.archive_rows import generate

PAYLOAD = 1024
ROUNDS = 3

# Workers do not import the benchmark, so it is pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

MAPPINGS: dict[str, Any] = {
    "standard profile": None,
    "mapping by capture": {"from": {"mqtt": "plant/{line}/{n}"}, "to": {"queue": "LINE.{line}"}},
    # No two messages of a batch are equal.
    "mapping by message id": {
        "from": {"mqtt": "#"},
        "to": {"queue": "Q"},
        "attributes": {"correl_id": "{messageId|default:'-'}"},
    },
}


def read(spark: SparkSession, directory: Path) -> DataFrame:
    """Read an archive, with its times as numbers."""
    rows = spark.read.schema(from_arrow_schema(arrow_schema())).parquet(str(directory))
    times = {name: f.unix_micros(name) for name in ("received", "sent", "settled")}
    return rows.select(*NAMES).drop("properties").withColumns(times)


def identity(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches unchanged."""
    yield from batches


def plans(rows: DataFrame) -> dict[str, DataFrame]:
    """Return the plans from publications: the identity, and each mapping."""
    columns = rows.select(*[rows[name] for name in PUBLICATION_TYPES if name in rows.columns])
    frames = {"identity": columns.mapInArrow(identity, columns.schema)}
    for name, mapping in MAPPINGS.items():
        if mapping is None:
            frames[name] = to_messages(rows, queue="Q")
        else:
            frames[name] = to_messages(rows, ToMqMapping.model_validate(mapping), name="m", queue_manager="QM1")
    return frames


def plans_back(rows: DataFrame) -> dict[str, DataFrame]:
    """Return the plans from messages of the standard profile to publications."""
    return {"identity": rows.mapInArrow(identity, rows.schema), "standard profile": to_publications(rows)}


def measure(spark: SparkSession, count: int) -> dict[str, dict[str, float]]:
    """Return rows per second of each plan, by direction and writer: the median of three. `ratio` is to the identity."""
    with tempfile.TemporaryDirectory(prefix="mqbridge-mapping-") as name:
        directory = Path(name)
        generate(directory / "archive", count, payload=PAYLOAD)
        every = plans(read(spark, directory / "archive").where("direction IN ('in', 'out')"))
        messages = every["standard profile"].select("queue", "md", "headers", "body")
        messages.write.parquet(str(directory / "messages"))
        back = plans_back(spark.read.parquet(str(directory / "messages")))
        return _measured("to messages", every, count, directory) | _measured("to publications", back, count, directory)


def _measured(label: str, every: dict[str, DataFrame], count: int, directory: Path) -> dict[str, dict[str, float]]:
    results: dict[str, dict[str, float]] = {}
    for writer in ("noop", "parquet"):
        seconds: dict[str, list[float]] = {plan: [] for plan in every}
        for _ in range(ROUNDS):
            for plan, frame in every.items():
                start = time.perf_counter()
                frame.write.format(writer).mode("overwrite").save(str(directory / "out"))
                seconds[plan].append(time.perf_counter() - start)
        rates = {plan: count / sorted(times)[ROUNDS // 2] for plan, times in seconds.items()}
        for plan, rate in rates.items():
            results[f"{label}, {plan}, {writer}"] = {"rows_per_second": rate, "ratio": rate / rates["identity"]}
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    local_session = session("bench", master="local[2]", settings={"spark.log.level": "ERROR"})
    print(json.dumps(measure(local_session, arguments.rows)))
