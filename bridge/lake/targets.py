"""Targets of a lake: a directory of Parquet files, and a Delta table. Each takes segments of a spool exactly once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.files import durable_file, sync
from bridge.spark.spool import Segment, Spool, read_segments

_SUFFIX: Final = ".parquet"


class Target(ABC):
    """Where rows go."""

    def __init__(self, place: str, schema: Any, *, keeps_state: bool) -> None:
        """Make a target. `keeps_state`: the last segment of a spool stays, for the state of its session."""
        self.place = place
        self._schema = schema
        self._keeps_state = keeps_state

    @abstractmethod
    def recover(self, spool: Spool) -> None:
        """Complete what a crash interrupted: delete the segments of a spool that are in the target already."""

    @abstractmethod
    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Write the rows of segments and delete the segments."""

    def _batches(self, spool: Spool, segments: Sequence[Segment]) -> Any:
        return read_segments(spool.place.path, [one.name for one in segments], self._schema)

    def _delete(self, spool: Spool, number: int) -> None:
        spool.delete_through(min(number, spool.last), keep_state=self._keeps_state)


class ParquetTarget(Target):
    """A directory of Parquet files.

    A file is written and brought to disk under a hidden name. Then its segments are deleted, and then it gets its visible
    name. So a hidden file whose name is complete replaces its segments, whatever was killed in between.
    """

    def recover(self, spool: Spool) -> None:
        """Delete the segments of hidden files, and make the files visible."""
        for unfinished in Path(self.place).glob(f"..{spool.id}-*"):
            unfinished.unlink()
        for hidden in sorted(Path(self.place).glob(f".{spool.id}-*{_SUFFIX}")):
            self._reveal(spool, hidden, int(hidden.stem.rpartition("-")[2]))

    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Write one file."""
        first, last = segments[0].number, segments[-1].number
        hidden = Path(self.place, f".{spool.id}-{first:012d}-{last:012d}{_SUFFIX}")
        with durable_file(hidden) as file, pq.ParquetWriter(file, self._schema) as writer:
            writer.write_table(pa.Table.from_batches(self._batches(spool, segments), self._schema))
        self._reveal(spool, hidden, last)

    def _reveal(self, spool: Spool, hidden: Path, last: int) -> None:
        self._delete(spool, last)
        sync(Path(spool.place.path))
        hidden.rename(hidden.with_name(hidden.name[1:]))
        sync(hidden.parent)


class DeltaTable(Target):
    """A Delta table. Each append has the number of its last segment as the version of a transaction of the spool (txn)."""

    def recover(self, spool: Spool) -> None:
        """Delete the segments that the table has by its newest transaction of the spool."""
        from deltalake import DeltaTable as Table

        if Table.is_deltatable(self.place):
            version = Table(self.place).transaction_version(_application(spool))
            if version is not None:
                self._delete(spool, version)

    def write(self, spool: Spool, segments: Sequence[Segment]) -> None:
        """Append to the table; create it if it does not exist."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        last = segments[-1].number
        transaction = Transaction(_application(spool), last)
        write_deltalake(
            self.place,
            pa.RecordBatchReader.from_batches(self._schema, self._batches(spool, segments)),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[transaction]),
        )
        self._delete(spool, last)


def _application(spool: Spool) -> str:
    return f"mqbridge-{spool.id}"


#: Formats by name.
TARGETS: Final[dict[str, type[Target]]] = {"parquet": ParquetTarget, "delta": DeltaTable}
