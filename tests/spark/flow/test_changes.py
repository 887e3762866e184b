"""Report by exception, as a function of rows and what was reported last."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from pyspark.sql.streaming.state import GroupState

from bridge.spark.flow.changes import Changes


class State:
    """A state as Spark keeps it."""

    def __init__(self) -> None:
        self.value: tuple[str, ...] = ()

    @property
    def exists(self) -> bool:
        return bool(self.value)

    @property
    def get(self) -> tuple[str, ...]:
        return self.value

    def update(self, value: tuple[str, ...]) -> None:
        self.value = value


def reported(changes: Changes, state: Any, *frames: list[Any]) -> list[int]:
    """Numbers of the rows that pass."""
    numbers = iter(range(100))
    batches = [pd.DataFrame({"v": frame, "n": [next(numbers) for _ in frame]}) for frame in frames]
    made: GroupState = state
    return [number for frame in changes(("k",), batches, made) for number in frame["n"]]


CASES = [
    ([1, 1, 2, 2, 1], 0, [0, 2, 4]),
    ([1.0, 1.4, 1.6, 1.2], 0.5, [0, 2]),
    ([20, 20.5, 20.6], 0.5, [0, 2]),
    (["a", "a", "b"], 9, [0, 2]),
    ([None, None, "a", None], 0, [0, 2, 3]),
    ([float("nan"), float("nan"), 1.0], 0, [0, 2]),
    ([True, True, False], 0, [0, 2]),
    ([pd.Timestamp(0), pd.Timestamp(0), pd.Timestamp(1)], 0, [0, 2]),
]


@pytest.mark.parametrize(("values", "deadband", "expected"), CASES)
def test_rows_that_pass(values: list[Any], deadband: float, expected: list[int]) -> None:
    assert reported(Changes(["v"], None, deadband), State(), values) == expected
    # One by one, and in batches, it is the same.
    assert reported(Changes(["v"], None, deadband), State(), *([one] for one in values)) == expected
    state = State()
    changes = Changes(["v"], None, deadband)
    passed = [index for index, value in enumerate(values) if reported(changes, state, [value])]
    assert passed == expected


def test_rows_are_compared_in_their_order() -> None:
    assert reported(Changes(["v"], "n", 0), State(), [1, 1, 2]) == [0, 2]
    frame = pd.DataFrame({"v": [2, 1, 1], "n": [2, 1, 0]})
    state: Any = State()
    assert [list(one["n"]) for one in Changes(["v"], "n", 0)(("k",), [frame], state)] == [[0, 2]]
