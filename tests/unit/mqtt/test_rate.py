"""How much one client may send, by a clock of the test's."""

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
def test_a_hundred_a_second(spent: list[tuple[float, int]], waits: list[float]) -> None:
    rate = Rate(100, 0.0)
    assert [rate.spend(amount, now) for now, amount in spent] == pytest.approx(waits)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 1000)), max_size=50))
def test_in_the_long_run_no_more_than_the_rate(steps: list[tuple[float, int]]) -> None:
    """Who waits as long as it is told has never sent more than a burst above the rate."""
    rate, now, sent = Rate(100, 0.0), 0.0, 0
    for pause, amount in steps:
        now += pause
        sent += amount
        now += rate.spend(amount, now)
        assert sent <= 100 * (now + BURST) + 1e-3
