"""What mappings took, and what became of it: counted for each mapping. It breaks no promise to a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import Window
from pyspark.sql import functions as f

from bridge.archive.history import NEVER
from bridge.archive.schema import Direction, Outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: It came where the mapping sends it.
ARRIVED: Final = (str(Outcome.PUT), str(Outcome.ACKNOWLEDGED), str(Outcome.DELIVERED))


class MappingCounts(msgspec.Struct):
    """The messages of one mapping, counted; `slowest` in seconds from when it was put or came to its commit."""

    mapping: str
    #: in units of work that were committed
    taken: int = 0
    #: put to MQ, or published to a link
    put: int = 0
    dead_lettered: int = 0
    #: not for the mapping, cut because it had come round, or given up where it is sent once at most
    discarded: int = 0
    #: of those put: again. The same MsgId from MQ; from a link the same publisher, message id, topic and payload, with DUP
    doubled: int = 0
    #: of those put: later than allowed
    late: int = 0
    slowest: float | None = None


def mapped(rows: DataFrame, *, start: int, end: int, late: float | None) -> list[MappingCounts]:
    """Return the counts of messages that were put, or came, from `start` to before `end`.

    `start` and `end` are in microseconds; `late` is a limit in seconds.
    """
    col = f.col
    taken = rows.where((col("direction") == Direction.MAPPED) & col("received").between(start, end - 1))
    by_id = col("msg_id").isNotNull()
    identity = f.when(by_id, f.xxhash64("client_id", "msg_id")).when(
        col("times_sent") > 0, f.xxhash64("client_id", "publisher", "publisher_message_id", "topic", "payload_hash")
    )
    arrived = col("outcome").isin(*ARRIVED)
    time = col("settled") - col("received")
    place = f.row_number().over(Window.partitionBy("client_id", "identity", "arrived").orderBy("sequence"))
    limit = NEVER if late is None else int(late * 1_000_000)
    marked = taken.select(
        "client_id", "sequence", "outcome", identity.alias("identity"), arrived.alias("arrived"), time.alias("time"),
        # Message ids come again and again: without DUP it is another message.
        (by_id | ((col("publisher_message_id") > 0) & (col("times_sent") > 1))).alias("may_be_again"),
    ).withColumn("again", (place > 1) & col("may_be_again"))  # fmt: skip
    counted = marked.groupBy("client_id").agg(
        f.count("*").alias("taken"),
        f.count_if(col("arrived")).alias("put"),
        f.count_if(col("outcome") == Outcome.DEAD_LETTERED).alias("dead_lettered"),
        f.count_if(col("outcome").isin(str(Outcome.DISCARDED), str(Outcome.REFUSED))).alias("discarded"),
        f.count_if(col("arrived") & col("again")).alias("doubled"),
        f.count_if(col("arrived") & (col("time") > limit)).alias("late"),
        f.max(f.when(col("arrived"), col("time"))).alias("slowest"),
    )
    found = []
    for one in counted.orderBy("client_id").toArrow().to_pylist():
        slowest = one.pop("slowest")
        found.append(MappingCounts(one.pop("client_id"), **one, slowest=None if slowest is None else slowest / 1_000_000))
    return found
