"""An admin port with a certificate accepts TLS only."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bridge.console.server import MAX_HANDSHAKES
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.console import Console
from tests.helpers.patience import PATIENCE
from tests.helpers.unfinished_connections import assert_cut_off, unfinished_connections

CONFIG = "admin: {{port: 0, tls: {{certificate_file: {directory}/admin.pem, key_file: {directory}/admin.key}}}}\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    new_authority = Authority(tmp_path_factory.mktemp("authority"))
    new_authority.issue("admin")
    return new_authority


@pytest.fixture(scope="module")
def trust(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BridgeProcess]:
    config = CONFIG.format(directory=authority.directory)
    with at_work(BridgeProcess(tmp_path_factory.mktemp("tls") / "data", config=config)) as process:
        yield process


def at(bridge: BridgeProcess, tls: ssl.SSLContext | None) -> Console:
    """Return a user of the console that connects to the host name in the certificate."""
    console = Console(bridge, tls)
    console.place = console.place.replace("127.0.0.1", "localhost")
    return console


def test_the_console_works_over_tls(bridge: BridgeProcess, trust: ssl.SSLContext) -> None:
    console = at(bridge, trust).log_in()
    assert list(console.cookies) == ["__Host-mqbridge"]
    assert "published 1 byte" in console.change("/topics/publish", topic="by/tls", payload="x").text
    assert console.get("/healthz").status == 200
    assert console.get("/metrics").status == 200


def test_connections_without_a_current_version_of_tls_are_rejected(bridge: BridgeProcess) -> None:
    console = at(bridge, None)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        console.get("/healthz")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        at(bridge, old).get("/healthz")


def test_a_new_certificate_applies_to_the_next_connection(
    bridge: BridgeProcess, authority: Authority, trust: ssl.SSLContext
) -> None:
    console = at(bridge, trust)
    host, _, port = console.place.partition(":")

    def serial() -> int:
        plain = socket.create_connection((host, int(port)), PATIENCE)
        with trust.wrap_socket(plain, server_hostname=host) as tls:
            return int(str((tls.getpeercert() or {})["serialNumber"]), 16)

    before = serial()
    certificate = authority.issue("admin")
    assert serial() == certificate.serial_number != before
    assert console.get("/healthz").status == 200


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
def test_unfinished_handshakes_do_not_keep_others_out(
    bridge: BridgeProcess, trust: ssl.SSLContext, sent: bytes
) -> None:
    """Above the maximum number of handshakes, the oldest ones are closed."""
    console = at(bridge, trust)
    host, _, port = console.place.partition(":")
    with unfinished_connections(host, int(port), 3 * MAX_HANDSHAKES, sent) as oldest:
        assert console.get("/healthz").status == 200
        assert_cut_off(oldest)


def test_handshakes_of_the_address_with_most_of_them_are_closed_first(
    bridge: BridgeProcess, trust: ssl.SSLContext
) -> None:
    console = at(bridge, trust)
    host, _, port = console.place.partition(":")
    place = host, int(port)
    with ExitStack() as connections:

        def connect(source: str) -> socket.socket:
            return connections.enter_context(socket.create_connection(place, PATIENCE, (source, 0)))

        slow = connect("127.0.0.3")
        first, *_ = [connect("127.0.0.2") for _ in range(2 * MAX_HANDSHAKES)]
        assert console.get("/healthz").status == 200
        assert_cut_off(first)
        trust.wrap_socket(slow, server_hostname=host).close()
