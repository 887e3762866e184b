"""What had to be delivered and what was, as rows of numbers.

A publication (row `in`) is expected by each client whose subscriptions name its topic. A delivery (row `out`) belongs to it
when client, publisher, topic, message id of the publisher and hash of the payload agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.audit.names import Names
from bridge.archive.division import place_of
from bridge.archive.filter_tree import FilterTree
from bridge.archive.history import Interval
from bridge.archive.schema import Direction, Outcome

#: What an expected delivery and an actual one have in common.
SAME: Final = ("client", "publisher", "topic", "message_id", "payload_hash")
#: What goes one way, and has to stay in order.
FLOW: Final = ("client", "publisher", "topic")
#: The column `side`.
EXPECTED, DELIVERED = 0, 1
#: The column `fate`: what became of a delivery.
ARRIVED, DEAD_LETTERED, DISCARDED = 0, 1, 2
#: The column `rank` of an expected delivery: it has to take place; it may, as the first of its publication. Further ones
#: have greater ranks.
REQUIRED, FIRST = 0, 1

#: Columns of the archive that are needed.
COLUMNS: Final = (
    "direction", "outcome", "client_id", "topic", "qos", "retain", "payload_hash", "publisher", "publisher_message_id",
    "replayed", "sequence", "received", "settled",
)  # fmt: skip
_TIMES: Final = ("sequence", "received", "settled")
_SCHEMA: Final = pa.schema(
    [(name, pa.int64()) for name in (*SAME, "place", "side", "rank", "qos", "fate", *_TIMES)]
)
_MATCH: Final = ("client", "granted", "possible_from", "certain_from", "certain_to", "possible_to")
#: Most rows of publication and subscription that are looked at together.
_MOST: Final = 500_000
#: Topics whose subscriptions are remembered.
_REMEMBERED: Final = 50_000


class Deliveries:
    """Reads rows of the archive as deliveries, given the subscriptions by topic filter."""

    def __init__(self, subscriptions: FilterTree[Interval], names: Names) -> None:
        self._subscriptions = subscriptions
        self._names = names
        #: topic -> rows of _MATCH
        self._found: dict[int, list[tuple[int, ...]]] = {}

    def expected(self, rows: Any) -> Iterator[Any]:
        """Yield a row for each delivery that the publications among these rows allow."""
        direction, outcome = rows["direction"], rows["outcome"]
        put = rows.filter(pc.and_(pc.equal(direction, str(Direction.IN)), pc.equal(outcome, str(Outcome.PUT))))
        if put.num_rows:
            yield from self._expected(pa.table(self._common(put)))

    def delivered(self, rows: Any) -> Any:
        """Return the deliveries among these rows that left for clients because of a publication of a client.

        They are acknowledged, written, or accounted for otherwise.
        """
        out = pc.and_(pc.equal(rows["direction"], str(Direction.OUT)), pc.invert(rows["retain"]))
        out = pc.and_(out, pc.and_(pc.not_equal(rows["publisher"], ""), pc.is_null(rows["replayed"])))
        rows = rows.filter(out)
        found = self._common(rows) | {
            "client": self._names.numbers(rows["client_id"]),
            "fate": pc.case_when(
                pc.make_struct(
                    pc.equal(rows["outcome"], str(Outcome.DEAD_LETTERED)), pc.equal(rows["outcome"], str(Outcome.DISCARDED))
                ),
                pa.scalar(DEAD_LETTERED, pa.int64()),
                pa.scalar(DISCARDED, pa.int64()),
                pa.scalar(ARRIVED, pa.int64()),
            ),
        }
        return _table(found, side=DELIVERED, rank=0)

    def _common(self, rows: Any) -> dict[str, Any]:
        """Return the columns that deliveries have of a publication and of an actual one."""
        return {
            "publisher": self._names.numbers(rows["publisher"]),
            "topic": self._names.numbers(rows["topic"]),
            "message_id": rows["publisher_message_id"].cast(pa.int64()),
            **{name: rows[name] for name in ("payload_hash", "qos", *_TIMES)},
        }

    def _expected(self, put: Any) -> Iterator[Any]:
        topics = pc.value_counts(put["topic"]).to_pylist()
        matches = [self._matches(one["values"]) for one in topics]
        count = sum(one["counts"] * len(found) for one, found in zip(topics, matches, strict=True))
        half = put.num_rows // 2
        if count > _MOST and half:
            yield from self._expected(put.slice(0, half))
            yield from self._expected(put.slice(half))
        elif count:
            intervals = pa.table([*zip(*(one for found in matches for one in found), strict=True)], _MATCH)
            offsets = pa.array(itertools.accumulate(map(len, matches), initial=0), pa.int32())
            by_topic = pa.ListArray.from_arrays(offsets, pa.array(range(intervals.num_rows), pa.int64()))
            place = pc.index_in(put["topic"], pa.array([one["values"] for one in topics], pa.int64()))
            found = by_topic.take(place.combine_chunks())
            of = intervals.take(pc.list_flatten(found))
            joined = put.take(pc.list_parent_indices(found))
            for name in _MATCH:
                joined = joined.append_column(name, of[name])
            yield from _copies(_by_client(joined))

    def _matches(self, topic: int) -> list[tuple[int, ...]]:
        """Return client, QoS granted, and times of each subscription that names a topic."""
        found = self._found.get(topic)
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            found = self._found[topic] = [
                (self._names.number(one.client_id), one.qos, *(getattr(one, name) for name in _MATCH[2:]))
                for one in self._subscriptions.find(self._names.names[topic])
            ]
        return found


def _by_client(joined: Any) -> Any:
    """Return one row for each publication and client, of one for each subscription."""
    received, settled = joined["received"], joined["settled"]
    possible = pc.and_(
        pc.greater_equal(settled, joined["possible_from"]), pc.less_equal(received, joined["possible_to"])
    )
    certain = pc.and_(pc.greater(received, joined["certain_from"]), pc.less(settled, joined["certain_to"]))
    granted = pc.if_else(certain, joined["granted"], None)
    joined = joined.append_column("certain", certain).append_column("certainly_granted", granted).filter(possible)
    own = ("publisher", "topic", "message_id", "payload_hash", "qos", "received", "settled")
    sums = [("certain", "any"), ("certain", "count"), ("granted", "max"), ("certainly_granted", "max")]
    found = joined.group_by(["sequence", "client"]).aggregate([*((name, "max") for name in own), *sums])
    granted = pc.coalesce(found["certainly_granted_max"], found["granted_max"])
    columns = {name: found[f"{name}_max"] for name in own} | {
        "sequence": found["sequence"],
        "client": found["client"],
        "qos": pc.min_element_wise(found["qos_max"], granted),
        "required": found["certain_any"],
        "copies": found["certain_count"],
    }
    return pa.table(columns)


def _copies(found: Any) -> Iterator[Any]:
    """Yield the deliveries that are to come to each client.

    A client with several subscriptions for a topic gets one delivery, and may get one for each (MQTT-3.3.5-1).
    """
    for copy in range(1, (pc.max(found["copies"]).as_py() or 0) + 1):
        one = found.filter(pc.greater_equal(found["copies"], copy))
        # Required ones first: what was delivered is theirs.
        rank = pc.if_else(one["required"], REQUIRED if copy == FIRST else copy, copy).cast(pa.int64())
        yield _table({name: one[name] for name in one.column_names} | {"rank": rank}, side=EXPECTED, fate=None)


def _table(columns: dict[str, Any], **constants: int | None) -> Any:
    count = len(columns["sequence"])
    made = {name: pa.repeat(pa.scalar(value, pa.int64()), count) for name, value in constants.items()}
    made |= columns | {"place": place_of(*(columns[name] for name in SAME))}
    return pa.table([made[field.name] for field in _SCHEMA], schema=_SCHEMA)
