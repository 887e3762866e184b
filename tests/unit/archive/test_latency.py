"""Percentiles of times that are stored with few digits."""

from __future__ import annotations

import math
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.archive.database import Database
from bridge.archive.report import PERCENTILES, latency
from bridge.archive.schema import Direction
from bridge.telemetry.outcome import Outcome

TIMES = st.lists(st.one_of(st.integers(-5, 20_000), st.integers(0, 2**45)), min_size=1, max_size=60)
PUT = 10**15


def delivery(time: int, qos: int = 1, **others: Any) -> dict[str, Any]:
    values = {"direction": Direction.OUT, "outcome": Outcome.ACKNOWLEDGED, "retain": False, "qos": qos, "taken": time}
    return values | others


def section(deliveries: list[dict[str, Any]]) -> list[list[Any]]:
    with duckdb.connect() as connection:
        database = Database(connection)
        columns = {
            "direction": "VARCHAR",
            "outcome": "VARCHAR",
            "retain": "BOOLEAN",
            "qos": "TINYINT",
            "taken": "BIGINT",
        }
        database.create_table("rows", columns, [[row[name] for name in columns] for row in deliveries])
        times = f"make_timestamptz({PUT}) AS received, make_timestamptz({PUT} + taken) AS settled"
        database.run(f"CREATE VIEW messages AS SELECT *, {times} FROM rows")
        return latency(database).rows


@given(TIMES)
def test_percentiles_are_accurate_to_a_thousandth(times: list[int]) -> None:
    ((qos, count, *percentiles, longest),) = section([delivery(time) for time in times])
    times = sorted(max(time, 0) for time in times)
    assert (qos, count, longest) == (1, len(times), times[-1] / 1000)
    for part, value in zip(PERCENTILES, percentiles, strict=True):
        assert value * 1000 == pytest.approx(times[math.ceil(part * len(times)) - 1], rel=1e-3, abs=0)


def test_deliveries_are_timed_by_qos() -> None:
    deliveries = [delivery(3_000, 2)] + [delivery(time, 0, outcome=Outcome.DELIVERED) for time in (1_000, 2_000)]
    for other in ({"direction": Direction.IN}, {"outcome": Outcome.DISCARDED}, {"retain": True}):
        deliveries.append(delivery(9_000, 0, **other))
    assert section(deliveries) == [[0, 2, 1.0, 2.0, 2.0, 2.0, 2.0], [2, 1, 3.0, 3.0, 3.0, 3.0, 3.0]]
