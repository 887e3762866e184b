"""Pairs of what had to be delivered and what was: of several alike the first belongs to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.audit.deliveries import ARRIVED, DELIVERED, EXPECTED, FIRST, FLOW, REQUIRED, SAME

#: Columns of a side that are not those of the other.
_OWN: Final = {
    EXPECTED: ("in", ("rank", "sequence", "received", "settled", "qos")),
    DELIVERED: ("out", ("sequence", "received", "settled", "qos", "fate")),
}
#: Above the number of rows that are looked at together.
_WIDE: Final = 2**32


def pairs(deliveries: Any) -> Any:
    """Return expected and actual deliveries side by side, the k-th with the k-th; what has no partner stands alone.

    Columns of the publication are called in_…, those of the delivery out_…. `disordered` is whether the client got a later
    publication of the same publisher, topic and QoS before this one, `overtaken` whether it got a later one at all.
    """
    alike = [*SAME, "side"]
    rows = deliveries.sort_by([(name, "ascending") for name in (*alike, "rank", "sequence")])
    rows = rows.append_column("k", _number_within(rows, alike))
    expected, delivered = (
        rows.filter(pc.equal(rows["side"], side))
        .select([*SAME, "k", *own])
        .rename_columns([*SAME, "k", *(f"{prefix}_{name}" for name in own)])
        for side, (prefix, own) in _OWN.items()
    )
    paired = expected.join(delivered, [*SAME, "k"], join_type="full outer")
    # What may come and did not come says nothing.
    required = pc.equal(paired["in_rank"], REQUIRED).fill_null(False)
    paired = paired.filter(pc.or_(paired["out_sequence"].is_valid(), required))
    paired = paired.append_column("qos", pc.coalesce(paired["out_qos"], paired["in_qos"]))
    return _in_order(paired)


def _in_order(paired: Any) -> Any:
    """Return the pairs with what the order of the deliveries says."""
    flow = [*FLOW, "qos"]
    rows = paired.sort_by([(name, "ascending") for name in (*flow, "out_sequence")]).combine_chunks()
    group = pc.cumulative_sum(_begins(rows, flow).cast(pa.int64()))
    # In the place of a sequence its rank, and before it the flow: what went before in another flow is less than any of this.
    least = pc.multiply(group, _WIDE)
    code = pc.add(least, pc.rank(rows["in_sequence"].combine_chunks(), tiebreaker="dense").cast(pa.int64()))
    # Further copies of one publication may come at any time (MQTT-3.3.5-1).
    counts = pc.and_(pc.equal(rows["out_fate"], ARRIVED), pc.less_equal(rows["in_rank"], FIRST)).fill_null(False)
    came = pc.if_else(counts, code, least).combine_chunks()
    before = pa.concat_arrays([pa.array([0]), pc.cumulative_max(came)]).slice(0, len(came))
    latest = pa.table({"group": group, "came": came}).group_by("group", use_threads=False).aggregate([("came", "max")])
    known = rows["in_sequence"].is_valid()
    return rows.append_column("disordered", pc.and_(counts, pc.greater(before, code))).append_column(
        "overtaken", pc.and_(known, pc.greater(latest["came_max"].take(pc.subtract(group, 1)), code))
    )


def _number_within(rows: Any, keys: Sequence[str]) -> Any:
    """Return the number, from 1, of each row among those that agree in the keys and lie together."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    place = pc.cumulative_sum(ones)
    first = pc.cumulative_max(pc.if_else(_begins(rows, keys), place, 0))
    return pc.add(pc.subtract(place, first), 1)


def _begins(rows: Any, keys: Sequence[str]) -> Any:
    """Return of each row whether it is the first of those that agree in the keys and lie together."""
    following = max(rows.num_rows - 1, 0)
    found = pa.repeat(False, following)
    for name in keys:
        column = rows[name].combine_chunks()
        found = pc.or_(found, pc.not_equal(column.slice(1), column.slice(0, following)))
    return pa.concat_arrays([pa.array([True]), found]).slice(0, rows.num_rows)
