"""A histogram counts each value in the buckets of all bounds that are not below it."""

from __future__ import annotations

import pytest

from bridge.administration.histogram import SECONDS, Histogram


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, [1, 1, 1]),
        (0.5, [1, 1, 1]),
        (1.0, [1, 1, 1]),
        (1.0001, [0, 1, 1]),
        (2.0, [0, 1, 1]),
        (99.0, [0, 0, 1]),
        # The clock was set back.
        (-3.0, [1, 1, 1]),
    ],
)
def test_a_value_is_in_the_buckets_that_it_is_not_above(value: float, expected: list[int]) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.buckets() == [*zip(("1.0", "2.0", "+Inf"), expected, strict=True)]
    assert histogram.count == 1
    assert histogram.sum == max(value, 0.0)


def test_values_of_several_threads_are_added() -> None:
    one, two = Histogram((1.0,)), Histogram((1.0,))
    one.observe(0.5, 3)
    two.observe(2.0)
    one.add(two)
    assert one.buckets() == [("1.0", 3), ("+Inf", 4)]
    assert one.sum == 3.5


def test_the_bounds_rise() -> None:
    assert list(SECONDS) == sorted(set(SECONDS))
