"""What looks for secrets in all that programs of the tests say finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bridge_process import BridgeProcess
from tests.support.known_secrets import KNOWN, assert_no_secret


@pytest.mark.parametrize("secret", KNOWN)
def test_a_known_secret(secret: str) -> None:
    with pytest.raises(AssertionError, match="is in a log"):
        assert_no_secret(f"user dev: {secret} 7", "a log")


def test_the_token_of_a_bridge(tmp_path: Path) -> None:
    """A bridge whose log had the token of its admin port would fail the test that it belongs to."""
    bridge = BridgeProcess(tmp_path / "data", config="channels: [{port: 0}]\nadmin: {port: 0}\n").start()
    token = (tmp_path / "data" / "admin.tokens").read_text().splitlines()[-1].rpartition(":")[2]
    log = bridge.log_file.read_text()
    with bridge.log_file.open("a") as file:
        file.write(token)
    with pytest.raises(AssertionError, match=r"data\.log"):
        bridge.stop()
    bridge.log_file.write_text(log)
    bridge.discard()
