"""Counters of a bridge, their rates, and histograms."""

from __future__ import annotations

import msgspec
import pytest

from bridge.administration.counters import ChannelCounters, Counters, rates
from bridge.administration.mapping_status import MappingStatus, RunnerState
from bridge.histogram import SECONDS, Histogram


def reading(time: float, *channels: ChannelCounters, since: float = 100.0, taken_count: int | None = None) -> Counters:
    mapping = MappingStatus(name="m", state=RunnerState.RUNNING, taken=taken_count or 0)
    return Counters(
        time=time,
        since=since,
        clients=3,
        sessions=4,
        in_flight=5,
        units_of_work=6,
        transmission_queue_depth=7,
        channels=list(channels),
        busiest_clients=[],
        mappings=[] if taken_count is None else [mapping],
    )


def channel(name: str, received: int, sent: int = 0, units: int = 0, seconds: float = 0.0) -> ChannelCounters:
    return ChannelCounters(name=name, clients=1, received=received, sent=sent, units=units, unit_seconds=seconds)


def test_rates_are_per_second_and_the_slowest_channel_comes_first() -> None:
    before = reading(110.0, channel("A", 10, 1, 5, 1.0), channel("B", 0))
    after = reading(112.0, channel("A", 30, 5, 7, 1.2), channel("B", 8, 0, 2, 1.0), channel("C", 0))
    rates_found = rates(before, after)
    assert (rates_found.interval, rates_found.received, rates_found.sent) == (2.0, 14.0, 2.0)
    channels = [
        (channel_rates.name, channel_rates.received, channel_rates.sent) for channel_rates in rates_found.channels
    ]
    assert channels == [("B", 4.0, 0.0), ("A", 10.0, 2.0), ("C", 0.0, 0.0)]
    assert [channel_rates.unit_seconds for channel_rates in rates_found.channels] == [0.5, pytest.approx(0.1), None]
    assert (rates_found.clients, rates_found.sessions, rates_found.in_flight, rates_found.transmission_queue_depth) == (
        3,
        4,
        5,
        7,
    )


def test_a_reset_counter_continues_from_there() -> None:
    rates_found = rates(reading(110.0, channel("A", 1_000)), reading(120.0, channel("A", 10), since=115.0))
    assert (rates_found.interval, rates_found.received) == (5.0, 2.0)


@pytest.mark.parametrize(("before", "after", "rate"), [(10, 30, 10.0), (None, 30, 0.0), (30, 10, 0.0)])
def test_a_new_or_restarted_mapping_has_no_rate_yet(before: int | None, after: int, rate: float) -> None:
    (mapping_rates,) = rates(reading(110.0, taken_count=before), reading(112.0, taken_count=after)).mappings
    assert mapping_rates.taken == rate


def test_a_reading_survives_the_control_socket() -> None:
    before = reading(1.0, channel("A", 1), taken_count=2)
    assert msgspec.json.decode(msgspec.json.encode(before), type=Counters) == before


# A negative value: the clock was set back.
VALUES = [(0.0, 0), (0.001, 0), (0.0011, 1), (0.0025, 1), (10.0, 12), (99.0, 13), (-3.0, 0)]


@pytest.mark.parametrize(("value", "above"), VALUES)
def test_a_value_belongs_to_the_buckets_that_it_does_not_exceed(value: float, above: int) -> None:
    histogram = Histogram()
    histogram.observe(value)
    counts = [0] * above + [1] * (len(SECONDS) + 1 - above)
    assert histogram.buckets() == [*zip([*map(str, SECONDS), "+Inf"], counts, strict=True)]
    assert histogram.count == 1
    assert histogram.sum == max(value, 0.0)


def test_values_of_several_threads_are_added() -> None:
    first, two = Histogram(), Histogram()
    first.observe(0.5, 3)
    two.observe(20.0)
    first.add(two)
    assert (first.buckets()[7:10], first.buckets()[-1]) == ([("0.25", 0), ("0.5", 3), ("1.0", 3)], ("+Inf", 4))
    assert first.sum == 21.5


def test_the_bounds_are_increasing() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))
