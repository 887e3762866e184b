"""Expiry dates of certificates are read from their files, and again when the files change."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from bridge.cli.check import expiring
from bridge.config.models import Configuration
from bridge.security.tls import certificates_in_use
from tests.helpers.certificate_authority import Authority, make


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    make(tmp_path)
    tls = {"certificate_file": tmp_path / "server.pem", "key_file": tmp_path / "server.key"}
    return Configuration(
        channels=[{"name": "PLAIN"}, {"name": "TLS", "port": 8883, "tls": tls}],
        admin={"port": 0, "tls": tls},
    )


def gathered(configuration: Configuration) -> dict[tuple[str, ...], object]:
    return {
        (certificate.use, certificate.name): certificate.expiry for certificate in certificates_in_use(configuration)
    }


def test_each_listener_with_tls(configuration: Configuration) -> None:
    """Channels with TLS and the admin port. The test certificates are valid for two days."""
    expiries = gathered(configuration)
    assert expiries.keys() == {("channel", "TLS"), ("admin", "")}
    assert expiries["channel", "TLS"] == pytest.approx(time.time() + 2 * 86_400, abs=3_600)


def test_a_file_that_changes(configuration: Configuration, tmp_path: Path) -> None:
    """Another certificate is noticed at the next inspection. Without a valid file, the metric is missing."""
    before = gathered(configuration)
    file = tmp_path / "server.pem"
    file.write_text("no certificate")
    assert gathered(configuration) == {}
    file.unlink()
    assert gathered(configuration) == {}
    shutil.copy(tmp_path / "client.pem", file)
    os.utime(file, (0, 0))
    assert gathered(configuration).keys() == before.keys()


def test_client_certificates(tmp_path: Path) -> None:
    """Certificates of links and of Spark. A broker rejects an expired one, and nothing else reports it."""
    make(tmp_path)
    tls = {"certificate_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
    expiries = gathered(
        Configuration(
            links={"cloud": {"host": "h", "tls": tls}, "plain": {"host": "h"}, "server": {"host": "h", "tls": {}}},
            spark={"tls": tls},
        )
    )
    assert expiries.keys() == {("link", "cloud"), ("spark", "")}


def test_the_key_repository(tmp_path: Path) -> None:
    """A PKCS#12 file with a password file. Only IBM's library reads stash files and CMS key repositories."""
    authority = Authority(tmp_path)
    authority.issue("server", ends=48.0)
    store = authority.key_repository("server", "s3cret", label="server")
    (tmp_path / "password").write_text("s3cret\n")
    tls = {"key_repository": store, "cipher_spec": "ANY_TLS12_OR_HIGHER"}
    queue_manager = {"type": "ibm", "name": "QM1", "channel": "C", "connections": ["h(1)"]}
    with_password = tls | {"key_repository_password_file": tmp_path / "password"}
    expiries = gathered(Configuration(queue_manager=queue_manager | {"tls": with_password}))
    assert expiries["key_repository", ""] == pytest.approx(time.time() + 2 * 86_400, abs=3_600)
    assert gathered(Configuration(queue_manager=queue_manager | {"tls": tls})) == {}


@pytest.mark.parametrize(("days", "line"), [(2, "expires on"), (60, "")])
def test_check_reports_the_certificate_of_a_link(tmp_path: Path, days: int, line: str) -> None:
    make(tmp_path, days)
    link = {"host": "h", "tls": {"certificate_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}}
    notes = list(expiring(Configuration(links={"cloud": link})))
    assert [line for note in notes if f"link cloud: tls.certificate_file {tmp_path / 'client.pem'} {line}" in note] == (
        [line] if line else []
    )
    assert len(notes) == bool(line)
