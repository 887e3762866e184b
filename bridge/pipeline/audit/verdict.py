"""What pairs of expected and actual deliveries say about the promise: QoS 1 at least once, QoS 2 exactly once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
from pyspark.sql import functions as f

from bridge.archive.history import NEVER, Gap, History
from bridge.pipeline.audit.pairing import ARRIVED, DEAD_LETTERED, DISCARDED, FIRST, REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Seconds that a message for a connected client may be under way when the archive ends, unless --late says other.
PATIENCE: Final = 60.0


class Counts(msgspec.Struct):
    """Deliveries, counted. `lost`, `doubled`, `disordered` (and `late`, where a limit is given) break the promise."""

    #: had to be delivered
    expected: int = 0
    #: came to the client: acknowledged, or written with QoS 0
    delivered: int = 0
    #: QoS 1 and 2: acknowledged to the publisher, and not delivered
    lost: int = 0
    #: QoS 0 or 2: delivered again
    doubled: int = 0
    #: delivered behind a later message of the same publisher, topic and QoS
    disordered: int = 0
    #: delivered later than allowed; counted from when the client was there to take it
    late: int = 0
    #: QoS 0: not delivered, which is allowed
    missing: int = 0
    #: QoS 1: delivered again, which is allowed
    repeated: int = 0
    #: waits for a client that is away, or is under way
    pending: int = 0
    #: its session ended before it was delivered
    ended: int = 0
    #: on the dead-letter queue
    dead_lettered: int = 0
    #: expired, or (QoS 0) its client was too slow
    discarded: int = 0
    #: not delivered, or again, as far as the archive tells; but rows are missing there
    unknown: int = 0
    #: delivered, and the publication is not in the archive in this time
    unmatched: int = 0

    def add(self, other: Counts) -> None:
        """Count what the other has counted as well."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTS: Final = Counts.__struct_fields__
#: What breaks the promise, whatever is asked; each has an example.
BROKEN: Final = ("lost", "doubled", "disordered")


def client_frame(spark: SparkSession, history: History, ids: dict[str, int]) -> DataFrame:
    """Return what is to be known of each client: column `client`, connects, ends, and since when it is connected."""
    names = list(history.clients)
    table = pa.table(
        {
            "client": pa.array([ids[name] for name in names], pa.int64()),
            "connects": pa.array([history.clients[name].connects for name in names], pa.list_(pa.int64())),
            "last_end": pa.array([max(history.clients[name].ends, default=0) for name in names], pa.int64()),
            "connected": pa.array([history.clients[name].connected for name in names], pa.int64()),
        }
    )
    return f.broadcast(spark.createDataFrame(table))


def classified(
    paired: DataFrame,
    clients: DataFrame,
    gaps: list[Gap],
    *,
    start: int,
    end: int,
    archive_end: int,
    late: float | None,
) -> DataFrame:
    """Return one row for each client, topic and QoS.

    It has the `Counts`, the slowest delivery, and the first row of each breach. Judged is what was published from `start`
    to before `end`. Times in microseconds, `late` in seconds.
    """
    col, when = f.col, f.when
    judged = f.coalesce(col("in_received"), col("out_received")).between(start, end - 1)
    found = paired.where(judged).join(clients, "client", "left")
    came, wanted = col("out_sequence").isNotNull(), col("in_sequence").isNotNull()
    arrived = came & (col("fate") == ARRIVED)
    absent = wanted & ~came
    again = arrived & ~wanted & (col("k") > 1)
    # A row that is missing may be the delivery (after the publication), or the publication (before the delivery).
    obscured = col("in_received") <= f.lit(max((gap.end for gap in gaps), default=-1))
    unsure = _any([col("out_received").between(gap.start, gap.end) for gap in gaps])
    grace = int((PATIENCE if late is None else late) * 1_000_000)
    under_way = archive_end - f.greatest(col("in_settled"), f.coalesce(col("connected"), f.lit(0))) < grace
    overtaken = f.coalesce(col("latest") > col("in_sequence"), f.lit(False))
    absence = (
        when(col("in_qos") == 0, "missing")
        .when(f.coalesce(col("last_end"), f.lit(0)) >= col("in_received"), "ended")
        .when(obscured, "unknown")
        .when(~overtaken & (col("connected").isNull() | under_way), "pending")
        .otherwise("lost")
    )
    kind = (
        when(absent, absence)
        .when(again & unsure, "unknown")
        .when(again, when(col("out_qos") == 1, "repeated").otherwise("doubled"))
        .when(~wanted, "unmatched")
        .when(arrived, "delivered")
        .when(col("fate") == DEAD_LETTERED, "dead_lettered")
        .when(col("fate") == DISCARDED, "discarded")
    )
    there = f.coalesce(
        f.array_max(f.filter("connects", lambda one: one <= col("out_settled"))), col("in_settled")
    )
    taken = when(arrived & wanted, col("out_settled") - col("in_settled"))
    limit = NEVER if late is None else int(late * 1_000_000)
    # The filter over the connections is worked out for those that were slow only.
    slow = when(taken > limit, col("out_settled") - f.greatest(there, col("in_settled")) > limit).otherwise(False)
    marked = found.select(
        "client",
        "topic",
        "qos",
        kind.alias("kind"),
        (wanted & (col("rank") == REQUIRED)).alias("expected"),
        f.coalesce(slow, f.lit(False)).alias("late"),
        f.coalesce(arrived & (col("rank") <= FIRST) & (col("overtaken_by") > col("in_sequence")), f.lit(False)).alias(
            "disordered"
        ),
        taken.alias("taken"),
        f.coalesce("out_sequence", "in_sequence").alias("row"),
    )
    apart = ("expected", "late", "disordered")
    counted = [f.sum(col(name).cast("long")).alias(name) for name in apart]
    counted += [f.count_if(col("kind") == name).alias(name) for name in COUNTS if name not in apart]
    firsts = [
        f.min(when(col("disordered") if name == "disordered" else col("kind") == name, col("row"))).alias(f"first_{name}")
        for name in BROKEN
    ]
    return marked.groupBy("client", "topic", "qos").agg(*counted, *firsts, f.max("taken").alias("slowest"))


def _any(conditions: list[Column]) -> Column:
    found = f.lit(False)
    for condition in conditions:
        found = found | condition
    return found
