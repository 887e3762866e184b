"""Sums over batches of rows, by what the rows have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Sums:
    """Sums of some columns, for each combination of values of some others."""

    def __init__(self, keys: Sequence[str], sums: Sequence[str]) -> None:
        self._keys = list(keys)
        self._sums = list(sums)
        self._found: dict[tuple[Any, ...], list[int]] = {}

    def add(self, rows: Any) -> None:
        """Add the rows of a table."""
        grouped = rows.group_by(self._keys).aggregate([(name, "sum") for name in self._sums])
        keys = zip(*(grouped[name].to_pylist() for name in self._keys), strict=True)
        sums = zip(*(grouped[f"{name}_sum"].to_pylist() for name in self._sums), strict=True)
        for key, values in zip(keys, sums, strict=True):
            before = self._found.setdefault(key, [0] * len(values))
            self._found[key] = [one + more for one, more in zip(before, values, strict=True)]

    def rows(self) -> list[dict[str, Any]]:
        """Return for each combination its values and sums."""
        names = (*self._keys, *self._sums)
        return [dict(zip(names, (*key, *sums), strict=True)) for key, sums in self._found.items()]
