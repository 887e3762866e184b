"""One network connection to an MQTT broker: TCP, TLS, WebSocket, CONNECT, SUBSCRIBE and keep-alive.

`connection` runs it on the link's network thread. It passes the messages that one read returns on at once, because each call
takes locks that it shares with the worker.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from bridge.config.link import LinkConfig
from bridge.config.values import endpoint
from bridge.link.state import Limits, LinkLost, LinkRefused
from bridge.mqtt.connection import REASON_CODES
from bridge.mqtt.flow import WrongAcknowledgement
from bridge.mqtt.packets import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    Connack,
    ConnackCode,
    Connect,
    ConnectProperties,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
)
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import FAILURE, MalformedPacket, ReasonCode, reason_name
from bridge.mqtt.topics import topic_filter_fault
from bridge.mqtt.writer import encode
from bridge.security.tls import tls_context

_CHUNK = 65536
_RECORDS = 16
"""The maximum number of TLS records (up to 16 KiB each) per read."""

_QUICK_ACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Only available on Linux."""

CONNECT_TIMEOUT = 5.0
"""Seconds to wait for TCP, TLS and WebSocket, each."""

# The link reports WebSocket errors itself.
_websocket_log = logging.getLogger("websockets.client")
_websocket_log.setLevel(logging.CRITICAL)


class Stream:
    """A connected socket, plain or TLS."""

    def __init__(self, connected: Any) -> None:
        # socket.socket or ssl.SSLSocket, which have no common type.
        self.socket = connected
        self._tls = isinstance(connected, ssl.SSLSocket)
        #: whether the peer has closed its sending side
        self.ended = False

    def fill(self, missing: int) -> bytes:
        """Return the available bytes from the network without blocking. Raises OSError if the connection is broken.

        `missing` is the number of bytes known to be missing, which are read at once.
        """
        size = max(_CHUNK, min(missing, 16 * _CHUNK))
        chunks: list[bytes] = []
        try:
            while True:
                chunks.append(self.socket.recv(size))
                self.ended = not chunks[-1]
                # A TLS socket returns one record at a time.
                if self.ended or not self._tls or len(chunks) == _RECORDS:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        if _QUICK_ACK is not None:
            # A broker that uses Nagle's algorithm (mosquitto does) delays answers until TCP acknowledges the previous ones.
            # TCP delays such acknowledgements by 40 ms. The option must be set again after each read.
            self.socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        return b"".join(chunks)

    @property
    def unsent(self) -> bool:
        """Whether bytes that `send` has taken are still unsent."""
        return False

    def send(self, data: bytes | memoryview) -> int:
        """Send as much as the network accepts without blocking. Return the number of bytes taken. Raises OSError."""
        try:
            return int(self.socket.send(data))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class WebSocketStream(Stream):
    """A connected socket that carries a WebSocket: MQTT in binary frames (MQTT 3.1.1 section 6)."""

    def __init__(self, connected: Any, host: str, port: int, path: str, timeout: float) -> None:
        """Perform the WebSocket handshake within `timeout` seconds. Raises OSError or LinkRefused."""
        super().__init__(connected)
        uri = parse_uri(f"{'wss' if self._tls else 'ws'}://{endpoint(host, port)}{path}")
        # MQTT limits the size of the packets in the frames.
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol("mqtt")], max_size=None, logger=_websocket_log)
        #: bytes of frames that were not sent yet
        self._frames = bytearray()
        #: payloads received with the handshake response
        self._early = b""
        self._shake_hands(time.monotonic() + timeout)

    def _shake_hands(self, deadline: float) -> None:
        protocol = self._protocol
        protocol.send_request(protocol.connect())
        self.socket.sendall(b"".join(protocol.data_to_send()))
        while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the broker left the WebSocket handshake unanswered")
            self.socket.settimeout(left)
            self._early += self._payloads(self.socket.recv(_CHUNK))
        error = protocol.handshake_exc
        if error is None:
            return
        text = f"the broker refused the WebSocket handshake: {error}"
        if isinstance(error, InvalidStatus) and error.response.status_code < 500:
            raise LinkRefused(text)
        raise ConnectionError(text)

    def fill(self, missing: int) -> bytes:
        early, self._early = self._early, b""
        data = super().fill(missing)
        if not data and not self.ended:
            return early
        return early + self._payloads(data)

    def _payloads(self, data: bytes) -> bytes:
        """Return the payloads of frames. Empty `data` means the end of the connection. Raises OSError."""
        protocol = self._protocol
        if data:
            protocol.receive_data(data)
        else:
            protocol.receive_eof()
        payloads = []
        for event in protocol.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                payloads.append(bytes(event.data))
            elif event.opcode is Opcode.TEXT:
                raise ConnectionError("MQTT-6.0.0-1: the broker sent a WebSocket frame of text, not of bytes")
            elif event.opcode is Opcode.CLOSE:
                self.ended = True
        if protocol.parser_exc is not None and not isinstance(protocol.parser_exc, EOFError):
            raise ConnectionError(f"the broker's WebSocket is malformed: {protocol.parser_exc}")
        if protocol.state is not State.CONNECTING and not self.ended:
            self._flush()  # PONG
        return b"".join(payloads)

    @property
    def unsent(self) -> bool:
        return bool(self._frames)

    def _flush(self) -> None:
        self._frames += b"".join(self._protocol.data_to_send())
        while self._frames and (sent := super().send(bytes(self._frames[:_CHUNK]))):
            del self._frames[:sent]

    def send(self, data: bytes | memoryview) -> int:
        """Send one frame unless the previous one is not sent yet. Return its payload length, or 0. Raises OSError."""
        self._flush()
        if self._frames:
            return 0
        payload = bytes(data[:_CHUNK])
        self._protocol.send_binary(payload)
        self._flush()
        return len(payload)

    def close(self) -> None:
        if self._protocol.state is State.OPEN and not self._frames:
            self._protocol.send_close()
            with contextlib.suppress(OSError):
                self._flush()
        super().close()


