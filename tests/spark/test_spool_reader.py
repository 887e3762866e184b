"""The parts of a batch: as many as the option `partitions` specifies, of equal size, also within a segment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.spark import spool_reader
from bridge.spark.spool import Segment, Spool, SpoolFiller, StreamOptions
from bridge.spark.spool_reader import TASK_VARIABLE, RowTooLarge, Slice, SpoolReader, _even

SCHEMA = pa.schema([pa.field("body", pa.binary())])


class Filled(SpoolFiller):
    """A spool that is full from the beginning."""

    def start(self) -> None:
        pass

    def finish(self) -> None:
        pass

    @property
    def finished(self) -> bool:
        return True

    def _run(self) -> None:
        pass


def fill(spool: Spool, *segments: Sequence[Sequence[bytes]]) -> None:
    """Append segments, each of record batches."""
    for segment in segments:
        batches = [pa.record_batch({"body": pa.array(bodies, pa.binary())}) for bodies in segment]
        spool.publish(spool.append(batches, sum(len(body) for bodies in segment for body in bodies), 1))


def parts(reader: SpoolReader, start: Any, end: Any) -> list[list[bytes]]:
    return [
        [body for batch in reader.read(part) for body in batch.column("body").to_pylist()]
        for part in reader.partitions(start, end)
    ]


@pytest.mark.parametrize("embed", [False, True])
@pytest.mark.parametrize(
    "partitions, expected",
    [
        (None, [[b"0", b"1", b"2", b"3", b"4"], [b"x"]]),
        (1, [[b"0", b"1", b"2", b"3", b"4", b"x"]]),
        (2, [[b"0", b"1", b"2"], [b"3", b"4", b"x"]]),
        (4, [[b"0"], [b"1", b"2"], [b"3"], [b"4", b"x"]]),
        (9, [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"], [b"x"]]),
    ],
)
def test_partitions(partitions: int | None, expected: list[list[bytes]], embed: bool, tmp_path: Path) -> None:
    options = StreamOptions(spool=str(tmp_path), partitions=partitions, embed=embed)
    one, other = Spool(str(tmp_path), "A"), Spool(str(tmp_path), "B")
    fill(one, [[b"0", b"1"], [b"2", b"3"]], [[b"4"]])
    fill(other, [[b"x"]])
    reader = SpoolReader(
        options, SCHEMA, lambda: {spool.id: Filled(spool.id, spool, options) for spool in (one, other)}
    )
    end = {"version": 3, "spools": {one.id: [one.id, 2], other.id: [other.id, 1]}}
    assert parts(reader, reader.initialOffset(), end) == expected
    reader.stop()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 40))
def test_parts_of_a_batch_differ_by_one_row_at_most(sizes: list[int], count: int) -> None:
    slices = [Slice("spool", Segment(number, rows, 0, 0, 0, ""), 0, rows) for number, rows in enumerate(sizes)]
    made = _even(slices, count)
    lengths = [sum(one.rows for one in part) for part in made]
    assert len(made) == count and max(lengths) - min(lengths) <= 1
    rows = [(one.segment.number, one.start + row) for part in made for one in part for row in range(one.rows)]
    assert rows == [(number, row) for number, size in enumerate(sizes) for row in range(size)]


def test_a_partition_without_slices_is_not_made(tmp_path: Path) -> None:
    options = StreamOptions(spool=str(tmp_path), partitions=3)
    spool = Spool(str(tmp_path), "A")
    reader = SpoolReader(options, SCHEMA, lambda: {"A": Filled("A", spool, options)})
    start = reader.initialOffset()
    assert reader.partitions(start, start) == []
    reader.stop()


def test_embedded_rows_fit_into_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is divided, and so is a partition, until Spark accepts the tasks."""
    monkeypatch.setattr(spool_reader, "_EMBEDDED_BYTES", 40_000)
    options = StreamOptions(spool=str(tmp_path), embed=True)
    spool = Spool(str(tmp_path), "A")
    bodies = [b"%04d" % number * 250 for number in range(200)]
    fill(spool, [bodies[:100]], [bodies[100:110]], [bodies[110:120]], [bodies[120:]])
    reader = SpoolReader(options, SCHEMA, lambda: {spool.id: Filled(spool.id, spool, options)})
    start, end = reader.initialOffset(), {"version": 3, "spools": {spool.id: [spool.id, 4]}}
    assert [body for part in parts(reader, start, end) for body in part] == bodies
    partitions = reader.partitions(start, end)
    assert all(sum(map(len, part.embedded)) <= 40_000 for part in partitions)  # type: ignore[attr-defined]
    assert 5 <= len(partitions) <= 12
    monkeypatch.setenv(TASK_VARIABLE, "0")
    monkeypatch.setattr(spool_reader, "_TASK_OVERHEAD", -1_000)
    with pytest.raises(
        RowTooLarge, match=r"row 0 of segment .* a task at most 1000; hint: .*spark\.rpc\.message\.maxSize"
    ):
        reader.partitions(start, end)
    reader.stop()
