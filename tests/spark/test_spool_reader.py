"""Batches from spools: the parts of a batch, queues that are no longer read, and missing messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.spark import spool_reader
from bridge.spark.segment import Segment, directory_name
from bridge.spark.spool import DataLoss, Spool, SpoolFiller, StreamOptions, open_former
from bridge.spark.spool_reader import TASK_VARIABLE, AsyncProgress, RowTooLarge, Slice, SpoolReader, _even

SCHEMA = pa.schema([pa.field("body", pa.binary())])


class Filled(SpoolFiller):
    """A full spool."""

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
    """Append segments of record batches."""
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
    first, other = Spool(str(tmp_path), "A"), Spool(str(tmp_path), "B")
    fill(first, [[b"0", b"1"], [b"2", b"3"]], [[b"4"]])
    fill(other, [[b"x"]])
    reader = SpoolReader(
        options, SCHEMA, lambda: {spool.id: Filled(spool.id, spool, options) for spool in (first, other)}
    )
    end = {"version": 3, "spools": {first.id: [first.id, 2], other.id: [other.id, 1]}}
    assert parts(reader, reader.initialOffset(), end) == expected
    reader.stop()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.integers(1, 40))
def test_parts_of_a_batch_differ_by_one_row_at_most(sizes: list[int], count: int) -> None:
    slices = [Slice("spool", Segment(number, rows, 0, 0, 0, ""), 0, rows) for number, rows in enumerate(sizes)]
    parts_of_batch = _even(slices, count)
    lengths = [sum(segment_slice.rows for segment_slice in part) for part in parts_of_batch]
    assert len(parts_of_batch) == count and max(lengths) - min(lengths) <= 1
    rows = [
        (segment_slice.segment.number, segment_slice.start + row)
        for part in parts_of_batch
        for segment_slice in part
        for row in range(segment_slice.rows)
    ]
    assert rows == [(number, row) for number, size in enumerate(sizes) for row in range(size)]


def test_partitions_without_slices_are_omitted(tmp_path: Path) -> None:
    options = StreamOptions(spool=str(tmp_path), partitions=3)
    spool = Spool(str(tmp_path), "A")
    reader = SpoolReader(options, SCHEMA, lambda: {"A": Filled("A", spool, options)})
    start = reader.initialOffset()
    assert reader.partitions(start, start) == []
    reader.stop()


# Data loss -----------------------------------------------------------------------------------------------------------


def reader_of(tmp_path: Path, *sources: str, **options: Any) -> SpoolReader:
    """A reader of some sources. The other spools below the directory belong to former sources."""
    stream = StreamOptions(spool=str(tmp_path), **options)

    def filled() -> dict[str, Filled]:
        spools = {}
        for source in sources:
            spool = Spool(str(tmp_path), source)
            spool.recover()
            spools[source] = Filled(source, spool, stream)
        return spools

    def former() -> dict[str, Spool]:
        spools = open_former(str(tmp_path), sources)
        for spool in spools.values():
            spool.recover()
        return spools

    return SpoolReader(stream, SCHEMA, filled, former)


def spools_with(tmp_path: Path, **segments: int) -> dict[str, str]:
    """Create a spool for each source with this number of segments of one row. Return their identifiers."""
    identifiers = {}
    for source, count in segments.items():
        spool = Spool(str(tmp_path), source)
        fill(spool, *([[b"%s%d" % (source.encode(), number)]] for number in range(1, count + 1)))
        identifiers[source] = spool.id
        spool.close()
    return identifiers


def test_a_source_with_messages_that_is_no_longer_read_is_an_error(tmp_path: Path) -> None:
    spools_with(tmp_path, A=3, B=1)
    reader = reader_of(tmp_path, "B")
    with pytest.raises(
        DataLoss, match=r"has 3 messages of A, which is no longer read; .*`mqbridge pipeline spool list`"
    ) as e:
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert f"`mqbridge pipeline spool return A` puts them back (with --spool {tmp_path} if" in str(e.value)
    reader.stop()


def test_a_batch_that_was_planned_before_the_change_is_read_to_its_end(tmp_path: Path) -> None:
    """The batch has the same rows as before. Later rows in the spool are an error afterwards."""
    ids = spools_with(tmp_path, A=3, B=1)
    reader = reader_of(tmp_path, "B")
    start = {"version": 3, "spools": {"A": [ids["A"], 1]}}
    end = {"version": 3, "spools": {"A": [ids["A"], 2], "B": [ids["B"], 1]}}
    assert parts(reader, start, end) == [[b"A2"], [b"B1"]]
    with pytest.raises(DataLoss, match="has 1 messages of A"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    reader.stop()
    # The batch is committed, so only the segment after it is left.
    spool = Spool(str(tmp_path), "A")
    spool.recover()
    assert [segment.number for segment in spool.between(spool.first - 1, spool.last)] == [3]
    spool.close()


def test_a_former_source_without_unprocessed_messages_is_not_an_error(tmp_path: Path) -> None:
    ids = spools_with(tmp_path, A=3, B=1)
    reader = reader_of(tmp_path, "B")
    start = {"version": 3, "spools": {"A": [ids["A"], 3]}}
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"version": 3, "spools": {"A": [ids["A"], 3], "B": [ids["B"], 1]}}
    reader.commit(start)
    assert parts(reader, start, end) == [[b"B1"]]
    reader.stop()
    assert not list((tmp_path / directory_name("A")).glob("*.arrow"))


def test_without_fail_on_data_loss_the_messages_stay_and_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ids = spools_with(tmp_path, A=3, B=2)
    reader = reader_of(tmp_path, "B", fail_on_data_loss=False)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert end == {"version": 3, "spools": {"B": [ids["B"], 2]}}
    assert "MQB8007W" in caplog.text and "has 3 messages of A, which is no longer read" in caplog.text
    backlog = reader.reportLatestOffset()
    assert backlog is not None and backlog["A"]["waiting"] == 3
    reader.stop()
    reader = reader_of(tmp_path, "A", "B")
    both = reader.latestOffset(end, reader.getDefaultReadLimit())
    with pytest.raises(AsyncProgress, match="asyncProgressTrackingEnabled"):
        parts(reader, end, both)
    reader.commit(end)
    assert parts(reader, end, both) == [[b"A1", b"A2", b"A3"]]
    reader.stop()


def test_missing_segments(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids = spools_with(tmp_path, A=3)
    start, end = {"version": 3, "spools": {}}, {"version": 3, "spools": {"A": [ids["A"], 3]}}
    for file in tmp_path.glob("*/000000000002-*"):
        file.unlink()
    reader = reader_of(tmp_path, "A")
    with pytest.raises(DataLoss, match="has 2 of the segments 1 to 3"):
        parts(reader, start, end)
    reader.stop()
    reader = reader_of(tmp_path, "A", fail_on_data_loss=False)
    assert parts(reader, start, end) == [[b"A1", b"A3"]]
    assert "MQB8006E 1 segments of spool" in caplog.text
    reader.stop()


def test_a_planned_batch_of_a_spool_that_was_deleted(tmp_path: Path) -> None:
    spools_with(tmp_path, B=1)
    start, end = {"version": 3, "spools": {}}, {"version": 3, "spools": {"A": ["0123456789ab", 3]}}
    reader = reader_of(tmp_path, "B")
    with pytest.raises(DataLoss, match="the batch has messages of A, which is no longer read and has no spool"):
        reader.partitions(start, end)
    reader.stop()
    reader = reader_of(tmp_path, "B", fail_on_data_loss=False)
    assert reader.partitions(start, end) == []
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
