"""Files of a bridge belong to its user and group, whatever umask it was started with."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.patience import eventually
from tests.helpers.raw_client import RawClient

CONFIG = """
channels:
  - {{port: 0}}
  - {{name: UNIX, socket: {0}/made/mqtt.sock}}
archive: {{directory: {0}/archive, roll: {{time: 100 ms}}}}
audit_log: {{file: {0}/made/audit.jsonl}}
admin: {{port: 0}}
"""


def too_open(mode: int) -> bool:
    """Return whether permissions exceed those that SECURITY.md documents for files, directories and sockets."""
    allowed = 0o750 if stat.S_ISDIR(mode) else 0o660 if stat.S_ISSOCK(mode) else 0o640
    return bool(stat.S_IMODE(mode) & ~allowed)


@pytest.mark.parametrize("umask", [0o000, *(pytest.param(mask, marks=pytest.mark.slow) for mask in (0o022, 0o077))])
def test_others_have_no_access(umask: int, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    before = os.umask(umask)
    try:
        bridge = BridgeProcess(tmp_path / "data", config=CONFIG.format(tmp_path)).start()
    finally:
        os.umask(before)
    with RawClient.connected(bridge.port, "dev", clean=False) as client:
        client.subscribe(("t", 1))
        client.publish("t", b"secret", 1)
    eventually(lambda: any(tmp_path.rglob("*.parquet")), True)
    paths = [tmp_path / "data", tmp_path / "archive"]
    paths += [path for name in ("data", "archive", "made") for path in (tmp_path / name).rglob("*")]
    names = {path.name for path in paths}
    assert {"queuemanager.db", "queuemanager.reserve", "control.sock", "mqbridge.sock"} <= names
    assert {"mqtt.sock", "audit.jsonl", "admin.tokens"} <= names
    wrong = {str(path): oct(path.stat().st_mode) for path in paths if path.exists() and too_open(path.stat().st_mode)}
    assert wrong == {}
    assert (tmp_path / "data" / "admin.tokens").stat().st_mode & 0o077 == 0
    assert bridge.stop() == 0
    bridge.discard()
