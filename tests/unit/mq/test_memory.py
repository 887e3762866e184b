"""The memory watermark: the memory of a process, and when new messages are rejected and accepted again."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from bridge.mq import memory
from bridge.mq.memory import (
    CHILDREN_EVERY,
    MIB,
    SAMPLE_BYTES,
    MemoryWatermark,
    available_memory,
    children,
    memory_of,
    resident_memory,
)

TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
UNLIMITED_V1 = "9223372036854771712"
#: Lines of /proc/self/mountinfo with the root and the mount point.
V1 = "35 31 0:32 {root} {mount} rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V1_CPU = "36 31 0:33 / {mount}-cpu rw,relatime - cgroup cgroup rw,cpu\n"
V2 = "41 31 0:38 {root} {mount} rw - cgroup2 cgroup2 rw\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Create /proc of a machine without cgroups."""
    directory = tmp_path / "proc"
    (directory / "self").mkdir(parents=True)
    (directory / "self/cgroup").write_text("")
    (directory / "self/mountinfo").write_text("31 23 0:28 / /sys rw - sysfs sysfs rw\n")
    return directory


def cgroups(proc: Path, lines: str, mounts: str, limits: dict[str, str], *, root: str = "/") -> None:
    mount = proc.parent / "cgroup"
    (proc / "self/cgroup").write_text(lines)
    (proc / "self/mountinfo").write_text(mounts.format(root=root, mount=mount))
    for name, limit in limits.items():
        file = mount / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")


def test_without_cgroups_the_memory_of_the_machine_is_available(proc: Path) -> None:
    assert available_memory(proc) == TOTAL


@pytest.mark.parametrize(
    ("limits", "available"),
    [
        ({"a/b/memory.limit_in_bytes": "1000000"}, 1_000_000),
        ({"a/b/memory.limit_in_bytes": UNLIMITED_V1, "a/memory.limit_in_bytes": "2000000"}, 2_000_000),
        ({"a/b/memory.limit_in_bytes": "3000000", "memory.limit_in_bytes": "2000000"}, 2_000_000),
        ({"a/b/memory.limit_in_bytes": UNLIMITED_V1, "memory.limit_in_bytes": UNLIMITED_V1}, TOTAL),
        ({"other/memory.limit_in_bytes": "1000"}, TOTAL),
    ],
)
def test_the_lowest_limit_of_a_version_1_cgroup_and_its_ancestors_applies(
    proc: Path, limits: dict[str, str], available: int
) -> None:
    cgroups(proc, "4:cpu,cpuacct:/x\n3:memory:/a/b\n", V1_CPU + V1, limits)
    assert available_memory(proc) == available


@pytest.mark.parametrize(
    ("limits", "available"),
    [
        ({"a/b/memory.max": "1000000"}, 1_000_000),
        ({"a/b/memory.max": "max", "a/memory.max": "2000000"}, 2_000_000),
        ({"a/b/memory.max": "1000000", "a/b/memory.high": "900000"}, 900_000),
        ({"a/b/memory.max": "max", "a/memory.max": "max"}, TOTAL),
    ],
)
def test_the_lowest_limit_of_a_version_2_cgroup_and_its_ancestors_applies(
    proc: Path, limits: dict[str, str], available: int
) -> None:
    cgroups(proc, "0::/a/b\n", V2, limits)
    assert available_memory(proc) == available


@pytest.mark.parametrize(
    ("lines", "root", "mounts", "file"),
    [
        # Docker and cgroup version 1: the cgroup itself is mounted, and /proc/self/cgroup has its path on the machine.
        ("3:memory:/docker/1234\n", "/docker/1234", V1, "memory.limit_in_bytes"),
        # Another container's path, as nested containers see it.
        ("3:memory:/docker/1234/init\n", "/kubepods/5678", V1, "memory.limit_in_bytes"),
        # A private cgroup namespace.
        ("0::/\n", "/", V2, "memory.max"),
        ("0::/../sibling\n", "/", V2, "memory.max"),
    ],
)
def test_the_limit_of_a_container_applies(proc: Path, lines: str, root: str, mounts: str, file: str) -> None:
    cgroups(proc, lines, mounts, {file: "5000000"}, root=root)
    assert available_memory(proc) == 5_000_000


def test_this_process_has_memory_and_uses_some_of_it() -> None:
    assert 0 < resident_memory() < available_memory()


