"""An archive with missing or damaged files is not read as if it were complete."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import bridge.archive.completeness
from bridge.archive import events
from bridge.archive.audit import audit
from bridge.archive.completeness import WITNESS, ArchiveDamaged, FileNumbers, NumberedFile, complete_files, losses
from bridge.archive.event_queue import LENGTH, MODULE
from bridge.archive.replay import ReplaySelection
from bridge.archive.schema import archive_files, partition
from bridge.archive.writer import ArchiveWriter
from bridge.cli.program import program
from bridge.config.operations import ArchiveConfig, RollConfig
from bridge.telemetry.outcome import Outcome
from bridge.witness import create
from bridge.witness import read as read_witness
from tests.helpers.archive import NOON, Story, at, read, write
from tests.helpers.damage import DAMAGE
from tests.helpers.patience import until

EXAMPLES = int(os.environ.get("MQBRIDGE_TEST_EXAMPLES") or 40)
HOUR = 3600
#: Files of the archive: two of each of three hours, on two days.
HOURS = (10, 11, 12)


def publications(now: int, *topics: str) -> events.Event:
    return events.PublishedEvent(
        now, "p", "", now, {}, [events.Incoming(topic, b"x" * 2_000, 0, 1, False) for topic in topics]
    )


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a process that was killed while it wrote another file."""
    directory = tmp_path_factory.mktemp("killed") / "archive"
    config = ArchiveConfig(directory=directory, roll=RollConfig(time=0.01))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE, config.model_dump_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
    )
    assert process.stdin is not None
    count = 0
    for hour in HOURS:
        for number in range(2):
            encoded = [events.encode(publications(at(hour * HOUR), f"{hour}/{number}", "t"))]
            batch = events.together(encoded) + b"".join(encoded)
            process.stdin.write(len(batch).to_bytes(LENGTH, "big") + batch)
            count += 1
            until(lambda count=count: len(archive_files(directory)) == count)  # type: ignore[misc]
    until(lambda: (position := read_witness(directory / WITNESS)) is not None and position.number == count)
    process.stdin.write(len(batch).to_bytes(LENGTH, "big") + batch[:-1])
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    return directory


def damage_of(directory: Path) -> list[str]:
    return [loss.text for loss in losses(directory)]


def rows(directory: Path) -> list[dict[str, Any]]:
    complete_files(directory)
    return read(directory)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", ["Parquet file", "witness"])
