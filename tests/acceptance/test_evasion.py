"""Attempts to evade the rules of a channel: resets, floods, names, proxies."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from bridge.cli.program import program
from bridge.mqtt.packets import Disconnect, Publish, Will
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.patience import PATIENCE, eventually, until
from tests.helpers.raw_client import ConnectionClosed, RawClient

SECRET = "correct horse 8"
CONFIG = """
audit_log: {{file: {0}/audit.jsonl}}
channel_authentication:
  - {{channel: "*", type: BLOCKADDR, address_list: [127.0.0.9]}}
  - {{channel: KEPT.OUT, type: ADDRESSMAP, address: 127.*, user_source: NOACCESS}}
  - {{channel: BY.NAME, type: USERMAP, client_user: mapped-device, mcauser: plant}}
  - {{channel: BY.NAME, type: USERMAP, client_user: factory-line-1, mcauser: line}}
  - {{channel: BY.NAME, type: USERMAP, client_user: factory-line-2, mcauser: line}}
  - {{channel: PROXY.NAME, type: SSLPEERMAP, ssl_peer: "O=Example,OU=admin", mcauser: plant}}
channels:
  - {{name: FREE, port: 0}}
  - {{name: KEPT.OUT, port: 0}}
  - {{name: PROXIED, port: 0, proxies: [192.0.2.0/24]}}
  - {{name: PER.ADDRESS, port: 0, max_clients_per_address: 2}}
  - name: TOKEN
    port: 0
    publish_rate: 10
    authentication: [{{method: jwt, key_file: {0}/issuer.pem, leeway: 0 s}}]
  - {{name: PINGED, port: 0, websocket: {{}}, publish_bytes: 1 KiB, connect_timeout: 2 s}}
  - {{name: WS, port: 0, websocket: {{}}, max_connect_size: 1 KiB}}
  - {{name: TLS, port: 0, max_connect_size: 1 KiB, tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
  - name: BY.NAME
    port: 0
    authentication: [{{method: password, file: {0}/clients}}]
    publish_topics: ["of/%u/#"]
    subscribe_topics: ["of/%u/#"]
  - {{name: BY.CLIENT, port: 0, subscribe_topics: ["%c/#"]}}
  - name: PROXY.NAME
    port: 0
    proxies: [127.0.0.1]
    authentication: [{{method: certificate}}]
    tls:
      certificate_file: {0}/server.pem
      key_file: {0}/server.key
      client_certificates: optional
      ca_file: {0}/ca.pem
"""
#: Concurrent connections, and the bytes that each announces.
CONNECTIONS, LENGTH = 16, 4_000_000
#: When a client resets its connection.
MOMENTS = ("before CONNECT", "in CONNECT", "behind CONNECT", "behind the answer")
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Peak:
    """The peak of a bridge's memory from now on."""

    def __init__(self, bridge: BridgeProcess) -> None:
        assert bridge.process is not None
        self._directory = Path(f"/proc/{bridge.process.pid}")
        (self._directory / "clear_refs").write_text("5")  # reset the peak (proc_pid_clear_refs(5))
        self._before = self._peak()

    def grown(self) -> int:
        """Return the maximum increase in bytes."""
        return self._peak() - self._before

    def _peak(self) -> int:
        (line,) = (row for row in (self._directory / "status").read_text().splitlines() if row.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024


def unfinished_connection(bridge: BridgeProcess, channel: str) -> socket.socket:
    """A connection that has started a packet of maximum length other than CONNECT."""
    connection: socket.socket = socket.create_connection(("127.0.0.1", bridge.ports[channel]), PATIENCE)
    if channel == "TLS":
        context = ssl.create_default_context(cafile=str(bridge.data_directory.parent / "ca.pem"))
        connection = context.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(b"\x10" + b"\xff\xff\xff\x7f")
    else:
        connection.sendall(UPGRADE)
        connection.sendall(b"\x82\xff" + struct.pack("!Q", LENGTH) + bytes(4))
    return connection


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("evasion"))


@pytest.fixture(scope="module")
def bridge(authority: Authority, key: ec.EllipticCurvePrivateKey) -> Iterator[BridgeProcess]:
    directory = authority.directory
    authority.issue("server")
    authority.client("proxy")
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (directory / "issuer.pem").write_bytes(public)
    for file, user in (
        ("clients", "factory-line-1"),
        ("clients", "factory-line-2"),
        ("clients", "factory-line-3"),
        ("clients", "mapped-device"),
    ):
        password(directory / file, user)
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        yield process


def password(file: Path, user: str) -> None:
    result = CliRunner().invoke(
        program, ["passwd", str(file), user, "--stdin", "--scram-iterations", "4096"], input=f"{SECRET}\n"
    )
    assert result.exit_code == 0, result.output


def reset(client: RawClient, moment: str) -> None:
    """Reset a connection at a moment when the other side can no longer read its address."""
    with suppress(ConnectionClosed):  # rejected at once
        if moment == "in CONNECT":
            client.send_bytes(encode(client.packet)[:7])
        elif moment != "before CONNECT":
            client.send(client.packet)
        if moment == "behind the answer":
            client.receive()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def accepted_client(port: int, client_id: str) -> RawClient:
    """Return a client as soon as its connection is accepted."""
    tried: list[RawClient] = []

    def comes_in() -> bool:
        tried.append(RawClient(port, client_id))
        try:
            return tried[-1].connect().return_code == 0
        except ConnectionClosed:
            return False

    until(comes_in)
    return tried[-1]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("channel", "source", "there"),
    [("KEPT.OUT", "", 0), ("PROXIED", "", 0), ("FREE", "127.0.0.9", 0), ("PER.ADDRESS", "", 2)],
    ids=["ADDRESSMAP", "proxies", "BLOCKADDR", "max_clients_per_address"],
)
def test_a_reset_does_not_evade_the_address_rules(
    bridge: BridgeProcess, channel: str, source: str, there: int, moment: str
) -> None:
    """A client with a blocked address leaves no will, however its connection ends."""
    topic = f"reset/{channel}/{moment}"
    with ExitStack() as stack:
        watcher = stack.enter_context(RawClient.connected(bridge.ports["FREE"], "watcher"))
        assert watcher.subscribe((topic, 1)) == (1,)
        for number in range(there):
            stack.enter_context(accepted_client(bridge.ports[channel], f"there {number}"))
        for number in range(10):
            reset(RawClient(bridge.ports[channel], f"r{number}", will=Will(topic, b"got in", 1), source=source), moment)
        marker = stack.enter_context(RawClient.connected(bridge.ports["FREE"], "marker"))
        marker.publish(topic, b"marker", 1)
        assert watcher.wait_for(Publish).payload == b"marker"


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_reset_frees_its_place(bridge: BridgeProcess, moment: str) -> None:
    """Neither of the two places of an address stays in use, whenever its connections are reset."""
    port = bridge.ports["PER.ADDRESS"]
    for number in range(5):
        reset(RawClient(port, f"p{number}"), moment)

    def connect_both() -> list[int]:
        with RawClient(port, "one") as first, RawClient(port, "two") as second:
            try:
                return [first.connect().return_code, second.connect().return_code]
            except ConnectionClosed:
                return []

    eventually(connect_both, [0, 0])


def test_a_flood_does_not_extend_a_token(bridge: BridgeProcess, key: ec.EllipticCurvePrivateKey) -> None:
    """The bridge stops reading from a client that sends too much. Its connection still ends with its token."""
    token = jwt.encode({"sub": "dev", "exp": int(time.time()) + 3}, key, algorithm="ES256")
    with RawClient(bridge.ports["TOKEN"], "flood", level=5, password=token.encode()) as client:
        assert client.connect().return_code == 0
        client.send_bytes(encode(Publish("t", b"x", 0), protocol_level=5) * 2_000)
        assert client.wait_for(Disconnect).reason_code == ReasonCode.MAXIMUM_CONNECT_TIME


def test_pings_of_a_websocket_do_not_replace_connect(bridge: BridgeProcess) -> None:
    """Without CONNECT, a connection ends after connect_timeout, however slowly its data arrives."""
    with socket.create_connection(("127.0.0.1", bridge.ports["PINGED"]), PATIENCE) as connection:
        connection.sendall(UPGRADE)
        ping = b"\x89\xfd" + bytes(4) + bytes(125)
        end = time.monotonic() + PATIENCE
        try:
            while True:
                assert time.monotonic() < end, "it is connected still"
                connection.sendall(ping)
                connection.settimeout(0.05)
                try:
                    if not connection.recv(65_536):
                        break
                except TimeoutError:
                    continue
        except OSError:
            pass
    eventually(lambda: "no CONNECT within 2 s" in bridge.log, True)


@pytest.mark.parametrize(
    ("channel", "why"),
    [
        ("WS", "no CONNECT is in more bytes than max_connect_size allows for"),
        ("TLS", "max_connect_size: 268435460 bytes"),
    ],
)
def test_unauthenticated_clients_can_send_little(bridge: BridgeProcess, channel: str, why: str) -> None:
    """A long frame before CONNECT is not buffered: the connection is closed, and memory does not grow."""
    before = len(bridge.log)
    peak = Peak(bridge)
    connections = [unfinished_connection(bridge, channel) for _ in range(CONNECTIONS)]
    with ExitStack() as stack:
        for connection in connections:
            stack.enter_context(connection)
            with suppress(OSError):
                for _ in range(LENGTH // 65_536):
                    connection.sendall(bytes(65_536))
        for connection in connections:
            with suppress(ConnectionResetError, BrokenPipeError, ssl.SSLError):
                while connection.recv(65_536):
                    pass
    # Connections of former tests may end now, too.
    until(lambda: bridge.log[before:].count(why) >= CONNECTIONS)
    assert peak.grown() < CONNECTIONS * LENGTH / 4


def test_names_are_compared_completely(bridge: BridgeProcess) -> None:
    """Users with the same first twelve characters share no topics, and mapped users keep their own."""
    for user, code in (("factory-line-1", 0), ("factory-line-2", 0x87), ("mapped-device", 0x87)):
        with RawClient(bridge.ports["BY.NAME"], user, level=5, user_name=user, password=SECRET.encode()) as client:
            assert client.connect().return_code == 0
            filters = ["of/factory-line-1/#", f"of/{user}/#", "of/factory-line/#", "of/plant/#"]
            assert client.subscribe(*((topic_filter, 0) for topic_filter in filters)) == (code, 0, 0x87, 0x87)


def test_a_name_that_is_too_long_for_mq_does_not_become_the_user_of_another_name(bridge: BridgeProcess) -> None:
    user = "factory-line-3"
    with RawClient(bridge.ports["BY.NAME"], user, level=5, user_name=user, password=SECRET.encode()) as client:
        assert client.connect().return_code == 0x86
    assert f"client '{user}'" in bridge.log and f"its user name '{user}' is longer than 12 bytes" in bridge.log


@pytest.mark.parametrize(("client_id", "code"), [("mine", 0), ("$SYS", 0x87)])
def test_a_client_identifier_gives_no_access_to_system_topics(bridge: BridgeProcess, client_id: str, code: int) -> None:
    with RawClient(bridge.ports["BY.CLIENT"], client_id, level=5) as client:
        assert client.connect().return_code == 0
        assert client.subscribe((f"{client_id}/#", 0)) == (code,)


def proxied(bridge: BridgeProcess, common_name: str | None) -> int:
    """The answer to a client whose Common Name comes from a proxy with its own certificate."""
    values = b""
    if common_name is not None:
        inner = struct.pack("!BH", 0x22, len(common_name)) + common_name.encode()
        ssl_value = struct.pack("!BI", 7, 0) + inner
        values = struct.pack("!BH", 0x20, len(ssl_value)) + ssl_value
    body = bytes([192, 0, 2, 1, 192, 0, 2, 9]) + struct.pack("!HH", 1, 2) + values
    header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack("!H", len(body)) + body
    directory = bridge.data_directory.parent
    context = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    context.load_cert_chain(directory / "proxy.pem", directory / "proxy.key")
    client = RawClient(bridge.ports["PROXY.NAME"], "proxied", level=5)
    client.socket.sendall(header)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    with client:
        return client.connect().return_code


@pytest.mark.parametrize(("common_name", "code"), [("pump-7", 0), (None, 0x87)])
def test_the_certificate_of_a_proxy_identifies_no_client(
    bridge: BridgeProcess, common_name: str | None, code: int
) -> None:
    """Behind a proxy, the header identifies the client. The certificate of the connection identifies the proxy."""
    assert proxied(bridge, common_name) == code


def test_a_common_name_with_commas_is_one_name(bridge: BridgeProcess) -> None:
    """No part of a name is parsed as another attribute, which could match a record of another user."""
    assert proxied(bridge, "e,OU=admin") == 0
    text = (bridge.data_directory.parent / "audit.jsonl").read_text(encoding="utf-8")
    entries = [entry for entry in map(json.loads, text.splitlines()) if entry["event"] == "connected"]
    assert entries[-1]["channel"] == "PROXY.NAME"
    assert entries[-1]["user"] == "e,OU=admin"
