"""Links over WebSockets, with ALPN, and with several addresses, to scripted brokers."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from bridge.config.link import LinkConfig
from bridge.link import attempts
from bridge.link.state import LinkPhase
from bridge.link.stream import WebSocketStream
from bridge.link.trial import reach
from bridge.telemetry.message import Publication
from tests.helpers.certificate_authority import Authority
from tests.helpers.fake_broker import CONNECT, DISCONNECT, PUBLISH, FakeBroker, Peer
from tests.helpers.mosquitto import free_port
from tests.helpers.patience import PATIENCE
from tests.helpers.tested_link import LinkFactory, calling, ready


class Framed:
    """The server side of a WebSocket, with the interface of a socket. It rejects unmasked frames."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.protocol = ServerProtocol(subprotocols=[Subprotocol("mqtt")])
        self.path = ""
        #: frames other than data frames
        self.control: list[Frame] = []

    def answer(self, status: int = 101) -> None:
        """Read the request, and answer it."""
        while not self.path:
            self.protocol.receive_data(self.connection.recv(65536))
            for event in self.protocol.events_received():
                assert isinstance(event, Request)
                self.path = event.path
                accepted = self.protocol.accept(event) if status == 101 else self.protocol.reject(status, "no\n")
                self.protocol.send_response(accepted)
        self.flush()

    def flush(self) -> None:
        self.connection.sendall(b"".join(self.protocol.data_to_send()))

    def sendall(self, data: bytes) -> None:
        self.protocol.send_binary(data)
        self.flush()

    def recv(self, size: int) -> bytes:
        while True:
            data = self.connection.recv(65536)
            if not data:
                return b""
            self.protocol.receive_data(data)
            assert self.protocol.parser_exc is None, self.protocol.parser_exc
            payload = b""
            for event in self.protocol.events_received():
                assert isinstance(event, Frame)
                if event.opcode in (Opcode.BINARY, Opcode.CONT):
                    payload += event.data
                else:
                    self.control.append(event)
            if payload:
                return payload

    def close(self) -> None:
        self.connection.close()


class FramedPeer(Peer):
    """Accept a link's connection over WebSocket."""

    def __init__(self, connection: socket.socket, version: str, *, status: int = 101) -> None:
        self.framed = Framed(connection)
        super().__init__(self.framed, version)
        self.framed.answer(status)


class WebSocketBroker(FakeBroker):
    """A listener for WebSockets."""

    def accept(self, status: int = 101) -> FramedPeer:
        connection, _ = self._listener.accept()
        connection.settimeout(PATIENCE)
        peer = FramedPeer(connection, self.version, status=status)
        self._peers.append(peer)
        return peer

    def connecting(self) -> tuple[Peer, bytes]:
        peer = self.accept()
        return peer, peer.expect(CONNECT)[0]

    def connected_by_frames(self) -> FramedPeer:
        peer = self.connected()
        assert isinstance(peer, FramedPeer)
        return peer


@pytest.fixture
def web(version: str) -> Iterator[WebSocketBroker]:
    web_broker = WebSocketBroker(version)
    yield web_broker
    web_broker.close()


# WebSocket -----------------------------------------------------------------------------------------------------------


def test_path_of_a_websocket(web: WebSocketBroker, link: LinkFactory) -> None:
    link(web.port, web.version, transport="websocket", websocket_path="/a?b=c")
    peer = web.connected_by_frames()
    assert peer.framed.path == "/a?b=c"
    assert peer.framed.protocol.subprotocol == "mqtt"


def test_ping_of_a_websocket_is_answered_by_a_masked_pong(web: WebSocketBroker, link: LinkFactory) -> None:
    """RFC 6455 sections 5.1 and 5.5.3. `Framed` rejects an unmasked frame."""
    connected = link(web.port, web.version, transport="websocket")
    peer = web.connected_by_frames()
    ready(connected)
    peer.framed.protocol.send_ping(b"are you there")
    peer.framed.flush()
    connected.publish([Publication(topic="t", payload=b"x")])
    peer.expect(PUBLISH)
    assert [(bytes(frame.data), frame.opcode) for frame in peer.framed.control] == [(b"are you there", Opcode.PONG)]


def test_packets_divided_into_frames(web: WebSocketBroker, link: LinkFactory) -> None:
    """MQTT-6.0.0-2: a frame contains any part of the stream, a single byte or many packets."""
    connected = link(web.port, web.version, transport="websocket", topic_filter="t", qos=0)
    peer = web.accept()
    peer.expect(CONNECT)
    for byte in peer.connack():
        peer.send(bytes((byte,)))
    (subscribe,) = peer.expect(0x82)
    peer.send(peer.suback(subscribe, 0) + peer.publish("t", payload=b"1") + peer.publish("t", payload=b"2"))
    assert [message.publication.payload for message in connected.take_all(2)] == [b"1", b"2"]


