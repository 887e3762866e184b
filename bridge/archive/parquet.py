"""An archive file under construction. It has a temporary name, so that readers never see an incomplete file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from bridge.archive.completeness import FileNumbers, file_name
from bridge.archive.schema import NAMES, SUFFIX, UNFINISHED, Row, arrow_schema
from bridge.files import checksum_of, sync

SCHEMA = arrow_schema()
ArrowException = pa.ArrowException


def record_batch(rows: list[Row]) -> Any:
    """Return rows as a pyarrow.RecordBatch with the archive's schema."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in NAMES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class ArchiveFile:
    """A Parquet file that becomes visible with `finish`. Methods raise OSError and pyarrow.ArrowException."""

    def __init__(self, partition: Path, sequence: int) -> None:
        """Create a file in the directory of an hour. `sequence` is the number of its first row."""
        partition.mkdir(parents=True, exist_ok=True)
        self._partition, self._sequence = partition, sequence
        self._path = partition / f"{UNFINISHED}{sequence:016d}{SUFFIX}"
        self._sink = self._path.open("wb")
        self._writer = pa.parquet.ParquetWriter(self._sink, SCHEMA, compression="zstd", compression_level=1)
        self.rows = 0

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._sink.tell()

    def write(self, batches: list[Any]) -> None:
        """Append record batches as one row group."""
        table = pa.Table.from_batches(batches, SCHEMA)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.rows += table.num_rows

    def finish(self, numbers: FileNumbers) -> None:
        """Flush the file to disk and make it visible to readers. The next step is `numbers.record()`."""
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        number, first = numbers.following(self._partition)
        self._path = self._path.rename(
            self._partition / file_name(self._sequence, number, first, checksum_of(self._path))
        )
        # The file must be on disk before its number is recorded.
        for directory in (self._partition, self._partition.parent, self._partition.parent.parent):
            sync(directory)

    def abandon(self) -> None:
        """Delete the file after an error."""
        # Closing may fail again. The original error is already reported.
        with contextlib.suppress(OSError, ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        self._path.unlink(missing_ok=True)
