"""More rows than memory should hold, divided so that what belongs together is together. Needs pyarrow."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: Most rows that are in memory at once, as far as they can be divided.
MOST_ROWS: Final = 100_000
#: A division is by so many upper bits of the place; parts that have too many rows are divided by the next ones.
_BITS: Final = 6
#: Bits of a place that is made of others.
PLACE_BITS: Final = 48

_LARGE_ODD: Final = -7046029254386353131


def place_of(*columns: Any) -> Any:
    """Return a place for each row, such that rows with the same numbers in these columns have the same one."""
    mixed = pa.scalar(0, pa.int64())
    for column in columns:
        # Products wrap around: their upper bits depend on all bits of both.
        mixed = pc.multiply(pc.bit_wise_xor(mixed, column), _LARGE_ODD)
        mixed = pc.bit_wise_xor(mixed, pc.shift_right(mixed, 32))
    return pc.bit_wise_and(pc.shift_right(pc.multiply(mixed, _LARGE_ODD), 64 - PLACE_BITS), 2**PLACE_BITS - 1)


class Division:
    """Takes tables of one schema, and gives back all their rows, those of one place in one table.

    Places are in the column `place`, integers of so many bits. Up to `most` rows are held in memory; more are on disk in
    `directory`, or a temporary one (TMPDIR), until they are asked for. Use it in a `with` statement. Raises OSError.
    """

    def __init__(self, most: int = MOST_ROWS, directory: Path | None = None, bits: int = PLACE_BITS) -> None:
        self._most = most
        self._directory = directory
        self._bits = bits
        self._held: list[Any] = []
        self._rows = 0
        self._parts: dict[int, _Part] = {}
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Division:
        return self

    def __exit__(self, *exception: object) -> None:
        self._opened.close()

    def add(self, table: Any) -> None:
        """Take in the rows of a table."""
        self._held.append(table)
        self._rows += table.num_rows
        if self._rows > self._most:
            self._write()

    def tables(self) -> Iterator[Any]:
        """Yield each row once; the places of a table are above those of the table before.

        What has one place is in one table, whatever its size. Nothing may be added any more.
        """
        if not self._parts:
            if self._rows:
                yield pa.concat_tables(self._held).combine_chunks()
            return
        if self._rows:
            self._write()
        together: list[_Part] = []
        for _, part in sorted(self._parts.items()):
            if together and sum(one.rows for one in together) + part.rows > self._most:
                yield _table(together)
                together = []
            if part.rows > self._most and part.first != part.last:
                with Division(self._most, self._directory, self._bits - _BITS) as further:
                    for batch in part.read():
                        further.add(pa.Table.from_batches([batch]))
                    yield from further.tables()
            else:
                together.append(part)
        if together:
            yield _table(together)

    def _write(self) -> None:
        """Write what is held, each row to its part."""
        table, self._held, self._rows = pa.concat_tables(self._held), [], 0
        if not self._parts:
            directory = tempfile.TemporaryDirectory(prefix="mqbridge-", dir=self._directory)
            self._directory = Path(self._opened.enter_context(directory))
        numbers = pc.bit_wise_and(pc.shift_right(table["place"], max(self._bits - _BITS, 0)), 2**_BITS - 1)
        table = table.take(pc.sort_indices(numbers)).combine_chunks()
        first = 0
        for number, count in sorted((one["values"], one["counts"]) for one in pc.value_counts(numbers).to_pylist()):
            if number not in self._parts:
                assert self._directory is not None
                part = _Part(self._directory / f"{number}.arrow", table.schema)
                self._parts[number] = self._opened.enter_context(contextlib.closing(part))
            self._parts[number].write(table.slice(first, count))
            first += count


def _table(parts: list[_Part]) -> Any:
    return pa.Table.from_batches(batch for part in parts for batch in part.read()).combine_chunks()


class _Part:
    """The rows of a part, in a file."""

    def __init__(self, path: Path, schema: Any) -> None:
        self._path = path
        self._writer = pa.ipc.new_stream(str(path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self.rows = 0
        #: the least and the greatest place
        self.first, self.last = 2**63, -1

    def write(self, table: Any) -> None:
        """Append rows."""
        self._writer.write_table(table)
        self.rows += table.num_rows
        places = pc.min_max(table["place"]).as_py()
        self.first, self.last = min(self.first, places["min"]), max(self.last, places["max"])

    def read(self) -> Iterator[Any]:
        """Yield the rows in batches, and remove the file."""
        self._writer.close()
        with pa.OSFile(str(self._path)) as file, pa.ipc.open_stream(file) as stream:
            yield from stream
        self._path.unlink()

    def close(self) -> None:
        """Write no more."""
        self._writer.close()
