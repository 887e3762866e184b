"""The limit of unremoved messages while removals lag."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bridge.telemetry.removal_limit import INTERVAL, LONG_LAG, MIN_LIMIT, SHORT_LAG, RemovalLimit


def values(limit: RemovalLimit, seconds: float, number: int, begin: float) -> list[int]:
    """Report the same lag several times. Return the limit after each."""
    limits = []
    for index in range(number):
        limit.note_lag(seconds, begin + index * INTERVAL)
        limits.append(limit.value)
    return limits


@pytest.mark.parametrize("configured", [1, MIN_LIMIT, 100, 500])
def test_a_long_lag_halves_the_limit_and_a_short_one_doubles_it(configured: int) -> None:
    limit = RemovalLimit(configured)
    lowered = [configured, *values(limit, LONG_LAG + 0.1, 10, 100.0)]
    assert lowered[-1] == min(MIN_LIMIT, configured)
    assert all(after == max(before // 2, lowered[-1]) for before, after in pairwise(lowered))
    assert values(limit, (LONG_LAG + SHORT_LAG) / 2, 3, 200.0) == [lowered[-1]] * 3
    raised = [lowered[-1], *values(limit, SHORT_LAG / 2, 10, 300.0)]
    assert raised[-1] == configured
    assert all(after == min(before * 2, configured) for before, after in pairwise(raised))


def test_the_limit_changes_once_per_interval() -> None:
    limit = RemovalLimit(500)
    for moment in (10.0, 10.1, 10.0 + INTERVAL * 0.9):
        limit.note_lag(LONG_LAG + 1, moment)
    assert limit.value == 250


def test_a_reload_applies_the_configured_limit() -> None:
    limit = RemovalLimit(500)
    limit.note_lag(LONG_LAG + 1, 10.0)
    limit.configure(300)
    assert limit.value == limit.configured == 300