_FOREVER = 0xFFFFFFFF
"""Session Expiry Interval of a session that does not expire (MQTT 5 section 3.1.2.11.2)."""

#: Temporary errors among CONNACK's reason codes. The others require an administrator's action.
_PASSING = frozenset((0x80, 0x81, 0x82, 0x83, 0x88, 0x89, 0x97, 0x9C, 0x9F))

#: The first bytes of a CONNACK by which a broker without MQTT 5 rejects it, with and without empty properties.
_UNACCEPTABLE_VERSION = (b"\x20\x02\x00\x01", b"\x20\x03\x00\x01")

#: Packet identifiers of SUBSCRIBE and UNSUBSCRIBE. At most one of each is in flight. Publications never use them.
SUBSCRIBE_MID, UNSUBSCRIBE_MID = 65535, 65534
#: The highest packet identifier of a publication.
HIGHEST_MID = 65533

Answer = Puback | Pubrec | Pubcomp
"""A broker's acknowledgement of a publication from the link."""


class Sinks(NamedTuple):
    """Callbacks for received packets. The network thread calls each with everything that one read returned."""

    #: raises MalformedPacket for packets that the link does not allow
    publications: Callable[[list[Publish]], None]
    #: raises WrongAcknowledgement
    answers: Callable[[list[Answer]], None]
    #: packet identifiers of PUBREL
    releases: Callable[[list[int]], None]
    #: called at CONNACK with Session Present
    accepted: Callable[[bool], None]
    #: how many more publications may be read
    room: Callable[[], int]


