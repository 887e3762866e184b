"""Pairs of what had to be delivered and what was: one Spark plan over the whole archive, joined by key.

A publication (row `in`) is expected by each client whose subscriptions name its topic. A delivery (row `out`) belongs to it
when client, publisher, topic, message id of the publisher and hash of the payload agree; of several alike the first belongs
to the first. All strings are replaced by 64-bit hashes on the way, so that rows are short and sorting is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as f

from bridge.archive.filter_tree import FilterTree
from bridge.archive.history import Interval
from bridge.archive.schema import Direction, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

_INTERVAL: Final = pa.struct(
    [(name, pa.int64()) for name in ("qos", "possible_from", "certain_from", "certain_to", "possible_to")]
)
_MATCHES: Final = pa.schema([("topic", pa.string()), ("client", pa.int64()), ("intervals", pa.list_(_INTERVAL))])
#: Most rows of the table topic x client that each executor gets as a whole.
BROADCAST_ROWS: Final = 500_000

#: The column `fate`: what became of a delivery.
ARRIVED, DEAD_LETTERED, DISCARDED = 0, 1, 2
#: The column `rank` of an expected delivery: it has to take place; it may, as the first of its publication. Further ones
#: have greater ranks.
REQUIRED, FIRST = 0, 1
_EXPECTED, _DELIVERED = 0, 1
_SAME: Final = ("client", "key", "payload_hash")


def hash_of(*columns: str) -> Column:
    """Return the hash that stands for strings."""
    return f.xxhash64(*columns)


def matches(
    spark: SparkSession, topics: Iterable[str], tree: FilterTree[Interval], clients: dict[str, int]
) -> DataFrame:
    """Return topic, client that subscribed to it at any time, and its subscriptions; each topic is looked up once."""
    found: dict[str, list[Any]] = {name: [] for name in _MATCHES.names}
    for topic in topics:
        of_clients: dict[str, list[dict[str, int]]] = {}
        for one in tree.find(topic):
            of_clients.setdefault(one.client_id, []).append(
                {name: getattr(one, name) for name in _INTERVAL.names}
            )
        for client_id, intervals in of_clients.items():
            found["topic"].append(topic)
            found["client"].append(clients[client_id])
            found["intervals"].append(intervals)
    table = pa.table(found, schema=_MATCHES)
    frame = spark.createDataFrame(table)
    return f.broadcast(frame) if table.num_rows <= BROADCAST_ROWS else frame


def expected(rows: DataFrame, matched: DataFrame) -> DataFrame:
    """Return one row for each delivery that the publications in `rows` allow; `required` where it has to take place.

    A client with several subscriptions for a topic gets one delivery, and may get one for each (MQTT-3.3.5-1).
    """
    put = rows.where((f.col("direction") == Direction.IN) & (f.col("outcome") == Outcome.PUT))
    joined = put.select(
        "topic",
        hash_of("topic").alias("topic_hash"),
        hash_of("publisher", "topic", "publisher_message_id").alias("key"),
        hash_of("publisher", "topic").alias("flow"),
        "payload_hash",
        f.col("qos").cast("int").alias("qos"),
        "sequence",
        "received",
        "settled",
    ).join(matched, "topic")
    certain = f.filter(
        "intervals", lambda one: (f.col("received") > one.certain_from) & (f.col("settled") < one.certain_to)
    )
    possible = f.filter(
        "intervals", lambda one: (f.col("settled") >= one.possible_from) & (f.col("received") <= one.possible_to)
    )
    granted = f.array_max(f.transform(f.when(f.size("certain") > 0, f.col("certain")).otherwise(f.col("possible")),
                                      lambda one: one.qos))  # fmt: skip
    return (
        joined.withColumn("certain", certain)
        .withColumn("possible", possible)
        .where(f.size("possible") > 0)
        .withColumn("qos", f.least(f.col("qos"), granted.cast("int")))
        .withColumn("copy", f.explode(f.sequence(f.lit(1), f.size("possible"))))
        .select(
            *_SAME,
            f.lit(_EXPECTED).alias("side"),
            # Required ones first: what was delivered is theirs.
            f.when((f.size("certain") > 0) & (f.col("copy") == 1), REQUIRED).otherwise(f.col("copy")).alias("rank"),
            "sequence", "received", "settled", "qos", "topic_hash", "flow",
            f.lit(None).cast("long").alias("sent"),
            f.lit(None).cast("int").alias("fate"),
        )
    )  # fmt: skip


def delivered(rows: DataFrame) -> DataFrame:
    """Return the deliveries that left for clients because of a publication of a client.

    They are acknowledged, written, or accounted for otherwise.
    """
    out = rows.where((f.col("direction") == Direction.OUT) & ~f.col("retain") & (f.col("publisher") != ""))
    return out.where(f.col("replayed").isNull()).select(
        hash_of("client_id").alias("client"),
        hash_of("publisher", "topic", "publisher_message_id").alias("key"),
        "payload_hash",
        f.lit(_DELIVERED).alias("side"),
        f.lit(0).alias("rank"),
        "sequence",
        "received",
        "settled",
        f.col("qos").cast("int").alias("qos"),
        hash_of("topic").alias("topic_hash"),
        hash_of("publisher", "topic").alias("flow"),
        "sent",
        f.when(f.col("outcome") == Outcome.DEAD_LETTERED, DEAD_LETTERED)
        .when(f.col("outcome") == Outcome.DISCARDED, DISCARDED)
        .otherwise(ARRIVED)
        .alias("fate"),
    )


def pairs(wanted: DataFrame, came: DataFrame) -> DataFrame:
    """Return expected and actual deliveries side by side, the k-th with the k-th; what has no partner stands alone.

    Columns of the publication are called in_…, those of the delivery out_…. `overtaken_by` is the greatest sequence of a
    publication of the same publisher, topic and QoS that the client got before this one, `latest` of all that it got.
    """
    both = wanted.unionByName(came).repartition(*_SAME)
    alike = Window.partitionBy(*_SAME, "side").orderBy("rank", "sequence")
    numbered = both.withColumn("k", f.row_number().over(alike))

    def of(side: int, name: str) -> Column:
        return f.max(f.when(f.col("side") == side, f.col(name)))

    paired = numbered.groupBy(*_SAME, "k").agg(
        f.max("topic_hash").alias("topic"),
        f.max("flow").alias("flow"),
        of(_EXPECTED, "rank").alias("rank"),
        of(_EXPECTED, "sequence").alias("in_sequence"),
        of(_EXPECTED, "received").alias("in_received"),
        of(_EXPECTED, "settled").alias("in_settled"),
        of(_EXPECTED, "qos").alias("in_qos"),
        of(_DELIVERED, "sequence").alias("out_sequence"),
        of(_DELIVERED, "received").alias("out_received"),
        of(_DELIVERED, "sent").alias("out_sent"),
        of(_DELIVERED, "settled").alias("out_settled"),
        of(_DELIVERED, "qos").alias("out_qos"),
        of(_DELIVERED, "fate").alias("fate"),
    )
    # What may come and did not come says nothing.
    paired = paired.where(f.col("out_sequence").isNotNull() | (f.col("rank") == REQUIRED))
    paired = paired.withColumn("qos", f.coalesce("out_qos", "in_qos"))
    order = Window.partitionBy("client", "flow", "qos").orderBy("out_sequence")
    # Further copies of one publication may come at any time (MQTT-3.3.5-1).
    arrived = f.when((f.col("fate") == ARRIVED) & (f.col("rank") <= FIRST), f.col("in_sequence"))
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    whole = order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return paired.select(
        "*", f.max(arrived).over(before).alias("overtaken_by"), f.max(arrived).over(whole).alias("latest")
    )
