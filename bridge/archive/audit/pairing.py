"""Pairs of what had to be delivered and what was: of several alike the first belongs to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.audit.deliveries import DELIVERED, EXPECTED, REQUIRED, SAME

#: Columns of a side that are not those of the other.
_OWN: Final = {
    EXPECTED: ("in", ("rank", "sequence", "received", "settled", "qos")),
    DELIVERED: ("out", ("sequence", "received", "settled", "qos", "fate")),
}


def pairs(deliveries: Any) -> Any:
    """Return expected and actual deliveries side by side, the k-th with the k-th; what has no partner stands alone.

    Columns of the publication are called in_…, those of the delivery out_….
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
    return paired.append_column("qos", pc.coalesce(paired["out_qos"], paired["in_qos"]))


def _number_within(rows: Any, keys: Sequence[str]) -> Any:
    """Return the number, from 1, of each row among those that agree in the keys and lie together."""
    ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    place = pc.cumulative_sum(ones)
    first = pc.cumulative_max(pc.if_else(begins(rows, keys), place, 0))
    return pc.add(pc.subtract(place, first), 1)


def begins(rows: Any, keys: Sequence[str]) -> Any:
    """Return of each row whether it is the first of those that agree in the keys and lie together."""
    following = max(rows.num_rows - 1, 0)
    found = pa.repeat(False, following)
    for name in keys:
        column = rows[name].combine_chunks()
        found = pc.or_(found, pc.not_equal(column.slice(1), column.slice(0, following)))
    return pa.concat_arrays([pa.array([True]), found]).slice(0, rows.num_rows)