class LinkClient:
    """One connection, used once. All methods but `queue` are called on one thread."""

    def __init__(self, config: LinkConfig, client_id: str, clean: bool, sinks: Sinks) -> None:
        self._config = config
        self._client_id = client_id
        self._clean = clean
        self._sinks = sinks
        self._version_5 = config.version == "5"
        self._level = LEVEL_MQTT_5 if self._version_5 else LEVEL_MQTT_3_1_1
        self._stream: Stream | None = None
        self._decoder = Decoder(server=False, protocol_level=self._level)
        #: decoded packets that were not passed on yet because there was no room for publications
        self._packets: list[Packet] = []
        self._output: deque[bytes | memoryview] = deque()
        #: seconds, or 0 for none; a broker of MQTT 5 may specify another value
        self._keep_alive = math.ceil(config.keep_alive)
        #: when bytes were last written and read, and when an unanswered PINGREQ was queued, or 0.0
        self._written_at = self._read_at = self._pinged_at = 0.0
        self.accepted = False
        self.session_present = False
        self.limits = Limits()
        #: the reason codes of SUBACK, or None before SUBACK
        self.granted: Sequence[int] | None = None
        #: UNSUBACK was received, or there was nothing to unsubscribe; unknown filters are not failures
        self.unsubscribed = True

    def connect(self, host: str, port: int, password: str | None) -> Any:
        """Open the network connection, queue CONNECT and return the socket. Raises LinkLost."""
        config = self._config
        try:
            context = None if config.tls is None else tls_context(config.tls, config.tls.alpn)
        except OSError as error:
            raise LinkRefused(str(error)) from error
        connected: Any = None
        try:
            connected = socket.create_connection((host, port), CONNECT_TIMEOUT)
            # Batches are written whole. A small last segment must not wait for the peer's delayed acknowledgement.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                connected = context.wrap_socket(connected, server_hostname=host)
            path = config.path_of_websocket
            self._stream = (
                Stream(connected) if path is None else WebSocketStream(connected, host, port, path, CONNECT_TIMEOUT)
            )
            connected.setblocking(False)
        except BaseException as error:
            if connected is not None:
                connected.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise LinkRefused(f"the broker's certificate was rejected: {error.verify_message}") from error
            # UnicodeError: the host name cannot be encoded with IDNA.
            if isinstance(error, OSError | UnicodeError):
                raise LinkLost(f"cannot connect: {error}") from error
            raise
        properties = None
        if self._version_5:
            expiry = None if self._clean else _FOREVER
            properties = ConnectProperties(session_expiry_interval=expiry, receive_maximum=config.in_flight)
        self._written_at = self._read_at = time.monotonic()
        self._send(
            Connect(
                self._client_id,
                protocol_level=self._level,
                clean_session=self._clean,
                keep_alive=self._keep_alive,
                user_name=config.user if password is None else config.user or "",
                password=None if password is None else password.encode(),
                properties=properties,
            )
        )
        return connected

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Queue SUBSCRIBE. Raises LinkRefused if the topic filter is invalid."""
        shared = topic_filter.startswith("$share/")
        try:
            if not shared and (fault := topic_filter_fault(topic_filter)):
                raise MalformedPacket("SUBSCRIBE", 0, fault)
            # Keep the retain flag. Request retained messages only for a new subscription, not after each reconnect. A shared
            # subscription must not set No Local (MQTT-3.8.3-4).
            options = SubscriptionOptions(no_local=not shared, retain_as_published=True, retain_handling=1)
            self._send(Subscribe(SUBSCRIBE_MID, ((topic_filter, qos),), options=(options,) if self._version_5 else ()))
        except MalformedPacket as error:
            raise LinkRefused(f"{topic_filter!r} is not a valid topic filter: {error.rule}") from error

    def unsubscribe(self, topic_filters: Sequence[str]) -> None:
        """Queue UNSUBSCRIBE. Called after `subscribe`, so that both are sent in one write."""
        self.unsubscribed = False
        self._send(Unsubscribe(UNSUBSCRIBE_MID, tuple(topic_filters)))

    def granted_qos(self, topic_filter: str) -> int:
        """Return the granted QoS. Raises LinkRefused if SUBACK contains a failure."""
        code = self.granted[0] if self.granted else FAILURE
        if code >= FAILURE:
            raise LinkRefused(f"the broker rejected the subscription to {topic_filter}: {reason_name(code)}")
        return code

    def disconnect(self) -> None:
        """Queue DISCONNECT."""
        self._send(Disconnect())

    def _send(self, packet: Packet) -> None:
        self.queue(encode(packet, "big", self._level))

    def queue(self, packets: bytes) -> None:
        """Queue encoded packets for writing. May be called on any thread, which then must wake the network thread."""
        # A memoryview avoids copies after partial writes.
        self._output.append(memoryview(packets))

    @property
    def want_write(self) -> bool:
        """Whether there is unwritten output."""
        return bool(self._output) or (self._stream is not None and self._stream.unsent)

    def write(self) -> None:
        """Write as much as the network accepts. Raises LinkLost."""
        stream, output = self._stream, self._output
        assert stream is not None
        try:
            if stream.unsent and not output:
                stream.send(b"")
            while output:
                data = output[0]
                sent = stream.send(data)
                if sent < len(data):
                    output[0] = data[sent:]
                    if not sent or stream.unsent:
                        break
                else:
                    output.popleft()
        except OSError as error:
            raise LinkLost(f"the connection broke: {error}") from error
        self._written_at = time.monotonic()

    def check_keep_alive(self, *, reading: bool) -> None:
        """Queue PINGREQ after silence in one direction. Raises LinkLost if the last one was not answered in time.

        While nothing is read, no answer is expected.
        """
        now = time.monotonic()
        if not reading:
            self._pinged_at = 0.0
        if not self._keep_alive or now - min(self._written_at, self._read_at) < self._keep_alive:
            return
        if self._pinged_at and now - self._read_at >= self._keep_alive:
            raise LinkLost(f"{reason_name(ReasonCode.KEEP_ALIVE_TIMEOUT)}: PINGREQ was not answered")
        if self.accepted:
            self._send(Pingreq())
            self._pinged_at = self._written_at = self._read_at = now

    @property
    def backlog(self) -> bool:
        """Whether received packets are waiting because there is no room for publications."""
        return bool(self._packets)

    def read(self) -> None:
        """Read available bytes and pass the packets on. Raises LinkLost if the broker or the connection fails."""
        stream = self._stream
        assert stream is not None
        try:
            if not self._packets:
                data = stream.fill(self._decoder.missing)
                if data:
                    self._read_at = time.monotonic()
                if not self.accepted and self._version_5 and data[:4] in _UNACCEPTABLE_VERSION:
                    self._connack(Connack(ReasonCode.UNSUPPORTED_PROTOCOL_VERSION))
                self._packets = self._decoder.feed(data)
            self._deal()
            if self._decoder.error is not None and not self._packets:
                raise self._decoder.error
        except OSError as error:
            raise LinkLost(f"the connection broke: {error}") from error
        except MalformedPacket as error:
            raise LinkLost(f"the broker sent a malformed packet: {error}") from error
        except WrongAcknowledgement as error:
            raise LinkLost(f"the broker violated MQTT: {error}") from error
        if stream.ended and not self._packets:
            raise LinkLost("the broker closed the connection")

    def _deal(self) -> None:
        """Pass decoded packets on in order, as far as there is room."""
        publications: list[Publish] = []
        answers: list[Answer] = []
        releases: list[int] = []
        room = self._sinks.room()
        packets, self._packets = self._packets, []
        for position, packet in enumerate(packets):
            if isinstance(packet, Publish):
                if len(publications) >= room:
                    self._packets = packets[position:]
                    break
                publications.append(packet)
            elif isinstance(packet, (Puback, Pubrec, Pubcomp)):
                answers.append(packet)
            elif isinstance(packet, Pubrel):
                releases.append(packet.message_id)
            else:
                self._hand_over(publications, answers, releases)
                publications, answers, releases = [], [], []
                self._control(packet)
                room = self._sinks.room()
        self._hand_over(publications, answers, releases)

    def _hand_over(self, publications: list[Publish], answers: list[Answer], releases: list[int]) -> None:
        if publications:
            self._sinks.publications(publications)
        if answers:
            self._sinks.answers(answers)
        if releases:
            self._sinks.releases(releases)

    def _control(self, packet: Packet) -> None:
        """Process a packet that is not about messages. Raises LinkLost, MalformedPacket."""
        match packet:
            case Connack() if not self.accepted:
                self._connack(packet)
            case Suback():
                self.granted = packet.return_codes
            case Unsuback():
                self.unsubscribed = True
            case Pingresp():
                self._pinged_at = 0.0
            case Disconnect():
                raise LinkLost(f"the broker disconnected: {_explained(packet.reason_code, packet.properties)}")
            case _:
                name = type(packet).__name__.upper()
                raise MalformedPacket(name, 0, "MQTT 5 section 4.13: this packet is not expected", ReasonCode.PROTOCOL_ERROR)

    def _connack(self, packet: Connack) -> None:
        code, properties = packet.return_code, packet.properties
        if code:
            if not self._version_5:
                code = REASON_CODES[ConnackCode(code)] if code in set(ConnackCode) else FAILURE
            text = f"the broker rejected CONNECT: {_explained(code, properties)}"
            raise (LinkLost if code in _PASSING or self._is_no_broker(packet) else LinkRefused)(text)
        if properties is not None:
            usual = Limits()
            self.limits = Limits(
                receive_maximum=properties.receive_maximum or usual.receive_maximum,
                maximum_qos=usual.maximum_qos if properties.maximum_qos is None else properties.maximum_qos,
                retain_available=properties.retain_available != 0,
                maximum_packet_size=properties.maximum_packet_size or usual.maximum_packet_size,
            )
            if properties.server_keep_alive is not None:
                self._keep_alive = properties.server_keep_alive
        self.session_present = packet.session_present
        self.accepted = True
        self._sinks.accepted(packet.session_present)

    def _is_no_broker(self, packet: Connack) -> bool:
        """Return whether MQTT 3.1.1 was rejected, which every broker knows."""
        return not self._version_5 and packet.return_code == ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION

    def close(self) -> None:
        """Close the connection without DISCONNECT."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _explained(code: int, properties: Any) -> str:
    """Return the name of a reason code, with the broker's Reason String if present."""
    explanation = None if properties is None else properties.reason_string
    return f"{reason_name(code)} ({explanation})" if explanation else reason_name(code)
