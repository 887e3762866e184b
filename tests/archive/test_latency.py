"""Percentiles of times that are kept with few digits."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.archive.report.latency import PERCENTILES, Latency
from bridge.archive.schema import Direction, Outcome

TIMES = st.lists(st.one_of(st.integers(-5, 20_000), st.integers(0, 2**45)), min_size=1, max_size=60)


def table(times: list[int], qos: int = 1, **others: Any) -> pa.Table:
    columns = {"direction": Direction.OUT, "outcome": Outcome.ACKNOWLEDGED, "retain": False, "received": 10**15} | others
    made = {name: [value] * len(times) for name, value in columns.items()}
    return pa.table(made | {"qos": [qos] * len(times), "settled": [10**15 + time for time in times]})


@given(TIMES, st.integers(1, 3))
def test_percentiles_are_right_to_a_thousandth(times: list[int], size: int) -> None:
    latency = Latency()
    for first in range(0, len(times), size):
        latency.add(table(times[first : first + size]))
    ((qos, count, *found, longest),) = latency.section().rows
    times = sorted(max(time, 0) for time in times)
    assert (qos, count, longest) == (1, len(times), times[-1] / 1000)
    for part, value in zip(PERCENTILES, found, strict=True):
        assert value * 1000 == pytest.approx(times[math.ceil(part * len(times)) - 1], rel=1e-3, abs=0)


def test_deliveries_are_timed_by_qos() -> None:
    latency = Latency()
    latency.add(table([3_000], 2))
    latency.add(table([1_000, 2_000], 0, outcome=Outcome.DELIVERED))
    for other in ({"direction": Direction.IN}, {"outcome": Outcome.DISCARDED}, {"retain": True}):
        latency.add(table([9_000], 0, **other))
    assert latency.section().rows == [[0, 2, 1.0, 2.0, 2.0, 2.0, 2.0], [2, 1, 3.0, 3.0, 3.0, 3.0, 3.0]]
