"""The rates of queues, mappings and links, and the ring buffers that contain them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bridge.administration.health import RateSeries, last, mean
from bridge.service.rate_history import COARSE_INTERVAL, FINE, INTERVAL, MAX_OBJECTS, Key, RateHistory, Reading

ORDERS: Key = ("queue", "ORDERS")
#: Start time of all tests.
BEGIN = 1_000_000.0


def history() -> RateHistory:
    return RateHistory(cast("Any", None), cast("Any", None))


def series_of(rates: RateHistory, seconds: float, now: float, rows: int = 10, search: str = "") -> list[RateSeries]:
    return rates.rates(seconds, rows, now, lambda name: search in name).series


def test_rates_are_increases_per_second() -> None:
    """The first one is unknown. A counter that was reset has rate 0."""
    rates = history()
    for step, (puts, gets) in enumerate([(0, 0), (30, 15), (60, 60), (15, 60)]):
        rates.add(BEGIN + step * 15, {ORDERS: Reading(puts, gets, puts - gets)})
    (orders,) = series_of(rates, 600, BEGIN + 45)
    assert orders.incoming == [None, 2.0, 2.0, 0.0]
    assert orders.outgoing == [None, 1.0, 3.0, 0.0]
    assert orders.depth == [0.0, 15.0, 0.0, -45.0]
    assert (last(orders.incoming), mean(orders.outgoing)) == (0.0, 4 / 3)


def test_objects_appear_and_disappear() -> None:
    rates = history()
    rates.add(BEGIN, {ORDERS: Reading(0, 0)})
    rates.add(BEGIN + 15, {("link", "plant"): Reading(0, 0)})
    rates.add(BEGIN + 30, {ORDERS: Reading(9, 9), ("link", "plant"): Reading(15, 0)})
    orders, plant = series_of(rates, 600, BEGIN + 30)
    # It is unknown when the queue was filled.
    assert orders.incoming == [None, None, None]
    assert plant.incoming == [None, None, 1.0]


def test_samples_older_than_the_range_are_left_out() -> None:
    rates = history()
    for step in range(100):
        rates.add(BEGIN + step * INTERVAL, {ORDERS: Reading(step * 15, 0)})
    now = BEGIN + 99 * INTERVAL
    (orders,) = series_of(rates, 600, now)
    assert len(orders.incoming) == 41
    assert series_of(rates, 60, now + 3_600) == []


@pytest.mark.parametrize("seconds", [3_600, 86_400])
def test_a_day_is_kept(seconds: float) -> None:
    rates = history()
    steps = int(90_000 / INTERVAL)
    for step in range(steps):
        rates.add(BEGIN + step * INTERVAL, {ORDERS: Reading(step * 15, 0)})
    now = BEGIN + (steps - 1) * INTERVAL
    (orders,) = series_of(rates, seconds, now)
    interval = INTERVAL if seconds == 3_600 else COARSE_INTERVAL
    assert abs(len(orders.incoming) - (seconds / interval + 1)) <= 1
    assert set(orders.incoming[1:]) == {1.0}


def test_a_removed_object_is_forgotten() -> None:
    rates = history()
    rates.add(BEGIN, {ORDERS: Reading(1, 0)})
    for step in range(1, FINE + 1):
        rates.add(BEGIN + step * INTERVAL, {})
    assert series_of(rates, 3_600, BEGIN + FINE * INTERVAL) == []
    assert rates._fine._samples == {}


def test_the_busiest_objects_come_first_and_the_others_are_counted() -> None:
    rates = history()
    for step in (0, 1):
        rates.add(BEGIN + step * 15, {("queue", f"Q{number}"): Reading(step * number, 0, 0) for number in range(9)})
    page = rates.rates(600, 2, BEGIN + 15, lambda name: name != "Q8")
    assert [series.name for series in page.series] == ["Q7", "Q6"]
    assert page.left_out == 6
    idle = history()
    idle.add(BEGIN, {("queue", name): Reading(0, 0, 0) for name in ("C", "A", "B")})
    assert [series.name for series in series_of(idle, 600, BEGIN)] == ["A", "B", "C"]


def test_the_number_of_objects_is_limited() -> None:
    rates = history()
    rates.add(BEGIN, {("queue", f"Q{number}"): Reading(0, 0, 0) for number in range(MAX_OBJECTS + 5)})
    page = rates.rates(600, MAX_OBJECTS, BEGIN, lambda _: True)
    assert (len(page.series), page.left_out) == (MAX_OBJECTS, 5)


def test_a_queue_manager_that_reports_no_rates() -> None:
    rates = history()
    for step in (0, 1):
        rates.add(BEGIN + step * 15, {ORDERS: Reading(None, None, step)})
    (orders,) = series_of(rates, 600, BEGIN + 15)
    assert (orders.incoming, orders.depth) == ([None, None], [0.0, 1.0])
