"""Protocol layers between the network and MQTT, without I/O: the PROXY protocol, TLS and WebSocket.

The layers of a `Stack` are ordered from the network to MQTT. Source of the PROXY protocol: HAProxy, "The PROXY protocol",
sections 2.1 (version 1), 2.2 (version 2) and 2.2.5 (TLS).
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import ssl
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol, Self

import msgspec
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from bridge.config.channel import WebSocketConfig
from bridge.security.authenticator import Certificate
from bridge.security.tls import certificate_of, reason_of


class LayerError(Exception):
    """A violation of a layer's protocol by the peer. The connection must be closed. The message is for the log."""


class ConnectionLimit(LayerError):
    """A limit of connections is reached. It depends on the address in the PROXY header."""


class Layer(Protocol):
    """One layer: converts bytes between the layer below and the layer above."""

    #: the peer has closed its sending side
    ended: bool

    def receive(self, data: bytes) -> bytes:
        """Decode bytes from the layer below. Return the bytes for the layer above. Raises LayerError."""

    def send(self, data: bytes) -> bytes:
        """Encode bytes (may be empty) from the layer above. Return the bytes for the layer below, with pending answers."""

    def close(self) -> bytes:
        """Return the final bytes for the layer below."""


class Stack:
    """The layers of one connection."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)

    @property
    def ended(self) -> bool:
        """Whether the peer has closed its sending side."""
        return any(layer.ended for layer in self._layers)

    def receive(self, data: bytes) -> bytes:
        """Decode bytes from the network. Call `send` afterwards for the layers' answers. Raises LayerError."""
        for layer in self._layers:
            data = layer.receive(data)
        return data

    def send(self, data: bytes = b"") -> bytes:
        """Encode MQTT bytes for the network. The result includes pending answers of the layers."""
        for layer in reversed(self._layers):
            data = layer.send(data)
        return data

    def close(self) -> bytes:
        """Return the final bytes for the network."""
        last = b""
        for layer in reversed(self._layers):
            last = (layer.send(last) if last else b"") + layer.close()
        return last


#: Maximum number of characters of a client identifier in texts. MQ accepts 48 bytes, but a rejected one may have 65,535.
_MAX_SHOWN: Final = 100


class Peer(str):
    """An address and, if known, a client identifier: `'dev-1' at 10.0.0.7:52311`. Both are also attributes.

    Texts that contain a Peer are kept in memory, so a long identifier is truncated.
    """

    __slots__ = ("address", "client_id")

    address: str
    client_id: str

    def __new__(cls, address: str, client_id: str = "") -> Self:
        label = repr(client_id) if len(client_id) <= _MAX_SHOWN else f"{client_id[:_MAX_SHOWN]!r}..."
        peer = super().__new__(cls, f"{label} at {address}" if client_id else f"at {address}")
        peer.address, peer.client_id = address, client_id
        return peer


#: The maximum length of a TLS record in bytes (RFC 8446 section 5.1).
RECORD = 16_384
#: Maximum number of bytes in a buffer at a time, because OpenSSL never shrinks its buffers.
SLICE = 32_768


