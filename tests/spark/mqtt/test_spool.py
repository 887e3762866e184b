"""Spools: what is appended is there again, however the file ends, until it is committed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.mqtt import spool as spools
from bridge.spark.mqtt.envelope import record_batch
from bridge.spark.mqtt.frame import BATCH_ROWS, Slice, SpoolDamaged, read
from bridge.spark.mqtt.repeated_publications import LEAST_BOUND, digests_of
from bridge.spark.mqtt.spool import Spool, SpoolBusy, partitions
from bridge.telemetry.message import Publication, Received


def append(spool: Spool, *payloads: bytes, received: Sequence[int] = ()) -> None:
    items = [Received(Publication(topic="t", payload=payload), 0, 0, False, 1) for payload in payloads]
    batch = record_batch(items, "c", "L", 0) if items else None
    spool.append(batch, sum(map(len, payloads)), frozenset(received))


def payloads(slices: list[Slice]) -> list[bytes]:
    return [bytes(payload) for batch in read(slices) for payload in batch.column("payload").to_pylist()]


def rows(spool: Spool, start: int, end: int) -> list[bytes]:
    return payloads(spool.slices(start, end))


def files(spool: Spool) -> list[Path]:
    return sorted(spool.directory.glob("*.spool"))


@pytest.fixture
def spool(tmp_path: Path) -> Any:
    made = Spool(tmp_path, "t/#", segment_bytes=1)
    yield made
    made.close()


def test_rows_are_there_again(tmp_path: Path) -> None:
    first = Spool(tmp_path, "t/#")
    append(first, b"0", b"1", b"2", received=[7])
    append(first, received=[7, 9])
    append(first, b"3")
    first.close()
    again = Spool(tmp_path, "t/#")
    assert (again.id, again.end, again.received) == (first.id, 4, frozenset())
    assert rows(again, 1, 4) == [b"1", b"2", b"3"]
    append(again, b"4", received=[1])
    assert rows(again, 0, 5) == [b"0", b"1", b"2", b"3", b"4"]
    again.close()


@pytest.mark.parametrize("segment_bytes", [1, 1500, 6000, 1 << 20])
def test_the_numbers_of_the_broker_are_there_again(tmp_path: Path, segment_bytes: int) -> None:
    """Also those whose rows are committed, and deleted with their files."""

    def known(spool: Spool) -> list[int]:
        found = []
        for message_id in range(60):
            behind = spool.repeated_publications.find(message_id)
            if behind is not None and spool.digest(behind) in digests_of(batch(message_id)):
                found.append(message_id)
        return found

    def batch(*message_ids: int) -> Any:
        items = [
            Received(Publication(topic="t", payload=b"%d" % one, qos=qos), qos, one, False, 1)
            for one in message_ids
            for qos in (0, 1)
        ]
        return record_batch(items, "c", "L", 0)

    made = Spool(tmp_path, "t", segment_bytes=segment_bytes)
    made.repeated_publications.allow(LEAST_BOUND)
    for message_id in range(1, 40, 2):
        made.repeated_publications.add(message_id)
        made.repeated_publications.add(message_id + 1)
        made.append(batch(message_id, message_id + 1), 0, frozenset())
        assert known(made) == ([] if message_id < LEAST_BOUND else list(range(message_id + 2 - LEAST_BOUND, message_id + 2)))
        append(made, b"without")
        made.commit(made.end)
    append(made, received=[99])
    expected = list(range(41 - LEAST_BOUND, 41))
    assert known(made) == expected
    made.close()
    again = Spool(tmp_path, "t", segment_bytes=segment_bytes)
    again.repeated_publications.allow(LEAST_BOUND)
    assert known(again) == expected
    again.repeated_publications.forget()
    append(again)
    again.close()
    forgotten = Spool(tmp_path, "t")
    assert known(forgotten) == []
    forgotten.close()


def test_a_spool_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before had a list of message ids where the state is now."""
    made = Spool(tmp_path, "t")
    monkeypatch.setattr(spools, "SessionState", lambda received, run: sorted(received))
    append(made, b"0", received=[7, 9])
    made.close()
    with pytest.raises(SpoolDamaged, match=r"spool: the file was written by another version of mqbridge, in a format that"):
        Spool(tmp_path, "t")


