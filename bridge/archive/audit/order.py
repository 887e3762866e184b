"""Whether what went one way came in order: deliveries by when they came, however many there are of one publisher."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.audit.deliveries import FLOW
from bridge.archive.audit.pairing import begins
from bridge.archive.division import Division, place_of

_KEYS: Final = [*FLOW, "qos"]
_COLUMNS: Final = [*_KEYS, "in_sequence", "out_sequence", "judged"]
#: Above the number of rows that are looked at together.
_WIDE: Final = 2**32

Flow = tuple[int, ...]


class Order:
    """The order of messages with one client, publisher, topic and QoS.

    `first` and `last` are the numbers of the first and the last delivery. At most `most` rows are in memory, and a number for
    each flow. Use it in a `with` statement. Raises OSError.
    """

    def __init__(self, most: int, first: int, last: int) -> None:
        self._first = first
        self._arrived = Division(most, bits=(last - first).bit_length())
        self._waiting = Division(most)
        self._opened = contextlib.ExitStack()
        #: the greatest number of a publication that has come
        self._latest: dict[Flow, int] = {}

    def __enter__(self) -> Order:
        self._opened.enter_context(self._arrived)
        self._opened.enter_context(self._waiting)
        return self

    def __exit__(self, *exception: object) -> None:
        self._opened.close()

    def add(self, judged: Any) -> None:
        """Take in rows of `Verdict.judged`."""
        # Further copies of one publication may come at any time (MQTT-3.3.5-1): they are not `ordered`.
        rows = judged.filter(judged["ordered"]).select(_COLUMNS)
        self._arrived.add(rows.append_column("place", pc.subtract(rows["out_sequence"], self._first)))
        rows = judged.filter(pc.and_(judged["judged"], pc.equal(judged["kind"], "pending"))).select(_COLUMNS)
        self._waiting.add(rows.append_column("place", place_of(rows["in_sequence"])))

    def disordered(self) -> Iterator[dict[str, Any]]:
        """Yield client, topic, QoS, `count` and first `row` of those that came behind a later one of their flow."""
        for rows in self._arrived.tables():
            found = self._behind(rows)
            found = found.group_by(["client", "topic", "qos"]).aggregate([("out_sequence", "count"), ("out_sequence", "min")])
            yield from found.rename_columns(["client", "topic", "qos", "count", "row"]).to_pylist()

    def overtaken(self) -> Iterator[dict[str, Any]]:
        """Yield the same of those that seem to wait, and a later one of their flow has come. To be called last."""
        for rows in self._waiting.tables():
            found: dict[Flow, list[int]] = defaultdict(list)
            columns = [rows[name].to_pylist() for name in (*_KEYS, "in_sequence")]
            for client, publisher, topic, qos, number in zip(*columns, strict=True):
                if self._latest.get((client, publisher, topic, qos), -1) > number:
                    found[client, topic, qos].append(number)
            for (client, topic, qos), numbers in found.items():
                yield {"client": client, "topic": topic, "qos": qos, "count": len(numbers), "row": min(numbers)}

    def _behind(self, rows: Any) -> Any:
        """Return those of the rows that came behind a later one, given what came before all of these rows."""
        latest = rows.group_by(_KEYS).aggregate([("in_sequence", "max")])
        flows = list(zip(*(latest[name].to_pylist() for name in _KEYS), strict=True))
        before = [(*flow, self._latest[flow], -1, False) for flow in flows if flow in self._latest]
        for flow, number in zip(flows, latest["in_sequence_max"].to_pylist(), strict=True):
            self._latest[flow] = max(number, self._latest.get(flow, number))
        rows = rows.select(_COLUMNS)
        if before:
            columns = zip(*before, strict=True)
            known = [pa.array(column, field.type) for column, field in zip(columns, rows.schema, strict=True)]
            rows = pa.concat_tables([pa.table(known, schema=rows.schema), rows])
        rows = rows.sort_by([(name, "ascending") for name in (*_KEYS, "out_sequence")]).combine_chunks()
        group = pc.cumulative_sum(begins(rows, _KEYS).cast(pa.int64()))
        # In the place of a number its rank, above it the flow: what came in another flow before is less than any of this.
        rank = pc.rank(rows["in_sequence"].combine_chunks(), tiebreaker="dense").cast(pa.int64())
        code = pc.add(pc.multiply(group, _WIDE), rank)
        greatest = pa.concat_arrays([pa.array([0]), pc.cumulative_max(code)]).slice(0, len(code))
        return rows.filter(pc.and_(pc.greater(greatest, code), rows["judged"].combine_chunks()))