def test_the_children_of_all_threads_are_found(proc: Path) -> None:
    """The archive's process is in the same cgroup. A child that has just ended has none."""
    for process, pages in (("71", 200), ("72", 30)):
        (proc / process).mkdir()
        (proc / process / "statm").write_text(f"90000 {pages} 50 1 0 70 0\n")
    assert children(proc) == []  # a kernel that does not list them
    for thread, processes in (("70", "71 "), ("74", "72 73 "), ("75", "")):
        (proc / "self/task" / thread).mkdir(parents=True)
        (proc / "self/task" / thread / "children").write_text(processes)
    assert sorted(children(proc)) == ["71", "72", "73"]
    assert memory_of(children(proc), proc) == 230 * os.sysconf("SC_PAGE_SIZE")


class Process:
    """Return the memory use of the process, and the part that a trim releases."""

    def __init__(self) -> None:
        self.used = 60 * MIB
        self.children = 0
        self.available = 400 * MIB
        self.trimmed = 0
        self.trims = 0

    def trim(self) -> None:
        self.used -= self.trimmed
        self.trims += 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    own_process = Process()
    monkeypatch.setattr(memory, "resident_memory", lambda: own_process.used)
    monkeypatch.setattr(memory, "children", lambda: ["71"] if own_process.children else [])
    monkeypatch.setattr(memory, "memory_of", lambda processes: own_process.children if [*processes] else 0)
    monkeypatch.setattr(memory, "available_memory", lambda: own_process.available)
    monkeypatch.setattr(memory, "_trimmer", lambda: own_process.trim)
    return own_process


def watermark(setting: str | int | None) -> MemoryWatermark:
    mark = MemoryWatermark(setting)
    mark.use(setting)
    return mark


def tick(mark: MemoryWatermark, setting: str | int | None = "70%") -> None:
    """Run the timer once."""
    mark.use(setting)


def test_above_the_watermark_messages_are_rejected_until_memory_use_is_below_it_again(
    process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    mark = watermark("70%")
    assert (mark.watermark, mark.above, mark.problem) == (280 * MIB, False, "")
    assert mark.accepts(1)
    process.used = 281 * MIB
    tick(mark)
    assert mark.above
    assert [mark.accepts(1), mark.accepts(1, 3)] == [False, False]
    assert mark.rejected == 4
    assert mark.problem == (
        "new messages are rejected: memory use is 281 MiB, limits.memory_watermark is 280 MiB of 400 MiB"
    )
    process.used = 267 * MIB  # not yet, or rejection would start and stop all the time
    tick(mark)
    assert mark.above
    process.used = 265 * MIB
    tick(mark)
    assert not mark.above and mark.accepts(1)
    assert [record.getMessage()[:8] for record in caplog.records] == ["MQB0008E", "MQB0009I"]
    assert "4 were rejected" in caplog.text


def test_memory_of_children_is_part_of_memory_use(process: Process) -> None:
    mark = watermark("70%")
    process.used, process.children = 200 * MIB, 90 * MIB
    for _ in range(CHILDREN_EVERY):
        tick(mark)
    assert (mark.used, mark.above) == (290 * MIB, True)


def test_much_traffic_between_two_ticks_is_noticed(process: Process) -> None:
    mark = watermark("70%")
    process.used = 300 * MIB
    assert mark.accepts(SAMPLE_BYTES - 1)
    assert not mark.accepts(1)


def test_only_the_timer_ends_a_rejection(process: Process) -> None:
    """With traffic at the watermark, rejection would otherwise start and stop, with log lines, many times a second."""
    mark = watermark(100 * MIB)
    process.used = 101 * MIB
    assert not mark.accepts(SAMPLE_BYTES)
    process.used = 50 * MIB
    assert not mark.accepts(SAMPLE_BYTES)
    tick(mark, 100 * MIB)
    assert mark.accepts(1)


def test_freed_memory_is_released_before_messages_are_rejected(process: Process) -> None:
    mark = watermark("70%")
    process.used, process.trimmed = 300 * MIB, 100 * MIB
    tick(mark)
    assert not mark.above
    assert (mark.used, process.trims) == (200 * MIB, 1)


def test_trims_are_rare(process: Process) -> None:
    mark = watermark("70%")
    process.used = 300 * MIB
    for _ in range(100):
        tick(mark)
        mark.accepts(SAMPLE_BYTES)
    assert process.trims == 1


def test_a_changed_limit_takes_effect_while_the_bridge_runs(process: Process) -> None:
    mark = watermark("70%")
    process.used = 300 * MIB
    tick(mark)
    assert mark.above
    process.available = 1000 * MIB
    tick(mark)
    assert not mark.above


def test_without_a_watermark_nothing_is_rejected(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    mark = watermark(100 * MIB)
    process.used = 390 * MIB
    tick(mark, 100 * MIB)
    assert mark.above
    caplog.set_level(logging.INFO)
    tick(mark, None)
    assert not mark.above and mark.accepts(SAMPLE_BYTES)
    assert mark.watermark is None
    assert "accepted again" in caplog.text