def test_a_file_that_ends_anywhere(tmp_path: Path) -> None:
    """Whatever of the last frame is missing, or wrong, it counts as never written, and others before it are whole."""
    made = Spool(tmp_path, "t")
    append(made, b"zero", received=[1])
    whole = files(made)[0].stat().st_size
    append(made, b"one", received=[1, 2])
    made.close()
    (path,) = files(made)
    data = path.read_bytes()
    for end in (*range(0, whole, 97), *range(whole - 1, len(data), 41), len(data) - 1):
        path.write_bytes(data[:end])
        again = Spool(tmp_path, "t")
        kept = end >= whole
        assert (again.end, again.received) == ((1, frozenset([1])) if kept else (0, frozenset())), end
        append(again, b"more", received=[3])
        assert rows(again, 0, again.end) == ([b"zero", b"more"] if kept else [b"more"]), end
        again.close()
        for one in files(again):
            one.unlink()
    for at in range(whole, len(data), 101):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        again = Spool(tmp_path, "t")
        assert again.end == 1, at
        again.close()


def test_a_new_file_that_was_cut_short_gives_way_to_the_one_before(tmp_path: Path) -> None:
    made = Spool(tmp_path, "t", segment_bytes=1)
    append(made, b"zero", received=[1])
    append(made, b"one", received=[1, 2])
    made.close()
    last = files(made)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    again = Spool(tmp_path, "t", segment_bytes=1)
    assert (again.end, again.received) == (1, frozenset([1]))
    append(again, b"one")
    assert rows(again, 0, 2) == [b"zero", b"one"]
    again.close()


def test_files_are_deleted_when_all_their_rows_are_committed(spool: Spool) -> None:
    for number in range(4):
        append(spool, b"%d" % number, b"x")
    spool.commit(3)
    assert len(files(spool)) == 3
    assert rows(spool, 3, 8) == [b"x", b"2", b"x", b"3", b"x"]
    spool.commit(8)
    assert len(files(spool)) == 1  # it has the message ids, and the number of the next row
    append(spool, b"4")
    assert rows(spool, 8, 9) == [b"4"]


def test_what_is_committed_is_known_to_a_query_with_a_new_checkpoint(tmp_path: Path) -> None:
    made = Spool(tmp_path, "t")
    append(made, b"0", b"1")
    made.commit(1)
    made.close()
    again = Spool(tmp_path, "t")
    assert (again.committed, again.end) == (1, 2)
    again.close()


def test_rows_that_are_gone_or_damaged_are_missed(spool: Spool) -> None:
    append(spool, b"0")
    append(spool, b"1")
    slices = spool.slices(0, 1)
    spool.commit(1)
    with pytest.raises(SpoolDamaged, match="has not the rows 0 to 1"):
        spool.slices(0, 1)
    with pytest.raises(SpoolDamaged, match="the option embed"):
        payloads(slices)
    (path,) = files(spool)
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(SpoolDamaged, match="is not as it was written"):
        rows(spool, 1, 2)


@pytest.mark.parametrize(
    "limits, expected",
    [
        ((0, 6, 100, 100), (6, 33)),
        ((0, 5, 100, 100), (5, 32)),
        ((0, 6, 4, 100), (4, 31)),
        ((1, 6, 2, 100), (3, 20)),
        ((0, 6, 100, 20), (2, 20)),
        ((0, 6, 100, 30), (3, 30)),
        ((0, 6, 100, 1), (1, 10)),
        ((5, 6, 100, 1), (6, 1)),
        ((6, 6, 100, 1), (6, 0)),
    ],
)
def test_batches_within_limits(spool: Spool, limits: tuple[int, int, int, int], expected: tuple[int, int]) -> None:
    append(spool, b"." * 10, b"." * 10, b"." * 10)
    append(spool, b"3", b"4", b"5")
    assert spool.cut(*limits) == expected


def test_record_batches_are_joined(spool: Spool) -> None:
    for number in range(2 * BATCH_ROWS // 100):
        append(spool, *[b"%d" % number] * 100)
    slices = spool.slices(50, spool.end)
    assert [batch.num_rows for batch in read(slices)] == [BATCH_ROWS + 50, BATCH_ROWS - 100]
    parts = partitions(slices, 3)
    assert [sum(one.rows for one in part) for part in parts] == [1350, 1300, 1300]
    assert [one for part in parts for one in part] == slices
    assert partitions(slices[:1], 3) == [slices[:1]]


def test_one_process_at_a_time(tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "LOCK_WAIT", 0.0)
    with pytest.raises(SpoolBusy, match=r"is in use by process \d+: each streaming query needs one of its own"):
        Spool(tmp_path, "t/#")
    Spool(tmp_path, "another filter").close()


def test_payloads_are_not_for_others(tmp_path: Path) -> None:
    """However careless the umask is of the program that has it."""
    before = os.umask(0)
    try:
        spool = Spool(tmp_path, "t/#")
        append(spool, b"secret")
        spool.close()
    finally:
        os.umask(before)
    assert spool.directory.stat().st_mode & 0o777 == 0o750