class TlsLayer:
    """The server side of TLS on one connection."""

    __slots__ = ("_established", "_incoming", "_outgoing", "_shaken", "_stream", "ended")

    def __init__(self, context: ssl.SSLContext, established: Callable[[Certificate | None], None]) -> None:
        """Call `established` after the handshake with the client's certificate, or None if it has none."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._stream = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = established
        self._shaken = False
        self.ended = False

    def receive(self, data: bytes) -> bytes:
        if len(data) <= SLICE:
            return self._receive(data)
        view = memoryview(data)
        return b"".join([self._receive(view[begin : begin + SLICE]) for begin in range(0, len(data), SLICE)])

    def _receive(self, data: bytes | memoryview) -> bytes:
        incoming, stream = self._incoming, self._stream
        incoming.write(data)
        parts = []
        try:
            if not self._shaken:
                stream.do_handshake()
                self._shaken = True
                self._established(certificate_of(stream))
            # OpenSSL consumes incomplete records completely. Then both values are 0.
            while incoming.pending or stream.pending():
                plain = stream.read(RECORD)
                if not plain:
                    self.ended = True
                    break
                parts.append(plain)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise LayerError(f"{'TLS' if self._shaken else 'the TLS handshake'} fails: {reason_of(error)}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes) -> bytes:
        outgoing, stream = self._outgoing, self._stream
        if not self._shaken or len(data) <= SLICE:
            if data and self._shaken:
                stream.write(data)
            return outgoing.read()
        view = memoryview(data)
        parts = []
        for begin in range(0, len(data), SLICE):
            stream.write(view[begin : begin + SLICE])
            parts.append(outgoing.read())
        return b"".join(parts)

    def close(self) -> bytes:
        if self._shaken:
            # unwrap() waits for the peer's close_notify. The bridge does not.
            with contextlib.suppress(ssl.SSLError):
                self._stream.unwrap()
        return self._outgoing.read()


#: Accepted subprotocols: those of MQTT 3.1.1 and 5 (MQTT-6.0.0-3), and of MQTT 3.1.
SUBPROTOCOLS = [Subprotocol("mqtt"), Subprotocol("mqttv3.1")]
#: The frame size allowed in addition to the channel's maximum packet size, in bytes.
ROOM = 65_536
#: The end of an HTTP request.
_END = b"\r\n\r\n"

# The bridge logs failed handshakes itself.
_log = logging.getLogger("websockets.server")
_log.setLevel(logging.CRITICAL)


class WebSocketLayer:
    """The server side of a WebSocket on one connection."""

    __slots__ = ("_config", "_open", "_protocol", "_seen", "ended")

    def __init__(self, config: WebSocketConfig, max_packet_size: int) -> None:
        self._config = config
        # None accepts requests without Origin, which browsers always send.
        origins = None if config.origins is None else [*map(Origin, config.origins), None]
        size = max_packet_size + ROOM
        self._protocol = ServerProtocol(origins=origins, subprotocols=SUBPROTOCOLS, max_size=size, logger=_log)
        self._open = False
        #: the last received bytes of the request
        self._seen = b""
        self.ended = False

    def receive(self, data: bytes) -> bytes:
        if not data:
            return b""
        if self._open:
            return self._payloads(data)
        if not self._seen and not data.startswith(b"G"):
            raise LayerError("it did not send an HTTP request, with which a WebSocket begins")
        # Process frames that arrive with the request after the response: the protocol would treat the connection as open.
        tail, self._seen = self._seen, (self._seen + data)[-len(_END) + 1 :]
        end = (tail + data).find(_END)
        if end < 0:
            return self._payloads(data)
        end += len(_END) - len(tail)
        return self._payloads(data[:end]) + self._payloads(data[end:])

    def _payloads(self, data: bytes) -> bytes:
        protocol = self._protocol
        if data:
            protocol.receive_data(data)
        payloads = []
        for event in protocol.events_received():
            if isinstance(event, Frame):
                if event.opcode is Opcode.BINARY or event.opcode is Opcode.CONT:
                    payloads.append(bytes(event.data))
                elif event.opcode is Opcode.TEXT:
                    protocol.fail(CloseCode.UNSUPPORTED_DATA)
                    raise LayerError("MQTT-6.0.0-1: it sent a WebSocket frame of text, not of bytes")
                elif event.opcode is Opcode.CLOSE:
                    self.ended = True
            elif isinstance(event, Request):
                self._shake_hands(event)
        if not self._open and protocol.handshake_exc is not None:
            raise LayerError(f"WebSocket handshake rejected: {protocol.handshake_exc}")
        if protocol.parser_exc is not None and not isinstance(protocol.parser_exc, EOFError):
            raise LayerError(f"its WebSocket is malformed: {protocol.parser_exc}")
        return payloads[0] if len(payloads) == 1 else b"".join(payloads)

    def _shake_hands(self, request: Request) -> None:
        protocol = self._protocol
        path = request.path.partition("?")[0]
        if path != self._config.path:
            protocol.send_response(protocol.reject(404, f"MQTT is at {self._config.path}\n"))
            raise LayerError(f"it requested a WebSocket at {path[:80]!r}, not at {self._config.path}")
        try:
            response = protocol.accept(request)
        except UnicodeError:  # raised while building the error message for an invalid header
            raise LayerError("WebSocket handshake rejected: a header contains bytes that are not ASCII") from None
        protocol.send_response(response)
        self._open = protocol.handshake_exc is None

    def send(self, data: bytes) -> bytes:
        protocol = self._protocol
        if data and self._open and protocol.state is State.OPEN:
            protocol.send_binary(data)
        return b"".join(protocol.data_to_send())

    def close(self) -> bytes:
        protocol = self._protocol
        if protocol.state is State.OPEN:
            protocol.send_close(CloseCode.NORMAL_CLOSURE)
        return b"".join(protocol.data_to_send())


_SIGNATURE_1 = b"PROXY "
_SIGNATURE_2 = b"\r\n\r\n\x00\r\nQUIT\n"
#: The maximum length of a version 1 header, with its CRLF, in bytes.
_LONGEST_1 = 107
#: The maximum number of bytes after the fixed part of a version 2 header: addresses (36 or 216 bytes) and optional values.
_LONGEST_2 = 4096

_FIXED_2 = struct.Struct("!12sBBH")
_ADDRESSES_4 = struct.Struct("!4s4sHH")
_ADDRESSES_6 = struct.Struct("!16s16sHH")
_LOCAL, _PROXY = 0, 1
_UNIX_ADDRESSES = 216
_TLS = struct.Struct("!BI")
_PP2_TYPE_SSL, _PP2_SUBTYPE_SSL_CN = 0x20, 0x22
_PP2_CLIENT_SSL, _PP2_CLIENT_CERT_CONN, _PP2_CLIENT_CERT_SESS = 1, 2, 4


class ProxyHeaderError(ValueError):
    """The data is not a valid PROXY protocol header. The message is for the log."""


class ProxyHeader(msgspec.Struct, frozen=True):
    """The client of a proxied connection."""

    #: IP address and port of the client, or None for a connection of the proxy itself (LOCAL) or an unknown client (UNKNOWN)
    address: str | None = None
    port: int = 0
    #: the client uses TLS to the proxy
    tls: bool = False
    #: Common Name of the client's certificate, verified by the proxy, or None without a valid certificate
    common_name: str | None = None


def read_proxy_header(data: bytes) -> tuple[ProxyHeader, int] | None:
    """Return the header at the beginning of `data` and its length, or None while it is incomplete.

    Raises ProxyHeaderError.
    """
    if data[:1] == b"P":
        return _read_1(data)
    if not data.startswith(_SIGNATURE_2[: len(data)]):
        raise ProxyHeaderError("it does not begin with a header of the PROXY protocol")
    return _read_2(data)


def _read_1(data: bytes) -> tuple[ProxyHeader, int] | None:
    line, end, _ = data[:_LONGEST_1].partition(b"\r\n")
    if not data.startswith(_SIGNATURE_1[: len(data)]) or (not end and len(data) >= _LONGEST_1):
        raise ProxyHeaderError("it does not begin with a header of the PROXY protocol")
    if not end:
        return None
    words = line.split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(), len(line) + 2
    try:
        family, source, destination, port, port_there = (word.decode("ascii") for word in words[1:])
        version = {"TCP4": 4, "TCP6": 6}[family]
        addresses = (ipaddress.ip_address(source), ipaddress.ip_address(destination))
        ports = tuple(
            int(port_text) for port_text in (port, port_there) if port_text.isdecimal() and int(port_text) < 65536
        )
        if len(ports) < 2 or any(address.version != version for address in addresses):
            raise ValueError
    except (KeyError, ValueError):
        raise ProxyHeaderError("its header of the PROXY protocol, version 1, is malformed") from None
    return ProxyHeader(str(addresses[0]), ports[0]), len(line) + 2


def _read_2(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) < _FIXED_2.size:
        return None
    _, version_command, family, length = _FIXED_2.unpack_from(data)
    command = version_command & 15
    if version_command >> 4 != 2 or command > _PROXY:
        raise ProxyHeaderError(f"its header of the PROXY protocol has version and command 0x{version_command:02X}")
    if length > _LONGEST_2:
        raise ProxyHeaderError(f"its header of the PROXY protocol is too long: {length} bytes")
    end = _FIXED_2.size + length
    if len(data) < end:
        return None
    body = data[_FIXED_2.size : end]
    if command == _LOCAL:
        return ProxyHeader(), end
    try:
        address, port, values = _addresses(family >> 4, body)
        tls, common_name = _tls(values)
    except struct.error:
        raise ProxyHeaderError("its header of the PROXY protocol, version 2, is malformed") from None
    return ProxyHeader(address, port, tls, common_name), end


def _addresses(family: int, body: bytes) -> tuple[str | None, int, bytes]:
    """Return the source's address and port, and the bytes after the addresses."""
    layout = {1: _ADDRESSES_4, 2: _ADDRESSES_6}.get(family)
    if layout is not None:
        source, _, port, _ = layout.unpack_from(body)
        return str(ipaddress.ip_address(source)), port, body[layout.size :]
    return None, 0, body[_UNIX_ADDRESSES:] if family == 3 else body


