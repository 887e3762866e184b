"""MQTT over WebSockets (MQTT 3.1.1 section 6), the PROXY protocol, Unix sockets and IPv6, with a real bridge."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from bridge.mqtt.packets import Connack, Connect, Packet, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from bridge.mqtt.reader import Decoder
from bridge.mqtt.writer import encode
from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.bridges import at_work
from tests.helpers.certificate_authority import Authority
from tests.helpers.mqtt_js import MqttJs, Steps, data
from tests.helpers.patience import PATIENCE, eventually
from tests.helpers.raw_client import ConnectionClosed, RawClient

MQTT = [Subprotocol("mqtt")]
CONFIG = """
channels:
  - {{name: WS, port: 0, websocket: {{}}, max_packet_size: 1 MiB}}
  - name: WSS
    port: 0
    websocket: {{path: /ws/mqtt, origins: ["https://example.com"]}}
    tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}
  - {{name: PROXIED, port: 0, proxies: [127.0.0.1], authentication: [{{method: certificate}}, {{method: anonymous}}]}}
  - {{name: ELSEWHERE, port: 0, proxies: [192.0.2.0/24]}}
  - {{name: PROXIED.TLS, port: 0, proxies: [127.0.0.0/8],
     tls: {{certificate_file: {0}/server.pem, key_file: {0}/server.key}}}}
  - {{name: UNIX, socket: {0}/mqtt.sock}}
  - {{name: IPV6, address: "::1", port: 0}}
"""


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BridgeProcess]:
    directory = tmp_path_factory.mktemp("websockets")
    Authority(directory).issue("server")
    with at_work(BridgeProcess(directory / "data", config=CONFIG.format(directory))) as process:
        process.mqsc("DEFINE QLOCAL(SAID)\nDEFINE SUB(SAID) TOPICSTR('said/#') DEST(SAID)\n")
        yield process
    assert not (directory / "mqtt.sock").exists()


def trusting(bridge: BridgeProcess) -> ssl.SSLContext:
    """Return the TLS context of the client of websockets, which reads in a separate thread while it writes.

    With TLS 1.3, OpenSSL may lose data written while session tickets are read. TLS 1.2 sends none at that time.
    """
    context = ssl.create_default_context(cafile=str(bridge.data_directory.parent / "ca.pem"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


class WebSocketClient:
    """Packets over a WebSocket, grouped into frames or split as specified by a test."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self._decoder = Decoder(server=False, protocol_level=4)
        self._packets: list[Packet] = []

    def send(self, *packets: Packet) -> None:
        self.connection.send(b"".join(map(encode, packets)))

    def receive(self) -> Packet:
        while not self._packets:
            frame = self.connection.recv(PATIENCE)
            assert isinstance(frame, bytes)
            self._packets += self._decoder.feed(frame)
        return self._packets.pop(0)


def test_packets_in_frames_of_any_size(bridge: BridgeProcess) -> None:
    """Several packets share a frame, and one is divided into many (MQTT-6.0.0-2)."""
    with connect(f"ws://127.0.0.1:{bridge.ports['WS']}/mqtt", subprotocols=MQTT) as connection:
        assert connection.subprotocol == "mqtt"
        client = WebSocketClient(connection)
        client.send(Connect("ws"), Subscribe(1, (("t/#", 1),)))
        assert isinstance(client.receive(), Connack)
        assert isinstance(client.receive(), Suback)
        whole = encode(Publish("t/1", b"x" * 70_000, 1, False, False, 2))
        for begin in range(0, len(whole), 7_001):
            connection.send(whole[begin : begin + 7_001])
        connection.send([whole[:1], whole[1:]])  # fragments of one message
        received = sorted((client.receive() for _ in range(4)), key=lambda packet: type(packet).__name__)
        assert [type(packet) for packet in received] == [Puback, Puback, Publish, Publish]
        assert isinstance(received[3], Publish) and len(received[3].payload) == 70_000
        assert connection.ping().wait(PATIENCE)


