"""The figures of a report: one pass over the archive for the counts, one for the times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as f

from bridge.archive.history import NEVER
from bridge.archive.schema import Direction, Outcome
from bridge.pipeline.archive import NoRows, read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Upper ends of the classes of sizes, in bytes, with their names; what is above the last is `more`.
SIZES: Final = ((0, "empty"), (64, "to 64 B"), (1 << 10, "to 1 KiB"), (1 << 14, "to 16 KiB"), (1 << 18, "to 256 KiB"),
                (1 << 20, "to 1 MiB"))  # fmt: skip
LARGER: Final = "more"
PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
#: percentile_approx: the rank is right to one part in so many.
_ACCURACY: Final = 10_000
#: A delivery may be settled so long before the end of the last hour of a report and be written in the next.
_LAG: Final = timedelta(hours=1)

_ARRIVED: Final = (str(Outcome.DELIVERED), str(Outcome.ACKNOWLEDGED))
_TRAFFIC: Final = ("published", "published bytes", "delivered", "delivered bytes")


class Section(msgspec.Struct):
    """A table of the report: the first column is what the others are of. `chart` names the columns to draw."""

    key: str
    title: str
    columns: list[str]
    rows: list[list[Any]]
    chart: list[str] = []
    unit: str = ""


class Report(msgspec.Struct):
    """All sections, for the time from `start` to before `end` by when messages were settled."""

    start: datetime | None
    end: datetime | None
    rows: int
    sections: list[Section]


def report(
    spark: SparkSession,
    directories: Sequence[Path],
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    levels: int = 2,
    top: int = 20,
) -> Report:
    """The figures of what was settled from `start` to before `end`; topics are cut to `levels`, long lists to `top`.

    Raises bridge.pipeline.archive.NoRows.
    """
    rows = read(spark, directories, start, None if end is None else end + _LAG)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    messages = rows.where(
        f.col("direction").isin(str(Direction.IN), str(Direction.OUT)) & f.col("settled").between(low, high - 1)
    )
    counted = _counted(messages, levels).cache()
    try:
        total = counted.agg(f.sum("messages")).first()
        if total is None or not total[0]:
            raise NoRows("the archive has no messages in that time")
        sections = [
            _traffic(counted, "hour", "Messages by hour (UTC)", "hour"),
            _traffic(counted, "topics", f"Messages by topic, {levels} levels", "branch", top=top),
            _traffic(counted, "clients", "Top talkers: messages by client", "client_id", top=top),
            _traffic(counted, "qos", "Messages by QoS", "qos"),
            _sizes(counted),
            _latency(messages),
            _reasons(counted, "dead_letters", "Dead letters by reason", Outcome.DEAD_LETTERED),
            _reasons(counted, "refused", "Publications refused, by reason", Outcome.REFUSED),
            _reasons(counted, "discarded", "Discarded, by reason", Outcome.DISCARDED),
        ]
    finally:
        counted.unpersist()
    return Report(start, end, total[0], sections)


def _counted(messages: DataFrame, levels: int) -> DataFrame:
    size: Column = f.lit(LARGER)
    for limit, name in reversed(SIZES):
        size = f.when(f.col("size") <= limit, name).otherwise(size)
    hour = f.date_format(f.timestamp_micros("settled"), "yyyy-MM-dd HH:00")
    return messages.groupBy(
        "direction", "outcome", "reason", "client_id", f.col("qos").cast("int").alias("qos"),
        f.substring_index("topic", "/", levels).alias("branch"), hour.alias("hour"), size.alias("size_class"),
    ).agg(f.count("*").alias("messages"), f.sum("size").alias("bytes"))  # fmt: skip


def _sums() -> list[Column]:
    put, arrived = f.col("outcome") == Outcome.PUT, f.col("outcome").isin(*_ARRIVED)
    both = [(put, "messages"), (put, "bytes"), (arrived, "messages"), (arrived, "bytes")]
    return [
        f.sum(f.when(condition, f.col(column)).otherwise(0)).alias(name)
        for name, (condition, column) in zip(_TRAFFIC, both, strict=True)
    ]


def _traffic(counted: DataFrame, key: str, title: str, column: str, *, top: int | None = None) -> Section:
    grouped = counted.groupBy(f.col(column).alias(key)).agg(*_sums())
    if top is None:
        grouped = grouped.orderBy(key)
    else:
        grouped = grouped.orderBy(-(f.col("published") + f.col("delivered")), key).limit(top)
    return Section(key, title, [key, *_TRAFFIC], _values(grouped), ["published", "delivered"], "messages")


def _sizes(counted: DataFrame) -> Section:
    grouped = counted.groupBy(f.col("size_class").alias("size")).agg(*_sums())
    order = [name for _, name in SIZES] + [LARGER]
    rows = sorted(_values(grouped), key=lambda row: order.index(row[0]))
    return Section("size", "Messages by size", ["size", *_TRAFFIC], rows, ["published", "delivered"], "messages")


def _latency(messages: DataFrame) -> Section:
    """From the put until the client has acknowledged it (QoS 0: until it is written); while it was away included."""
    arrived = messages.where((f.col("direction") == Direction.OUT) & f.col("outcome").isin(*_ARRIVED) & ~f.col("retain"))
    taken = f.greatest(f.col("settled") - f.col("received"), f.lit(0))
    grouped = (
        arrived.groupBy(f.col("qos").cast("int").alias("qos"))
        .agg(
            f.count("*").alias("messages"),
            f.percentile_approx(taken, list(PERCENTILES), _ACCURACY).alias("found"),
            f.max(taken).alias("longest"),
        )
        .orderBy("qos")
    )
    names = [f"p{percentile * 100:g}" for percentile in PERCENTILES]
    rows = [
        [one["qos"], one["messages"], *(value / 1000 for value in one["found"]), one["longest"] / 1000]
        for one in grouped.toArrow().to_pylist()
    ]
    title = "Milliseconds from put to acknowledgement (QoS 0: until written), by QoS"
    return Section("latency", title, ["qos", "messages", *names, "longest"], rows, names[:3], "ms")


def _reasons(counted: DataFrame, key: str, title: str, outcome: Outcome) -> Section:
    grouped = (
        counted.where(f.col("outcome") == outcome)
        .groupBy("reason")
        .agg(f.sum("messages").alias("messages"), f.count_distinct("client_id").alias("clients"))
        .orderBy(f.desc("messages"), "reason")
    )
    return Section(key, title, ["reason", "messages", "clients"], _values(grouped), ["messages"], "messages")


def _values(frame: DataFrame) -> list[list[Any]]:
    return [list(one.values()) for one in frame.toArrow().to_pylist()]