def test_a_broker_that_reads_slowly_receives_everything(web: WebSocketBroker, link: LinkFactory) -> None:
    """The network accepts parts of frames. PONG is sent between frames, never within one."""
    connected = link(web.port, web.version, transport="websocket")
    peer = web.connected_by_frames()
    ready(connected)
    payloads = [bytes((index,)) * 300_000 for index in range(40)]
    call = calling(connected.publish, [Publication(topic="t", payload=payload) for payload in payloads])
    for _ in range(20):
        peer.framed.protocol.send_ping(b"?")
        peer.framed.flush()
    for payload in payloads:
        (body,) = peer.expect(PUBLISH)
        assert body.endswith(payload)
    assert call.result(PATIENCE) == {}
    assert connected.stop(PATIENCE)
    peer.expect(DISCONNECT)
    assert peer.framed.recv(1) == b""
    assert [frame.opcode for frame in peer.framed.control] == [Opcode.PONG] * 20 + [Opcode.CLOSE]


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        pytest.param(b"\x81\1x", "WebSocket frame of text", id="text"),
        pytest.param(b"\xc2\1x", "WebSocket is malformed", id="malformed"),
        pytest.param(b"\x88\2\x03\xe8", "closed the connection", id="CLOSE"),
    ],
)
def test_frames_that_end_the_connection(
    web: WebSocketBroker, link: LinkFactory, frame: bytes, error: str, impatient: None
) -> None:
    connected = link(web.port, web.version, transport="websocket")
    peer = web.connected_by_frames()
    ready(connected)
    peer.framed.connection.sendall(frame)
    assert error in connected.state_where(LinkPhase.WAITING).error
    web.connected()
    ready(connected)


@pytest.mark.parametrize(("status", "least"), [(404, 5.0), (503, 0.0)])
def test_a_rejected_handshake(
    web: WebSocketBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch, status: int, least: float
) -> None:
    """A permanent rejection causes a long pause."""
    monkeypatch.setattr(attempts, "REFUSED_PAUSE", 5.0)
    connected = link(web.port, web.version, transport="websocket")
    web.accept(status)
    state = connected.state_where(LinkPhase.WAITING)
    assert (
        f"the broker refused the WebSocket handshake: server rejected WebSocket connection: HTTP {status}"
        in state.error
    )
    assert (state.pause >= 5.0) is (least > 0)


def test_a_broker_without_websockets(broker: FakeBroker, link: LinkFactory) -> None:
    connected = link(broker.port, broker.version, transport="websocket")
    connection, _ = broker._listener.accept()
    connection.sendall(b"\x20\x02\0\0\r\n\r\n")
    assert "WebSocket" in connected.state_where(LinkPhase.WAITING).error
    connection.close()


def test_an_unanswered_handshake(broker: FakeBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.port)) as connection, pytest.raises(TimeoutError):
        WebSocketStream(connection, "127.0.0.1", broker.port, "/mqtt", 0.05)


# ALPN ----------------------------------------------------------------------------------------------------------------


def test_alpn(broker: FakeBroker, link: LinkFactory, tmp_path: Path) -> None:
    """The link offers its protocol names, and the server chooses one."""
    authority = Authority(tmp_path)
    authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.set_alpn_protocols(["x-amzn-mqtt-ca"])
    chosen: list[str | None] = []

    def serve() -> None:
        for _ in range(2):
            connection, _ = broker._listener.accept()
            with context.wrap_socket(connection, server_side=True) as secured:
                chosen.append(secured.selected_alpn_protocol())

    server = threading.Thread(target=serve)
    server.start()
    tls = {"ca_file": tmp_path / "ca.pem", "alpn": ["mqtt", "x-amzn-mqtt-ca"]}
    steps = list(reach(LinkConfig.model_validate({"host": "localhost", "port": broker.port, "tls": tls})))
    assert "ALPN x-amzn-mqtt-ca" in steps[-1]
    link(broker.port, broker.version, host="localhost", tls=tls)
    server.join(PATIENCE)
    assert chosen == ["x-amzn-mqtt-ca"] * 2


# Several addresses ---------------------------------------------------------------------------------------------------


def test_pauses_follow_after_all_addresses_were_tried(
    link: LinkFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attempts, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.002)
    ports = [free_port() for _ in range(3)]
    connected = link(ports[0], failover=[f"127.0.0.1:{port}" for port in ports[1:]])
    states = [connected.state_where(LinkPhase.WAITING) for _ in range(7)]
    assert [state.address for state in states] == [f"127.0.0.1:{port}" for port in [*ports, *ports, ports[0]]]
    assert [state.pause > 0 for state in states] == [False, False, True] * 2 + [False]
    lines = [message for message in caplog.messages if "(attempt 1)" in message]
    assert [port for port, message in zip(ports, lines, strict=True) if f"127.0.0.1:{port}" in message] == ports


def test_a_rejection_at_one_address_lengthens_the_pause_after_all(
    broker: FakeBroker, link: LinkFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_PAUSE", 5.0)
    connected = link(broker.port, broker.version, failover=[f"127.0.0.1:{free_port()}"])
    peer, _ = broker.connecting()
    peer.send(peer.connack(reason=0x86 if broker.version == "5" else 4))
    states = [connected.state_where(LinkPhase.WAITING) for _ in range(2)]
    assert "rejected CONNECT" in states[0].error
    assert states[0].pause == 0 and states[1].pause >= 5.0
