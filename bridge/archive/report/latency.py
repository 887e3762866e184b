"""How long deliveries took: percentiles, from counts of times that are rounded, so that there are few of them."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bridge.archive.report.section import Section
from bridge.archive.report.sums import Sums
from bridge.archive.schema import Direction, Outcome

ARRIVED: Final = (str(Outcome.DELIVERED), str(Outcome.ACKNOWLEDGED))
PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
#: Digits of a time, in microseconds, that are kept.
DIGITS: Final = 4


class Latency:
    """Times from the put until the client has acknowledged it (QoS 0: until it is written).

    The time while the client was away is included.
    """

    def __init__(self) -> None:
        self._counts = Sums(["qos", "taken"], ["messages"])
        self._longest: dict[int, int] = {}

    def add(self, messages: Any) -> None:
        """Take in the deliveries among these rows of an archive."""
        arrived = pc.is_in(messages["outcome"], pa.array(ARRIVED))
        out = pc.and_(pc.equal(messages["direction"], str(Direction.OUT)), pc.invert(messages["retain"]))
        rows = messages.filter(pc.and_(arrived, out))
        taken = pc.max_element_wise(pc.subtract(rows["settled"], rows["received"]), 0)
        ones = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
        self._counts.add(pa.table({"qos": rows["qos"], "taken": _rounded(taken), "messages": ones}))
        longest = pa.table({"qos": rows["qos"], "taken": taken}).group_by("qos").aggregate([("taken", "max")])
        for one in longest.to_pylist():
            self._longest[one["qos"]] = max(one["taken_max"], self._longest.get(one["qos"], 0))

    def section(self) -> Section:
        """Return the percentiles by QoS."""
        rows = []
        counts = self._counts.rows()
        for qos, longest in sorted(self._longest.items()):
            own = sorted((one["taken"], one["messages"]) for one in counts if one["qos"] == qos)
            found = [min(_percentile(own, part), longest) / 1000 for part in PERCENTILES]
            rows.append([qos, sum(count for _, count in own), *found, longest / 1000])
        names = [f"p{part * 100:g}" for part in PERCENTILES]
        title = "Milliseconds from put to acknowledgement (QoS 0: until written), by QoS"
        return Section("latency", title, ["qos", "messages", *names, "longest"], rows, names[:3], "ms")


def _rounded(times: Any) -> Any:
    """Return times with DIGITS digits."""
    digits = pc.add(pc.floor(pc.log10(pc.max_element_wise(times, 1).cast(pa.float64()))), 1)
    unit = pc.power(10.0, pc.max_element_wise(pc.subtract(digits, DIGITS), 0.0)).cast(pa.int64())
    return pc.multiply(pc.divide(pc.add(times, pc.divide(unit, 2)), unit), unit)


def _percentile(counts: list[tuple[int, int]], part: float) -> int:
    """Return the least time that this part of the messages did not exceed."""
    left = part * sum(count for _, count in counts)
    for taken, count in counts:
        left -= count
        if left <= 1e-6:
            return taken
    return counts[-1][0]