@pytest.mark.parametrize(
    ("path", "subprotocols", "origin", "status"),
    [
        ("/ws/mqtt", ["mqtt"], "https://example.com", 0),
        ("/ws/mqtt?token=1", ["other", "mqttv3.1"], None, 0),
        ("/mqtt", ["mqtt"], None, 404),
        ("/ws/mqtt", ["mqtt"], "https://evil.example", 403),
        ("/ws/mqtt", [], None, 400),
        ("/ws/mqtt", ["chat"], None, 400),
    ],
)
def test_handshakes(bridge: BridgeProcess, path: str, subprotocols: list[str], origin: str | None, status: int) -> None:
    """Path, subprotocol and origin must be correct (MQTT-6.0.0-3), with TLS."""
    options = {
        "ssl": trusting(bridge),
        "origin": origin,
        "subprotocols": [Subprotocol(name) for name in subprotocols] or None,
    }
    try:
        with connect(f"wss://localhost:{bridge.ports['WSS']}{path}", **options) as connection:
            client = WebSocketClient(connection)
            client.send(Connect("wss"))
            assert isinstance(client.receive(), Connack)
            assert status == 0
    except InvalidStatus as error:
        assert error.response.status_code == status


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("channel", ["WS", "WSS"])
def test_mqtt_js(bridge: BridgeProcess, version: int, channel: str) -> None:
    """The client of browsers, in Node.js."""
    steps: Steps = [
        {"subscribe": ["js/+", {"qos": 1}]},
        {"publish": ["js/a", "21.5", {"qos": 1}]},
        {"publish": ["js/b", data(b"x" * 30_000), {"qos": 2}]},
        {"receive": 2},
        {"end": False},
    ]
    options: dict[str, object] = {"protocol": "ws", "path": "/mqtt"}
    if channel == "WSS":
        options = {"protocol": "wss", "path": "/ws/mqtt", "host": "localhost", "rejectUnauthorized": False}
    client = MqttJs(bridge.ports[channel], f"js-{version}", version, steps, **options)
    assert client.result("connect")["code"] == 0
    messages = next(event["receive"]["messages"] for event in client.end() if "receive" in event)
    assert [(message["topic"], message["qos"]) for message in messages] == [("js/a", 1), ("js/b", 1)]


def test_text_frames_are_rejected(bridge: BridgeProcess) -> None:
    """MQTT-6.0.0-1."""
    with connect(f"ws://127.0.0.1:{bridge.ports['WS']}/mqtt", subprotocols=MQTT) as connection:
        connection.send("text")
        with pytest.raises(Exception, match="1003"):
            connection.recv(PATIENCE)
    assert "MQTT-6.0.0-1" in bridge.log


REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: %b\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@pytest.mark.parametrize("cut", [10, len(REQUEST % b"websocket") - 2, len(REQUEST % b"websocket"), None])
def test_frames_that_arrive_with_the_request(bridge: BridgeProcess, cut: int | None) -> None:
    """They are answered as if they had arrived later, however the bytes are divided."""
    packets = encode(Connect("early")) + encode(Pingreq())
    handshake = REQUEST % b"websocket" + bytes((0x82, 0x80 | len(packets))) + bytes(4) + packets
    expected = b"\r\n\r\n" + bytes((0x82, 4)) + encode(Connack(0)) + bytes((0x82, 2)) + encode(Pingresp())
    with socket.create_connection(("127.0.0.1", bridge.ports["WS"]), PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (handshake[:cut], handshake[cut:] if cut is not None else b""):
            connection.sendall(part)
        answered = b""
        while not answered.endswith(expected) and (chunk := connection.recv(65_536)):
            answered += chunk
    assert answered.startswith(b"HTTP/1.1 101 ") and answered.endswith(expected)


def test_a_close_frame_that_arrives_with_the_request(bridge: BridgeProcess) -> None:
    with socket.create_connection(("127.0.0.1", bridge.ports["WS"]), PATIENCE) as connection:
        connection.sendall(REQUEST % b"websocket" + bytes((0x88, 0x80)) + bytes(4))
        answered = b""
        while chunk := connection.recv(65_536):
            answered += chunk
    assert answered.startswith(b"HTTP/1.1 101 ") and answered.endswith(bytes((0x88, 0)))


def test_non_ascii_bytes_in_a_header(bridge: BridgeProcess) -> None:
    with socket.create_connection(("127.0.0.1", bridge.ports["WS"]), PATIENCE) as connection:
        connection.sendall(REQUEST % b"web\xffsocket")
        assert not connection.recv(65_536).startswith(b"HTTP/1.1 101 ")
    eventually(lambda: "a header contains bytes that are not ASCII" in bridge.log, True)


@pytest.mark.parametrize("rubbish", [b"GET / HTTP/1.1\r\n\r\n", encode(Connect("c")), b"\0" * 9_000, b"G" * 9_000])
def test_connections_that_are_not_websockets(bridge: BridgeProcess, rubbish: bytes) -> None:
    with socket.create_connection(("127.0.0.1", bridge.ports["WS"]), PATIENCE) as connection:
        connection.sendall(rubbish)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(65_536):
                pass


# The PROXY protocol ------------------------------------------------------------------------------------------------------


def version_1(line: str = "PROXY TCP4 198.51.100.7 192.0.2.1 50000 1883") -> bytes:
    return f"{line}\r\n".encode()


def version_2(common_name: bytes | None = None, verify: int = 0, command: int = 0x21) -> bytes:
    body = socket.inet_aton("198.51.100.7") + socket.inet_aton("192.0.2.1") + struct.pack("!HH", 50000, 8883)
    if common_name is not None:
        name = struct.pack("!BH", 0x22, len(common_name)) + common_name
        tls = struct.pack("!BI", 7, verify) + name
        body += struct.pack("!BH", 0x20, len(tls)) + tls
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", command, 0x11, len(body)) + body


@pytest.mark.parametrize(
    ("header", "user", "address"),
    [
        (version_1(), "", "198.51.100.7:50000"),
        (version_1("PROXY TCP6 2001:db8::1 2001:db8::2 1 2"), "", "[2001:db8::1]:1"),
        (version_1("PROXY UNKNOWN"), "", "127.0.0.1:"),
        (version_2(), "", "198.51.100.7:50000"),
        (version_2(b"pump-7"), "pump-7", "198.51.100.7:50000"),
        (version_2(b"pump-7", verify=1), "", "198.51.100.7:50000"),
        (version_2(b"pump-7", command=0x20), "", "127.0.0.1:"),
    ],
    ids=["1, IPv4", "1, IPv6", "1, unknown", "2", "2, certificate", "2, certificate not verified", "2, local"],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_client_behind_a_proxy(
    bridge: BridgeProcess, unique: str, header: bytes, user: str, address: str, at_once: bool
) -> None:
    """The log has the client's address. A certificate that the proxy has verified determines the user."""
    before = len(bridge.log)
    with RawClient(bridge.ports["PROXIED"], unique) as client:
        for part in [header] if at_once else [header[:5], header[5:20], header[20:]]:
            client.send_bytes(part)
        assert client.connect().return_code == 0
        client.publish("said/p", b"x", 1)
    assert bridge.messages("SAID")[-1]["md"]["UserIdentifier"].strip() == user
    assert f"client {unique!r} at {address}" in bridge.log[before:]


@pytest.mark.parametrize(
    "header",
    [
        encode(Connect("c")),
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 70000\r\n",
        b"PROXY " + b"x" * 200,
        version_2(command=0x11),
        version_2(command=0x22),
        version_2()[:14] + struct.pack("!H", 60_000),
        version_2(b"x")[:14] + struct.pack("!H", 15) + version_2(b"x")[16:31],
        version_2(b"\xff"),
    ],
)
def test_malformed_proxy_headers(bridge: BridgeProcess, header: bytes) -> None:
    before = len(bridge.log)
    with RawClient(bridge.ports["PROXIED"], "x") as client:
        client.send_bytes(header)
        client.expect_closed()
    eventually(lambda: "PROXY protocol" in bridge.log[before:], True)


def test_connections_from_other_addresses_than_the_proxies(bridge: BridgeProcess) -> None:
    with RawClient(bridge.ports["ELSEWHERE"], "x") as client:
        assert client.expect(Connack).return_code == 3
        client.expect_closed()
    assert "it does not come from a proxy of this channel" in bridge.log


def test_tls_after_a_proxy_header(bridge: BridgeProcess) -> None:
    with RawClient(bridge.ports["PROXIED.TLS"], "both") as client:
        client.send_bytes(version_1())
        client.socket = trusting(bridge).wrap_socket(client.socket, server_hostname="localhost")
        assert client.connect().return_code == 0
    assert "client 'both' at 198.51.100.7:50000 connected" in bridge.log


# Other sockets -----------------------------------------------------------------------------------------------------------


def test_a_unix_socket(bridge: BridgeProcess) -> None:
    path = bridge.data_directory.parent / "mqtt.sock"
    assert path.stat().st_mode & 0o777 == 0o660
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        connection.sendall(encode(Connect("unix")))
        assert connection.recv(4) == bytes((0x20, 2, 0, 0))
    eventually(lambda: f"client 'unix' at socket {path}" in bridge.log, True)


def test_ipv6(bridge: BridgeProcess) -> None:
    with socket.create_connection(("::1", bridge.ports["IPV6"]), PATIENCE) as connection:
        connection.sendall(encode(Connect("six")))
        assert connection.recv(4) == bytes((0x20, 2, 0, 0))
    eventually(lambda: "client 'six' at [::1]:" in bridge.log, True)


def test_a_unix_socket_that_is_in_use(bridge: BridgeProcess, tmp_path: Path) -> None:
    """A second bridge does not replace it. The socket of a killed bridge is replaced."""
    path = bridge.data_directory.parent / "mqtt.sock"
    config = f"channels: [{{name: A, port: 0}}, {{name: B, socket: {path}}}]\n"
    second = BridgeProcess(tmp_path / "data", config=config)
    with pytest.raises(Exception, match="does not listen"):
        second.start()
    assert "Address already in use" in second.log
    second.discard()
    own = BridgeProcess(tmp_path / "own", config=config.replace(str(path), str(tmp_path / "left.sock"))).start()
    own.kill()
    assert (tmp_path / "left.sock").exists()
    own.start()
    assert own.stop() == 0


def test_connections_closed_during_handshake_header_or_frame(bridge: BridgeProcess) -> None:
    """Only this connection ends."""
    for channel, beginning in (("WSS", b"\x16\x03\x01"), ("PROXIED", b"PRO"), ("WS", b"GET /mqtt HTTP/1.1\r\nUpg")):
        with RawClient(bridge.ports[channel], "x") as client:
            client.send_bytes(beginning)
    with RawClient(bridge.ports["WS"], "x") as client, pytest.raises(ConnectionClosed):
        client.send_bytes(b"\r\n\r\n")
        while True:
            client.socket.recv(1000) or (_ for _ in ()).throw(ConnectionClosed)
