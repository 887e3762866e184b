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
_MOVED: Final = (Outcome.PUT, Outcome.DELIVERED, Outcome.ACKNOWLEDGED)
_TRAFFIC: Final = ("published", "published bytes", "delivered", "delivered bytes")
#: What the report tells apart, each for itself.
_APART: Final = ("hour", "branch", "client_id", "qos", "size_class")


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
    """Return the figures of what was settled from `start` to before `end`.

    Topics are cut to `levels`, long lists to `top`. Raises bridge.pipeline.archive.NoRows.
    """
    rows = read(spark, directories, start, None if end is None else end + _LAG)
    low = 0 if start is None else int(start.timestamp() * 1_000_000)
    high = NEVER if end is None else int(end.timestamp() * 1_000_000)
    messages = rows.where(
        f.col("direction").isin(str(Direction.IN), str(Direction.OUT)) & f.col("settled").between(low, high - 1)
    )
    found = _grouped(_counted(messages, levels))
    total = sum(one["messages"] for one in found["qos"])
    mapped = rows.where((f.col("direction") == Direction.MAPPED) & f.col("settled").between(low, high - 1))
    mappings = _mapped(mapped)
    if not total and not mappings:
        raise NoRows("the archive has no messages in that time")
    sections = [
        _traffic("hour", "Messages by hour (UTC)", found["hour"]),
        _top("topics", f"Messages by topic, {levels} levels", found["branch"], top),
        _top("clients", "Top talkers: messages by client", found["client_id"], top),
        _traffic("qos", "Messages by QoS", found["qos"]),
        _sizes(found["size_class"]),
        _latency(messages),
        _reasons("dead_letters", "Dead letters by reason", found["reason"], Outcome.DEAD_LETTERED),
        _reasons("refused", "Publications refused, by reason", found["reason"], Outcome.REFUSED),
        _reasons("discarded", "Discarded, by reason", found["reason"], Outcome.DISCARDED),
        _mappings(mappings),
        _mapping_reasons(mappings),
    ]
    return Report(start, end, total, sections)


def _counted(messages: DataFrame, levels: int) -> DataFrame:
    """Return one row for each combination of what the report tells apart; far fewer than the archive has."""
    size: Column = f.lit(LARGER)
    for limit, name in reversed(SIZES):
        size = f.when(f.col("size") <= limit, name).otherwise(size)
    hour = f.date_format(f.timestamp_micros("settled"), "yyyy-MM-dd HH:00")
    put, arrived = f.col("outcome") == Outcome.PUT, f.col("outcome").isin(*_ARRIVED)
    one = {"published": put, "published bytes": put, "delivered": arrived, "delivered bytes": arrived}
    return messages.groupBy(
        "outcome", "reason", "client_id", f.col("qos").cast("int").alias("qos"),
        f.substring_index("topic", "/", levels).alias("branch"), hour.alias("hour"), size.alias("size_class"),
    ).agg(
        f.count("*").alias("messages"),
        *(
            f.sum(f.when(condition, f.col("size") if name.endswith("bytes") else 1).otherwise(0)).alias(name)
            for name, condition in one.items()
        ),
    )  # fmt: skip


def _grouped(counted: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the sums by each of the columns that the report tells apart, all in one job.

    `reason` goes with its outcome.
    """
    sets = [[name] for name in _APART] + [["outcome", "reason"]]
    sums = [f.sum(name).alias(name) for name in ("messages", *_TRAFFIC)]
    apart = [f.grouping(name).alias(f"without {name}") for name in (*_APART, "reason")]
    rows = counted.groupingSets(sets, *_APART, "outcome", "reason").agg(*sums, *apart).toArrow().to_pylist()
    return {name: [one for one in rows if not one[f"without {name}"]] for name in (*_APART, "reason")}


def _line(one: dict[str, Any], column: str) -> list[Any]:
    return [one[column], *(one[name] for name in _TRAFFIC)]


def _section(key: str, title: str, rows: list[list[Any]]) -> Section:
    return Section(key, title, [key, *_TRAFFIC], rows, ["published", "delivered"], "messages")


def _traffic(key: str, title: str, found: list[dict[str, Any]]) -> Section:
    return _section(key, title, sorted(_line(one, key) for one in found))


def _top(key: str, title: str, found: list[dict[str, Any]], top: int) -> Section:
    column = {"topics": "branch", "clients": "client_id"}[key]
    found = sorted(found, key=lambda one: (-one["published"] - one["delivered"], one[column]))
    return _section(key, title, [_line(one, column) for one in found[:top]])


def _sizes(found: list[dict[str, Any]]) -> Section:
    order = [name for _, name in SIZES] + [LARGER]
    found = sorted(found, key=lambda one: order.index(one["size_class"]))
    return _section("size", "Messages by size", [_line(one, "size_class") for one in found])


def _reasons(key: str, title: str, found: list[dict[str, Any]], outcome: Outcome) -> Section:
    rows = [[one["reason"], one["messages"]] for one in found if one["outcome"] == outcome]
    rows.sort(key=lambda row: (-row[1], str(row[0])))
    return Section(key, title, ["reason", "messages"], rows, ["messages"], "messages")


def _mapped(mapped: DataFrame) -> list[dict[str, Any]]:
    """Return the counts by mapping, outcome and reason."""
    counted = mapped.groupBy("client_id", "outcome", "reason").agg(
        f.count("*").alias("messages"), f.sum("size").alias("bytes")
    )
    return counted.toArrow().to_pylist()  # type: ignore[no-any-return]


def _mappings(found: list[dict[str, Any]]) -> Section:
    """Return the section of what each mapping took, and what became of it."""
    rows = []
    for mapping in sorted({one["client_id"] for one in found}):
        own = [one for one in found if one["client_id"] == mapping]

        def count(*outcomes: Outcome, own: list[dict[str, Any]] = own, what: str = "messages") -> int:
            return sum(one[what] for one in own if not outcomes or one["outcome"] in outcomes)

        rows.append(
            [
                mapping, count(), count(*_MOVED), count(*_MOVED, what="bytes"), count(Outcome.DEAD_LETTERED),
                count(Outcome.DISCARDED, Outcome.REFUSED),
            ]
        )  # fmt: skip
    columns = ["mapping", "taken", "put", "put bytes", "dead-lettered", "discarded"]
    return Section("mappings", "Messages by mapping", columns, rows, ["taken", "put"], "messages")


def _mapping_reasons(found: list[dict[str, Any]]) -> Section:
    """Return the section of why mappings did not put what they took."""
    rows = [
        [one["client_id"], one["outcome"], one["reason"], one["messages"]] for one in found if one["outcome"] not in _MOVED
    ]
    rows.sort(key=lambda row: (-row[3], *map(str, row[:3])))
    columns = ["mapping", "outcome", "reason", "messages"]
    return Section("mapping_reasons", "Not put by mappings, by reason", columns, rows, ["messages"], "messages")


def _latency(messages: DataFrame) -> Section:
    """Return the section of times from the put until the client has acknowledged it (QoS 0: until it is written).

    The time while the client was away is included.
    """
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
