"""Commands of root on the data directory of another user: they import nothing while they act as that user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.mq.data_directory import DATABASE
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import PATIENCE

#: Runs a command, and prints the modules that it imports between each change of the user and the change back.
PROGRAM = """
import contextlib, sys
from bridge.mq import database

modules = set()

@contextlib.contextmanager
def acting_as_owner(directory):
    before = set(sys.modules)
    yield
    modules.update(set(sys.modules) - before)

database.acting_as_owner = acting_as_owner
from bridge.cli import main
try:
    main()
finally:
    print("imported:", *sorted(modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the data directory `data`."""
    directory = tmp_path_factory.mktemp("owner")
    bridge = BridgeProcess(directory / "data")
    bridge.start()
    assert bridge.stop() == 0
    assert (directory / "data" / DATABASE).exists()
    return directory


def test_nothing_is_imported_as_the_owner(place: Path) -> None:
    """The owner may not be able to read the interpreter, which may be in root's home."""
    for words in (
        "backup new.tar --data-dir data",
        "restore new.tar --data-dir restored",
        "restore new.tar --data-dir restored --force",
        "salvage data salvaged",
    ):
        command = [sys.executable, "-c", PROGRAM, "data", *words.split()]
        process = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert process.returncode == 0, process.stderr
        assert process.stderr.splitlines()[-1] == "imported:", words
