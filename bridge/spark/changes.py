"""Report by exception: only the rows of a stream that differ from the last reported row with the same key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pandas as pd  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from bridge.config.pipeline import ChangesConfig
from bridge.spark.destinations import TIMES
from bridge.spark.failures import column_missing

_STATE: Final = "last string"


class RowChanges:
    """The function for applyInPandasWithState: yields a key's rows whose columns `of` differ from the last yielded row."""

    def __init__(self, of: list[str], order: str | None, deadband: float) -> None:
        self._of = of
        self._order = order
        self._deadband = deadband

    def __call__(self, key: Any, frames: Iterable[Any], state: GroupState) -> Iterator[Any]:
        rows = pd.concat(list(frames), ignore_index=True)
        if self._order is not None:
            rows = rows.sort_values(self._order, kind="stable", ignore_index=True)
        last: list[Any] | None = json.loads(state.get[0]) if state.exists else None
        indexes = []
        for index, values in enumerate(zip(*(rows[name] for name in self._of), strict=True)):
            now = [_plain(value) for value in values]
            if last is None or self._any_differs(now, last):
                indexes.append(index)
                last = now
        if indexes:
            state.update((json.dumps(last),))
            yield rows.iloc[indexes]

    def _any_differs(self, now: list[Any], last: list[Any]) -> bool:
        # A source may have more columns than when the last row was reported.
        if len(now) != len(last):
            return True
        return any(self._differ(current, other) for current, other in zip(now, last, strict=True))

    def _differ(self, current: Any, other: Any) -> bool:
        if isinstance(current, int | float) and isinstance(other, int | float):
            return abs(current - other) > self._deadband
        return bool(current != other)


def _plain(value: Any) -> Any:
    """Return a value that JSON preserves, and that is equal for equal values. Missing values become None."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool | str):
        return value
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return None
    return value if isinstance(value, int | float) else str(value)


def only_changes(frame: DataFrame, config: ChangesConfig) -> DataFrame:
    """Return the rows of a streaming frame that the section `changes` selects. Raises Mistake."""
    for key, names in (("key", config.key), ("of", config.of), ("order", [config.order] if config.order else [])):
        for index, name in enumerate(names):
            if name not in frame.columns:
                raise column_missing(("changes", *((key,) if key == "order" else (key, index))), name, frame.columns)
    order = config.order or next((name for name in TIMES if name in frame.columns and name not in config.key), None)
    of = config.of or [name for name in frame.columns if name not in config.key and name != order]
    return frame.groupBy(*config.key).applyInPandasWithState(
        RowChanges(of, order, config.deadband), frame.schema, _STATE, "append", GroupStateTimeout.NoTimeout
    )
