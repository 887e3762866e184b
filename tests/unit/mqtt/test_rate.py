"""The rate limit of one client, with a clock of the test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.transport.stream import BURST, Rate


@pytest.mark.parametrize(
    ("spent", "waits"),
    [
        ([(0.0, 100)], [0.0]),
        ([(0.0, 200), (0.0, 1)], [0.0, 0.01]),
        ([(0.0, 300)], [1.0]),
        ([(0.0, 300), (1.0, 0)], [1.0, 0.0]),
        ([(0.0, 300), (0.5, 50)], [1.0, 1.0]),
        ([(0.0, 0), (1000.0, 201)], [0.0, 0.01]),
    ],
)
def test_a_hundred_per_second(spent: list[tuple[float, int]], waits: list[float]) -> None:
    rate = Rate(100, 0.0)
    assert [rate.spend(amount, now) for now, amount in spent] == pytest.approx(waits)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 1000)), max_size=50))
def test_the_long_term_rate_is_not_exceeded(steps: list[tuple[float, int]]) -> None:
    """A client that waits as requested never sends more than a burst above the rate."""
    rate, now, sent = Rate(100, 0.0), 0.0, 0
    for pause, amount in steps:
        now += pause
        sent += amount
        now += rate.spend(amount, now)
        assert sent <= 100 * (now + BURST) + 1e-3
