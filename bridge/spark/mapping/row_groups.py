"""Groups of equal rows, so that a rule maps only one row of each group.

Arrow's dictionary encoding turns each column into codes. The codes of a row are combined into one number, the group key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bridge.telemetry.message import Unmappable

#: Group keys above this value are renumbered to avoid an overflow.
_MAX_CODES: Final = 2**31


class RowGroups:
    """Groups of rows, by the columns given so far."""

    def __init__(self, count: int) -> None:
        self._codes = np.zeros(count, np.int64)
        self._radix = 1
        #: values by row, each as given to `add`
        self._columns: list[Any] = []

    def add(self, column: Any) -> None:
        """Add what a column has, null where there is none: an Arrow array or None, or an array of numpy."""
        if isinstance(column, np.ndarray):
            self._columns.append(column)
            column = pa.array(column)
        elif column is None or column.null_count == len(column):
            self._columns.append(None)
            return
        else:
            self._columns.append(column)
        if pa.types.is_map(column.type):
            column = _numbered(column)
        encoded = column.dictionary_encode(null_encoding="encode")
        self._combine(encoded.indices.to_numpy(), len(encoded.dictionary))

    def _combine(self, codes: Any, size: int) -> None:
        if size < 2:
            return
        if self._radix * size > _MAX_CODES and self._radix > len(self._codes):
            distinct, self._codes = np.unique(self._codes, return_inverse=True)
            self._radix = len(distinct)
        self._codes = self._codes * size + codes
        self._radix *= size

    def groups(self) -> tuple[Any, Any, Sequence[tuple[Any, ...]]]:
        """Return (first row of each group; group of each row; values of each group, None where null or not given)."""
        _, first, group = np.unique(self._codes, return_index=True, return_inverse=True)
        rows = pa.array(first)
        values = [
            [None] * len(first)
            if column is None
            else column[first].tolist()
            if isinstance(column, np.ndarray)
            else _hashable(column.take(rows))
            for column in self._columns
        ]
        return first, group, list(zip(*values, strict=True))


def _hashable(column: Any) -> list[Any]:
    values = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else tuple(value) for value in values]
    return list(values)


def _numbered(column: Any) -> Any:
    """Return a number for each map, since Arrow has no dictionaries of maps."""
    if not len(column.items):
        return pa.nulls(len(column), pa.int32()).fill_null(0)
    numbers: dict[Any, int] = {}
    return pa.array([numbers.setdefault(value, len(numbers)) for value in _hashable(column)], pa.int32())


def refusal(error: Unmappable, source: str | None) -> dict[str, Any]:
    """Return a value of the column `refusal`."""
    return {"reason": error.reason, "sentence": str(error), "source": source}
