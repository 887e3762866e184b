"""When certificates expire is read from their files, again when these change."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from bridge.config.models import Configuration
from bridge.security.tls import expiries
from tests.helpers import certificates


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    certificates.make(tmp_path)
    tls = {"certificate_file": tmp_path / "server.pem", "key_file": tmp_path / "server.key"}
    return Configuration(
        channels=[{"name": "PLAIN"}, {"name": "TLS", "port": 8883, "tls": tls}],
        admin={"port": 0, "tls": tls},
    )


def gathered(configuration: Configuration) -> dict[tuple[str, ...], object]:
    return {(listener, channel): expiry for listener, channel, _, expiry in expiries(configuration)}


def test_each_listener_with_tls(configuration: Configuration) -> None:
    """The channels that have TLS, and the admin port; the certificates of these tests are good for two days."""
    found = gathered(configuration)
    assert found.keys() == {("channel", "TLS"), ("admin", "")}
    assert found["channel", "TLS"] == pytest.approx(time.time() + 2 * 86_400, abs=3_600)


def test_a_file_that_changes(configuration: Configuration, tmp_path: Path) -> None:
    """Another certificate is seen at the next look; a file that is none, or is gone, leaves its metric out."""
    before = gathered(configuration)
    file = tmp_path / "server.pem"
    file.write_text("no certificate")
    assert gathered(configuration) == {}
    file.unlink()
    assert gathered(configuration) == {}
    shutil.copy(tmp_path / "client.pem", file)
    os.utime(file, (0, 0))
    assert gathered(configuration).keys() == before.keys()
