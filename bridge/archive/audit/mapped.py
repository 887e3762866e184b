"""What mappings took, and what became of it: counted for each mapping. It breaks no promise to a client."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.division import PLACE_BITS, Division
from bridge.archive.schema import Direction, Outcome

#: It came where the mapping sends it.
ARRIVED: Final = (str(Outcome.PUT), str(Outcome.ACKNOWLEDGED), str(Outcome.DELIVERED))
#: Columns of the archive that are needed.
COLUMNS: Final = (
    "direction", "outcome", "client_id", "topic", "times_sent", "payload_hash", "publisher", "publisher_message_id",
    "sequence", "received", "settled", "msg_id",
)  # fmt: skip


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


class Mapped:
    """Counts the messages that were put, or came, from `start` to before `end`.

    `start` and `end` are in microseconds; `late` is a limit in seconds.
    """

    def __init__(self, division: Division, *, start: int, end: int, late: float | None) -> None:
        self._division = division
        self._start, self._end = start, end
        self._limit = None if late is None else int(late * 1_000_000)
        self._counts: dict[str, MappingCounts] = {}

    def add(self, rows: Any) -> None:
        """Count the rows of mappings among these."""
        wanted = pc.and_(pc.greater_equal(rows["received"], self._start), pc.less(rows["received"], self._end))
        taken = rows.filter(pc.and_(wanted, pc.equal(rows["direction"], str(Direction.MAPPED))))
        if not taken.num_rows:
            return
        outcome = taken["outcome"]
        arrived = pc.is_in(outcome, pa.array(ARRIVED))
        time = pc.if_else(arrived, pc.subtract(taken["settled"], taken["received"]), None)
        columns = {
            "mapping": taken["client_id"],
            "put": arrived,
            "dead_lettered": pc.equal(outcome, str(Outcome.DEAD_LETTERED)),
            "discarded": pc.is_in(outcome, pa.array([str(Outcome.DISCARDED), str(Outcome.REFUSED)])),
            "late": pc.greater(time, self._limit),
            "time": time,
        }
        names = [name for name, column in columns.items() if pa.types.is_boolean(column.type)]
        sums = [*((name, "sum") for name in names), ("mapping", "count"), ("time", "max")]
        for one in pa.table(columns).group_by("mapping").aggregate(sums).to_pylist():
            counts = self._of(one["mapping"])
            counts.taken += one["mapping_count"]
            for name in names:
                setattr(counts, name, getattr(counts, name) + (one[f"{name}_sum"] or 0))
            if one["time_max"] is not None:
                slowest = one["time_max"] / 1_000_000
                counts.slowest = slowest if counts.slowest is None else max(slowest, counts.slowest)
        self._division.add(_identified(taken.filter(arrived)))

    def counts(self) -> list[MappingCounts]:
        """Return the counts by the name of the mapping; nothing may be added any more."""
        for rows in self._division.tables():
            rows = rows.sort_by([(name, "ascending") for name in ("mapping", "identity", "sequence")]).combine_chunks()
            mapping, identity = rows["mapping"].combine_chunks(), rows["identity"].combine_chunks()
            count = len(mapping) - 1
            same = [pc.equal(one.slice(1), one.slice(0, count)) for one in (mapping, identity)]
            again = rows.slice(1).filter(pc.and_(pc.and_(*same), rows["may_be_again"].combine_chunks().slice(1)))
            for one in pc.value_counts(again["mapping"]).to_pylist():
                self._of(one["values"]).doubled += one["counts"]
        return [counts for _, counts in sorted(self._counts.items())]

    def _of(self, mapping: str) -> MappingCounts:
        return self._counts.setdefault(mapping, MappingCounts(mapping))


def _identified(rows: Any) -> Any:
    """Return the rows with what makes them the same message; the rest of those without it are left out."""
    by_id = rows["msg_id"].is_valid()
    rows = rows.filter(pc.or_(by_id, pc.greater(rows["times_sent"], 0)))
    by_id = rows["msg_id"].is_valid()
    number, digest = (rows[name].cast(pa.string()) for name in ("publisher_message_id", "payload_hash"))
    # U+0000 is in no string of MQTT (MQTT-1.5.3-2).
    words = pc.binary_join_element_wise(rows["publisher"], number, digest, rows["topic"], "\0").cast(pa.binary())
    identity = pc.coalesce(rows["msg_id"], words)
    places = [hash(one) % 2**PLACE_BITS for one in identity.to_pylist()]
    # Message ids come again and again: without DUP it is another message.
    dup = pc.and_(pc.greater(rows["publisher_message_id"], 0), pc.greater(rows["times_sent"], 1))
    return pa.table(
        {
            "mapping": rows["client_id"],
            "identity": identity,
            "sequence": rows["sequence"],
            "may_be_again": pc.or_(by_id, dup),
            "place": pa.array(places, pa.int64()),
        }
    )
