"""Numbers that stand for strings, so that rows are short and quickly compared."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class Names:
    """Client identifiers and topics, each by the number that it got when it was first seen."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return the number of a name."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self.names)
            self.names.append(name)
        return found

    def numbers(self, column: Any) -> Any:
        """Return the numbers of a column of strings."""
        encoded = column.combine_chunks().dictionary_encode()
        return pa.array(map(self.number, encoded.dictionary.to_pylist()), pa.int64()).take(encoded.indices)