def _tls(values: bytes) -> tuple[bool, str | None]:
    """Return whether the client uses TLS, and the Common Name of its verified certificate (section 2.2.5)."""
    for kind, value in _type_length_values(values):
        if kind != _PP2_TYPE_SSL:
            continue
        client, verify = _TLS.unpack_from(value)
        if not client & _PP2_CLIENT_SSL or verify != 0 or not client & (_PP2_CLIENT_CERT_CONN | _PP2_CLIENT_CERT_SESS):
            return bool(client & _PP2_CLIENT_SSL), None
        for inner, name in _type_length_values(value[_TLS.size :]):
            if inner == _PP2_SUBTYPE_SSL_CN:
                try:
                    return True, name.decode("utf-8")
                except UnicodeDecodeError:
                    raise ProxyHeaderError("the Common Name in its header of the PROXY protocol is not UTF-8") from None
        return True, None
    return False, None


def _type_length_values(data: bytes) -> list[tuple[int, bytes]]:
    values = []
    while data:
        kind, length = struct.unpack_from("!BH", data)
        if len(data) < 3 + length:
            raise struct.error
        values.append((kind, data[3 : 3 + length]))
        data = data[3 + length :]
    return values


class ProxyLayer:
    """Removes the PROXY header, passes it to `on_header`, and forwards the bytes after it."""

    __slots__ = ("_begun", "_on_header", "ended")

    def __init__(self, on_header: Callable[[ProxyHeader], None]) -> None:
        self.ended = False
        self._on_header: Callable[[ProxyHeader], None] | None = on_header
        self._begun = b""

    def receive(self, data: bytes) -> bytes:
        if self._on_header is None:
            return data
        data = self._begun + data
        try:
            parsed = read_proxy_header(data)
        except ProxyHeaderError as error:
            raise LayerError(str(error)) from None
        if parsed is None:
            self._begun = data
            return b""
        header, length = parsed
        self._begun = b""
        on_header, self._on_header = self._on_header, None
        on_header(header)
        return data[length:]

    def send(self, data: bytes) -> bytes:
        return data

    def close(self) -> bytes:
        return b""
