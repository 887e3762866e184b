"""A process whose disk fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc
from tests.helpers.damaged_database import BODIES, bodies
from tests.helpers.faulty_disk import compiled
from tests.helpers.patience import PATIENCE

_PROGRAM = """
import sys
from pathlib import Path
from tests.helpers.damaged_database import put, started
from bridge.mq.mqi import MQError
directory, fault, word = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
manager = started(directory)
put(manager, b"before")
fault.write_text(word)
try:
    put(manager, b"during")
    print("committed", flush=True)
except MQError as error:
    print(error.reason, flush=True)
fault.unlink(missing_ok=True)
if sys.stdin.readline().strip() == "go on":
    put(manager, b"after")
    print("committed", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def faulty_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("faulty"))


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("fsync once", str(cmqc.MQRC_RESOURCE_PROBLEM)),
        ("full", str(cmqc.MQRC_RESOURCE_PROBLEM)),
        ("full once", "committed"),  # written again after the log is emptied
    ],
)
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_commit_reported_as_failed_does_not_return_after_a_crash(
    faulty_disk: Path, tmp_path: Path, word: str, outcome: str, goes_on: bool
) -> None:
    """After a failed fsync, the frames of the transaction are in the log. A crash must not restore them."""
    fault = tmp_path / "fault"
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "data"), str(fault), word],
        env={**os.environ, "LD_PRELOAD": str(faulty_disk), "FAULTY_DISK": str(fault)},
        cwd=Path(__file__).parents[5],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline().strip() == outcome
        if goes_on:
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline().strip() == "committed"
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    manager = QueueManager("MQB1", tmp_path / "data")
    try:
        assert bodies(manager) == [b"before"] + [b"during"] * (outcome == "committed") + [b"after"] * goes_on
    finally:
        manager.close()


@pytest.mark.parametrize("word", ["full", "fsync"])
def test_a_start_on_a_failing_disk_does_not_report_damaged_data(
    faulty_disk: Path, written: Path, tmp_path: Path, word: str
) -> None:
    copy = shutil.copytree(written, tmp_path / "copy")
    process = subprocess.run(
        [Path(sys.executable).with_name("mqbridge"), "run", "--data-dir", copy, "--port", "0"],
        env={**os.environ, "LD_PRELOAD": str(faulty_disk), "FAULTY_DISK_AT": f"{word}:1:100"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 1
    assert "queuemanager.db cannot be used: " in process.stderr and "start again" in process.stderr
    assert "damaged" not in process.stderr and "Traceback" not in process.stderr
    manager = QueueManager("MQB1", copy)
    try:
        assert bodies(manager) == BODIES
    finally:
        manager.close()
