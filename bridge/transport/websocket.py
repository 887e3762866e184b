"""WebSocket as a layer: MQTT in binary frames (MQTT 3.1.1 section 6), with the sans-I/O part of the `websockets` package."""

from __future__ import annotations

import logging

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from bridge.config.channel import WebSocketConfig
from bridge.transport.layer import LayerError

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
        seen, self._seen = self._seen, (self._seen + data)[-len(_END) + 1 :]
        end = (seen + data).find(_END)
        if end < 0:
            return self._payloads(data)
        end += len(_END) - len(seen)
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
