"""An archive file under construction. It has a temporary name, so that readers never see an incomplete file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from bridge.archive.schema import NAMES, SUFFIX, UNFINISHED, Row, arrow_schema

SCHEMA = arrow_schema()
ArrowException = pa.ArrowException


def record_batch(rows: list[Row]) -> Any:
    """Return rows as a pyarrow.RecordBatch with the archive's schema."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in NAMES)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class ArchiveFile:
    """A Parquet file that becomes visible with `finish`. Methods raise OSError and pyarrow.ArrowException."""

    def __init__(self, partition: Path, name: str) -> None:
        partition.mkdir(parents=True, exist_ok=True)
        self.path = partition / f"{name}{SUFFIX}"
        self._unfinished = partition / f"{UNFINISHED}{name}{SUFFIX}"
        self._sink = self._unfinished.open("wb")
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

    def finish(self) -> None:
        """Flush the file to disk and make it visible to readers."""
        self._writer.close()
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        self._unfinished.rename(self.path)

    def abandon(self) -> None:
        """Delete the file after an error."""
        # Closing may fail again. The original error is already reported.
        with contextlib.suppress(OSError, ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        self._unfinished.unlink(missing_ok=True)
