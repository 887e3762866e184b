"""What pairs of expected and actual deliveries say about the promise: QoS 1 at least once, QoS 2 exactly once, in order."""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.audit.deliveries import ARRIVED, DEAD_LETTERED, DISCARDED, FIRST, FLOW, REQUIRED
from bridge.archive.audit.names import Names
from bridge.archive.history import Client, History

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


#: What breaks the promise, whatever is asked; each has an example.
BROKEN: Final = ("lost", "doubled", "disordered")


class Verdict:
    """Judges pairs of what was published from `start` to before `end`.

    `archive_end` is when the archive ends. Times in microseconds, `late` in seconds.
    """

    def __init__(
        self, history: History, names: Names, *, start: int, end: int, archive_end: int, late: float | None
    ) -> None:
        self._gaps = history.gaps
        self._start, self._end, self._archive_end = start, end, archive_end
        self._grace = int((PATIENCE if late is None else late) * 1_000_000)
        self._limit = None if late is None else int(late * 1_000_000)
        # By the number of a name; names of topics have no connections.
        clients = [history.clients.get(name, Client()) for name in names.names]
        self._connects = [sorted(one.connects) for one in clients]
        self._last_end = pa.array([max(one.ends, default=0) for one in clients], pa.int64())
        self._connected = pa.array([one.connected for one in clients], pa.int64())

    def judged(self, pairs: Any) -> Any:
        """Return for each pair its kind, which is one of the `Counts`, and whether it was `expected` and came `late`.

        `judged` is whether it was published in the time that is asked about, `ordered` whether it has to be in order,
        `row` the number of its row, `taken` the microseconds that it took. What is pending may turn out to be lost: when a
        later one has come.
        """
        published = pc.coalesce(pairs["in_received"], pairs["out_received"])
        arrived = pc.equal(pairs["out_fate"], ARRIVED).fill_null(False)
        taken = pc.subtract(pc.if_else(arrived, pairs["out_settled"], None), pairs["in_settled"])
        made = {
            "kind": self._kind(pairs, pairs["in_sequence"].is_valid(), arrived),
            "expected": pc.equal(pairs["in_rank"], REQUIRED).fill_null(False),
            "late": self._late(pairs, taken),
            "judged": pc.and_(pc.greater_equal(published, self._start), pc.less(published, self._end)),
            "ordered": pc.and_(arrived, pc.less_equal(pairs["in_rank"], FIRST).fill_null(False)),
            "row": pc.coalesce(pairs["out_sequence"], pairs["in_sequence"]),
            "taken": taken,
        }
        names = (*FLOW, "qos", "in_sequence", "out_sequence")
        return pa.table({name: pairs[name] for name in names} | made)

    def _kind(self, rows: Any, wanted: Any, arrived: Any) -> Any:
        again = pc.and_(pc.and_(arrived, pc.invert(wanted)), pc.greater(rows["k"], 1))
        absent = pc.is_null(rows["out_sequence"])
        # A row that is missing may be the delivery (after the publication), or the publication (before the delivery).
        obscured = pc.less_equal(rows["in_received"], max((gap.end for gap in self._gaps), default=-1))
        unsure = [
            pc.and_(pc.greater_equal(rows["out_received"], gap.start), pc.less_equal(rows["out_received"], gap.end))
            for gap in self._gaps
        ]
        connected = self._connected.take(rows["client"].combine_chunks())
        since = pc.max_element_wise(rows["in_settled"], connected)
        under_way = pc.less(pc.subtract(self._archive_end, since), self._grace)
        waiting = pc.or_kleene(pc.is_null(connected), under_way)
        ended = pc.greater_equal(self._last_end.take(rows["client"].combine_chunks()), rows["in_received"])
        # The first that is true says it.
        kinds = [
            (pc.and_(absent, pc.equal(rows["in_qos"], 0)), "missing"),
            (pc.and_(absent, ended), "ended"),
            (pc.and_(absent, obscured), "unknown"),
            (pc.and_(absent, waiting), "pending"),
            (absent, "lost"),
            (pc.and_(again, reduce(pc.or_, unsure, pc.is_null(again))), "unknown"),
            (pc.and_(again, pc.equal(rows["out_qos"], 1)), "repeated"),
            (again, "doubled"),
            (pc.invert(wanted), "unmatched"),
            (arrived, "delivered"),
            (pc.equal(rows["out_fate"], DEAD_LETTERED), "dead_lettered"),
            (pc.equal(rows["out_fate"], DISCARDED), "discarded"),
        ]
        return pc.case_when(pc.make_struct(*(which.fill_null(False) for which, _ in kinds)), *(kind for _, kind in kinds))

    def _late(self, rows: Any, taken: Any) -> Any:
        """Return whether it took longer than allowed since the client was there to take it."""
        if self._limit is None:
            return pa.repeat(False, rows.num_rows)
        late = pc.greater(taken, self._limit).fill_null(False).to_pylist()
        # The connections are looked up for those that were slow only.
        slow = rows.filter(pa.array(late, pa.bool_())).select(["client", "in_settled", "out_settled"]).to_pydict()
        verdicts = iter([self._is_late(*one) for one in zip(*slow.values(), strict=True)])
        return pa.array([one and next(verdicts) for one in late], pa.bool_())

    def _is_late(self, client: int, put: int, settled: int) -> bool:
        connects = self._connects[client]
        place = bisect_right(connects, settled)
        there = connects[place - 1] if place else put
        assert self._limit is not None
        return settled - max(there, put) > self._limit


def counted(judged: Any) -> list[dict[str, Any]]:
    """Return for each client, topic, QoS and kind: how many, and of these how many `expected` and `late`.

    `row` is the number of the first row, `slowest` in microseconds.
    """
    sums = [("expected", "sum"), ("late", "sum"), ("row", "count"), ("row", "min"), ("taken", "max")]
    found = judged.filter(judged["judged"]).group_by(["client", "topic", "qos", "kind"]).aggregate(sums)
    names = ["client", "topic", "qos", "kind", "expected", "late", "count", "row", "slowest"]
    return found.rename_columns(names).to_pylist()  # type: ignore[no-any-return]