def test_no_row_is_lost_silently(killed: Path, tmp_path: Path, kind: str, damage: str) -> None:
    """Identical rows, or an error of the reader and of `data verify`."""
    expected = rows(killed)
    assert len(expected) == 4 * len(HOURS)
    seed = int(os.environ.get("MQBRIDGE_TEST_SEED") or random.randrange(1_000_000))
    change, rounds = DAMAGE[damage]
    for number in range(seed, seed + max(rounds * EXAMPLES // 40, 1)):
        chance, directory = random.Random(number), tmp_path / str(number)
        shutil.copytree(killed, directory)
        file = directory / WITNESS if kind == "witness" else chance.choice(archive_files(directory))
        label = f"MQBRIDGE_TEST_SEED={number}: {file} {change(file, chance)}"
        assert damage_of(directory), label
        with pytest.raises(ArchiveDamaged):
            rows(directory)
        shutil.rmtree(directory)


@pytest.mark.parametrize("place", [0, 2, -1], ids=["first", "in between", "last"])
@pytest.mark.parametrize("damage", ["truncation", "deletion"])
def test_the_start_reports_missing_and_truncated_files(killed: Path, tmp_path: Path, damage: str, place: int) -> None:
    """The bridge checks the end of each file, and does not read the rest."""
    shutil.copytree(killed, tmp_path / "archive")
    file = archive_files(tmp_path / "archive")[place]
    DAMAGE[damage][0](file, random.Random(1))
    numbers = FileNumbers(tmp_path / "archive")
    numbers.close()
    assert f"file {place % 6 + 1} is missing" in numbers.damage or numbers.damage == f"{file} is truncated"


def test_the_start_reports_many_losses_as_a_number(killed: Path, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    for number in range(20):
        write(directory, Story().put(number, "t", b"").rows, moment=NOON)
    for file in archive_files(directory):
        os.truncate(file, 0)
    numbers = FileNumbers(directory)
    numbers.close()
    assert numbers.damage.count("is truncated") == 10 and numbers.damage.endswith("; 10 more")


@pytest.mark.parametrize("part", ["footer", "data page"])
def test_each_part_of_a_file_is_checked(killed: Path, tmp_path: Path, part: str) -> None:
    shutil.copytree(killed, tmp_path / "archive")
    file = archive_files(tmp_path / "archive")[1]
    content = bytearray(file.read_bytes())
    content[-20 if part == "footer" else 40] ^= 1
    file.write_bytes(content)
    assert damage_of(tmp_path / "archive") == [f"{file} is damaged: its checksum is wrong"]


def mqbridge(*words: object) -> Result:
    return CliRunner().invoke(program, [str(word) for word in words])


@pytest.mark.parametrize("place", [0, 2, -1], ids=["first", "in between", "last"])
def test_each_command_reports_a_missing_file(killed: Path, tmp_path: Path, place: int) -> None:
    """Its period can be excluded. With --accept-loss, it is a gap."""
    directory = tmp_path / "archive"
    shutil.copytree(killed, directory)
    archive_files(directory)[place].unlink()
    text = f"file {place % 6 + 1} is missing"
    for command, status in ((("audit", "--archive"), 2), (("report", "--archive"), 2), (("data", "verify"), 1)):
        result = mqbridge(*command, directory)
        assert result.exit_code == status and text in result.output and "--accept-loss" in result.output, result.output
    accepted = mqbridge("audit", "--archive", directory, "--accept-loss", "--json")
    assert accepted.exit_code == 3 and text in accepted.stderr, accepted.output
    assert len(json.loads(accepted.stdout)["gaps"]) == 1
    assert mqbridge("report", "--archive", directory, "--accept-loss").exit_code == 0
    with pytest.raises(ArchiveDamaged, match=text):
        ReplaySelection(directory)
    assert ReplaySelection(directory, report=lambda loss: None).count() == 10
    hour = datetime.fromtimestamp(at(HOURS[0 if place else -1] * HOUR) / 1_000_000, UTC) - timedelta(hours=not place)
    limits = {0: {"start": hour}, 2: {"end": hour - timedelta(hours=1)}, -1: {"end": hour}}[place]
    complete_files(directory, **limits)


def test_a_message_in_a_lost_file_is_not_reported_as_lost(tmp_path: Path) -> None:
    """The audit of an archive without the file with the delivery."""
    directory = tmp_path / "archive"
    story = Story().archive(Outcome.STARTED, 0).subscribed("c", 1, "t", 1).put(10, "t", b"x")
    first = len(story.rows)
    story.out(10.1, "c", "t", b"x", since=10).put(3700, "t", b"y").out(3701, "c", "t", b"y", since=3700)
    write(directory, story.rows[:first])
    write(directory, story.rows[first : first + 1])
    write(directory, story.rows[first + 1 :], moment=NOON + timedelta(hours=1))
    assert audit([directory]).held
    archive_files(directory)[1].write_bytes(b"")
    with pytest.raises(ArchiveDamaged, match="checksum"):
        audit([directory])
    reported: list[str] = []
    accepted = audit([directory], report=lambda loss: reported.append(loss.text))
    assert len(reported) == 1 and accepted.held
    assert (accepted.totals.delivered, accepted.totals.unknown, accepted.totals.lost) == (1, 1, 0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., ArchiveWriter]]:
    writers: list[ArchiveWriter] = []

    def call(**values: Any) -> ArchiveWriter:
        writers.append(ArchiveWriter(ArchiveConfig(directory=tmp_path / "archive", **values)))
        assert writers[-1].claim_directory()
        return writers[-1]

    yield call
    for writer in writers:
        writer.close()


def test_the_writer_reports_a_missing_end_and_readers_notice_it_later(
    make: Callable[..., ArchiveWriter], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "archive"
    for number in range(3):
        writer = make()
        writer.take([publications(at(number), "t")], 10)
        writer.close()
    assert len(rows(directory)) == 3 and not caplog.text
    archive_files(directory)[-1].unlink()
    (directory / WITNESS).unlink()
    for number in range(3, 5):
        writer = make()
        writer.take([publications(at(number), "t")], 10)
        writer.close()
    # The first start notices the end, the second one the skipped number.
    first, second = (record.getMessage() for record in caplog.records if "MQB7012E" in record.getMessage())
    assert f"{directory / WITNESS} is missing" in first and "file 3 is missing, between" in second
    with pytest.raises(ArchiveDamaged, match="file 3 is missing, between"):
        rows(directory)


def test_a_number_that_cannot_be_recorded_is_logged(
    make: Callable[..., ArchiveWriter],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(*_arguments: object) -> int:
        raise OSError(5, "Input/output error")

    writer = make()
    with monkeypatch.context() as patched:
        patched.setattr("bridge.witness.os.pwrite", failing)
        writer.take([publications(at(0), "t")], 10)
        writer.close()
    assert "MQB7013E" in caplog.text and len(rows(tmp_path / "archive")) == 1


def test_a_full_disk_at_the_start_is_a_gap(
    make: Callable[..., ArchiveWriter], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The witness cannot be created. Writing continues as soon as possible."""

    def failing(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(bridge.archive.completeness, "create", failing)
        writer = make()
        writer.take([publications(at(0), "a")], 10)
        writer._finish()
    writer.take([publications(at(1), "b")], 10)
    writer.close()
    assert [row["topic"] for row in rows(tmp_path / "archive") if row["direction"] == "in"] == ["b"]


@pytest.mark.parametrize("old", [(20,), (20, 10)], ids=["some", "all"])
def test_days_that_the_retention_removes_are_not_missing(
    make: Callable[..., ArchiveWriter], tmp_path: Path, old: tuple[int, ...]
) -> None:
    directory = tmp_path / "archive"
    today = datetime.now(UTC)
    for days in (20, 10):
        write(directory, Story().put(1, "t", b"").rows, moment=today - timedelta(days=days))
    writer = make(retention_days=min(old) - 1)
    writer.maintain()
    assert len(archive_files(directory)) == 2 - len(old) and not damage_of(directory)
    writer.take([publications(int(today.timestamp() * 1_000_000), "new")], 10)
    writer.close()
    assert len(archive_files(directory)) == 3 - len(old) and not damage_of(directory)
    assert {path.name for path in directory.iterdir() if not path.name.startswith("date=")} == {".lock", WITNESS}


def test_files_of_release_0_2_0_are_read_and_have_no_numbers(tmp_path: Path) -> None:
    old = write(tmp_path / "archive", Story().put(1, "t", b"old").rows)
    (file,) = archive_files(old)
    file.rename(file.with_name("0000000000000001-0123abcd.parquet"))
    (old / WITNESS).unlink()
    assert len(rows(old)) == 1
    write(old, Story().put(2, "t", b"new").rows, moment=NOON + timedelta(hours=1))
    assert len(rows(old)) == 2 and mqbridge("data", "verify", old).exit_code == 0
    archive_files(old)[-1].unlink()
    with pytest.raises(ArchiveDamaged, match="file 1 is missing"):
        rows(old)


@pytest.mark.parametrize(
    ("remaining_days", "complete"),
    [([0], True), ([0, 1], True), ([-31], False), ([-30], False), ([-31, 0], False), ([], False)],
    ids=str,
)
def test_days_that_release_0_2_0_has_removed_are_not_missing(
    make: Callable[..., ArchiveWriter],
    tmp_path: Path,
    remaining_days: list[int],
    complete: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a downgrade, 0.2.0 writes files without numbers, and its retention removes the days of all others.

    `left` are the days of its files, from today. The day with numbers was 30 days ago.
    """
    directory, today = tmp_path / "archive", datetime.now(UTC)
    month_ago = today - timedelta(days=30)
    write(directory, Story().put(1, "t", b"").rows, moment=month_ago)
    position = read_witness(directory / WITNESS)
    assert position is not None
    create(directory / WITNESS, position._replace(time=month_ago.timestamp()))
    (numbered,) = archive_files(directory)
    for days in remaining_days:
        hour = partition(directory, today + timedelta(days=days))
        hour.mkdir(parents=True, exist_ok=True)
        shutil.copy(numbered, hour / "0000000000000001-0123abcd.parquet")
    numbered.unlink()
    assert (damage_of(directory) == []) is complete
    writer = make()
    writer.take([publications(int(today.timestamp() * 1_000_000), "new")], 10)
    writer.close()
    assert ("MQB7012E" not in caplog.text) is complete
    (new,) = filter(None, map(NumberedFile.of, archive_files(directory)))
    assert (new.number, new.first) == (2, 2)


def test_a_copy_of_some_days_is_read_with_their_limits(tmp_path: Path) -> None:
    """Whole days are missing at the beginning, the newest ones at the end."""
    days = [NOON + timedelta(days=days) for days in range(4)]
    for number, day in enumerate(days):
        write(tmp_path / "archive", Story().put(number, "t", b"").rows, moment=day)
    copy = tmp_path / "copy"
    shutil.copytree(
        tmp_path / "archive", copy, ignore=lambda _place, names: [f"date={days[0]:%F}", f"date={days[3]:%F}"]
    )
    with pytest.raises(ArchiveDamaged, match=r"file 4 is missing, the last one was finished at .* UTC"):
        complete_files(copy)
    assert len(complete_files(copy, end=days[1])) == 1


def test_a_file_is_on_disk_before_it_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure, the witness may be older than the files, but not newer."""
    steps: list[str] = []
    fsync, pwrite = os.fsync, os.pwrite

    def synced(descriptor: int) -> None:
        steps.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        fsync(descriptor)

    def written(*arguments: Any) -> int:
        steps.append("recorded")
        return pwrite(*arguments)

    archive = tmp_path / "archive"
    write(archive, Story().put(1, "t", b"").rows)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "pwrite", written)
    write(archive, Story().put(2, "t", b"").rows)
    assert steps[-5:] == [".0000000000000001.parquet", "hour=12", "date=2026-03-02", "archive", "recorded"]
