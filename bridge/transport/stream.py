"""An MQTT client's connection over TCP or a Unix socket: reading, writing, flow control, rate limits and timeouts.

Layers (`layers.py`) between the socket and MQTT implement the PROXY protocol, TLS and WebSockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

from bridge.config.channel import ChannelConfig
from bridge.config.values import endpoint
from bridge.mqtt.connection import BYTES_AT_A_TURN, ConnectionState, ServerProtocol
from bridge.mqtt.packets import ConnackCode, Event
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import Certificate
from bridge.transport.layers import ConnectionLimit, LayerError, Peer, Stack

#: The maximum burst of a client after silence, in seconds of its rate.
BURST = 2.0


class Rate:
    """A token bucket that may be overdrawn."""

    __slots__ = ("_at", "_left", "per_second")

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._left = per_second * BURST
        self._at = now

    def spend(self, amount: float, now: float) -> float:
        """Spend an amount. Return the seconds until the balance is positive again, or 0.0."""
        full = self.per_second * BURST
        self._left = min(full, self._left + (now - self._at) * self.per_second) - amount
        self._at = now
        return 0.0 if self._left >= 0 else -self._left / self.per_second


log = logging.getLogger(__name__)

#: Reasons for the end of a connection without an MQTT 5 reason code: DISCONNECT from the client, a failure of TLS, WebSocket
#: or the PROXY protocol, and the loss of the network connection.
BY_CLIENT: Final = "disconnected_by_client"
TRANSPORT_ERROR: Final = "transport_error"
CONNECTION_LOST: Final = "connection_lost"
_NAMES: Final = {int(code): code.name.lower() for code in ReasonCode}
#: The maximum number of bytes that the layers consume before CONNECT: PROXY header, TLS handshake with client certificates,
#: and WebSocket request.
LAYERS_BEFORE_CONNECT = 262_144
#: Bytes that the layers decode at a time, and the maximum time per connection and event loop turn, in seconds.
UNWRAPPED_AT_ONCE = 2_048
UNWRAPPING_SECONDS = 0.001
#: Maximum time for a client to read pending output after the bridge closed its connection, in seconds.
DRAIN_TIMEOUT = 30.0
#: Maximum time for a client to read the answer to a packet that is too large, in seconds.
LINGER_TIMEOUT = 5.0

#: Reasons not to read from a client, as bits.
#: Received packets wait for their turn.
TURN: Final = 1
#: Too many requests are uncommitted.
UNCOMMITTED: Final = 2
#: The client does not read.
UNREAD: Final = 4
#: The bridge stops.
STOPPING: Final = 8
#: The client exceeded its rate.
TOO_MUCH: Final = 16
#: The layers have bytes to decode.
WRAPPED: Final = 32


class ConnectionOwner(Protocol):
    """The receiver of a connection's events: the service's representation of the client."""

    def received(self, events: Sequence[Event]) -> None:
        """Process events from the client."""

    def send_more(self) -> None:
        """Continue sending after the limit of one turn was reached."""

    def pause_writing(self) -> None:
        """Pause sending, because the client does not read."""

    def resume_writing(self) -> None:
        """Resume sending, because the client has read the pending output."""

    def expire(self) -> None:
        """Close the connection if the client's credentials have expired."""

    def sweep(self, now: float) -> None:
        """Perform periodic work. Called about every half second, except while the bridge does not read from the client."""

    def lost(self) -> None:
        """Handle the loss of the connection."""


#: Creates the owner of a new connection.
MakesOwner = Callable[["StreamConnection", ServerProtocol, ChannelConfig], ConnectionOwner]


class Listener(Protocol):
    """The part of a channel that its connections use."""

    config: ChannelConfig
    make_owner: MakesOwner
    loop: asyncio.AbstractEventLoop
    #: maximum number of bytes of pending output per client
    pending_bytes: int
    #: number of failed handshakes, and the client and the reason of the last one
    handshakes_failed: int
    handshake_failure: str

    def admit(self, connection: StreamConnection) -> str:
        """Register a new connection. Return why it is refused, or ""."""

    def stack(self, connection: StreamConnection) -> Stack | None:
        """Return the layers of a new connection, or None if the connection carries plain MQTT."""

    def discard(self, connection: StreamConnection) -> None:
        """Forget a closed connection."""


class StreamConnection:
    """One network connection, on an asyncio transport.

    It implements asyncio.Protocol without deriving from it, because with an interpreted base, mypyc would not keep slots.
    """

    __slots__ = (
        "_before_connect",
        "_bytes",
        "_held",
        "_listener",
        "_scheduled",
        "_slow_until",
        "_stack",
        "_time",
        "_transport",
        "_unread",
        "_wrapped",
        "address",
        "certificate",
        "closing",
        "end_reason",
        "end_text",
        "owner",
        "peer",
        "protocol",
    )

    def __init__(self, listener: Listener) -> None:
        config = listener.config
        self._listener = listener
        self._time = listener.loop.time
        self.protocol = ServerProtocol(
            self._time(),
            connect_timeout=config.connect_timeout,
            max_packet_size=config.max_packet_size,
            max_connect_size=config.max_connect_size,
            byte_order=config.byte_order,
        )
        self.owner: ConnectionOwner = listener.make_owner(self, self.protocol, config)
        self.peer = Peer("?")
        #: IP address of the client, if known, or "" on a Unix socket
        self.address = ""
        #: the client's certificate, verified by TLS or a proxy
        self.certificate: Certificate | None = None
        self._stack: Stack | None = None
        #: time at which reading resumes after the rate was exceeded
        self._slow_until = 0.0
        #: rate limit in bytes per second, or None for unlimited
        self._bytes = None if config.publish_bytes is None else Rate(config.publish_bytes, self._time())
        self.closing = False
        #: why the connection ended: the name of an MQTT 5 reason code, or one of the constants below, or "" while it is open
        self.end_reason = ""
        #: why the bridge closed the connection, in words, or ""
        self.end_text = ""
        #: bytes that may still arrive before CONNECT is complete
        self._before_connect = config.max_connect_size + LAYERS_BEFORE_CONNECT
        #: reasons not to read
        self._held = 0
        #: bytes from the network that the layers have not decoded yet
        self._wrapped = b""
        #: the client's next turn is scheduled
        self._scheduled = False
        #: unread output at the last check, in bytes
        self._unread = 0
        self._transport: asyncio.Transport | None = None

    # asyncio callbacks ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        listener = self._listener
        peer = transport.get_extra_info("peername")
        if listener.config.socket is not None:
            self.peer = Peer(f"socket {listener.config.socket}")
        elif isinstance(peer, tuple):
            self.come_from(peer[0], peer[1])
        elif isinstance(peer, str):  # a connection in memory
            self.peer = Peer(peer)
        else:
            # The connection was reset before its address could be read. No address-based rule can be checked without it.
            self.closing = True
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=listener.pending_bytes)
        no_room = listener.admit(self)
        if no_room:
            log.warning("MQB1001W channel %s: rejected a connection %s: %s", listener.config.name, self.peer, no_room)
            self._note_refusal(no_room)
            self._refuse()
            return
        self._stack = listener.stack(self)

    def come_from(self, address: str, port: int) -> None:
        """Set the client's address: the address of the peer, or the address in a PROXY header."""
        self.address = address
        self.peer = Peer(endpoint(address, port))

    def _refuse(self) -> None:
        """Reject a connection before its CONNECT."""
        if self._listener.config.tls is None and self._listener.config.websocket is None:
            self.protocol.refuse(ConnackCode.SERVER_UNAVAILABLE)
            self.flush()
        else:
            self.closing = True
            self.abort()

    def _note_handshake(self, why: str) -> None:
        """Count a connection that failed before CONNECT."""
        self._listener.handshakes_failed += 1
        self._listener.handshake_failure = f"client {self.peer}: {why}"

    def _note_refusal(self, why: str) -> None:
        """Record a rejected connection in the audit log."""
        audit_log.note("refused", self.peer, stranger=self.address, channel=self._listener.config.name, why=why)

    def data_received(self, data: bytes) -> None:
        """Process received bytes within the limits of one turn. The rest waits until other connections had a turn."""
        if self.closing:
            return
        if self._bytes is not None:
            self.slow_down(self._bytes.spend(len(data), self._time()))
        if self._stack is None:
            self._work_on(data)
        elif self._wrapped:
            self._wrapped += data
        else:
            self._take_wrapped(self._stack, data)

    def _take_wrapped(self, stack: Stack, data: bytes) -> None:
        """Decode bytes from the network for a bounded time. The rest waits for the next turn of the event loop.

        A WebSocket frame of six bytes takes as long to decode as one of a thousand.
        """
        step = UNWRAPPED_AT_ONCE if self._listener.config.websocket is not None else len(data)
        deadline = self._time() + UNWRAPPING_SECONDS
        begin, plain = 0, []
        while begin < len(data) and not self.closing:
            plain.append(self._unwrap(stack, data[begin : begin + step]))
            begin += step
            if begin < len(data) and self._time() > deadline:
                self._wrapped = data[begin:]
                self.hold(WRAPPED)
                self._listener.loop.call_soon(self._take_more)
                break
        unwrapped = b"".join(plain)
        if unwrapped:
            self._work_on(unwrapped)
        if stack.ended and self._transport is not None:
            self._transport.close()  # as if the network connection had ended

    def _take_more(self) -> None:
        data, self._wrapped = self._wrapped, b""
        if self._stack is not None and not self.closing:
            self._take_wrapped(self._stack, data)
        if not self._wrapped:
            self.let_go(WRAPPED)

    def _unwrap(self, stack: Stack, data: bytes) -> bytes:
        """Decode bytes from the network to MQTT bytes, and send the layers' answers."""
        transport = self._transport
        if transport is None or self.closing:
            return b""
        plain, why, limited = b"", "", False
        if self.protocol.state is ConnectionState.WAITING_FOR_CONNECT:
            self._before_connect -= len(data)
            if self._before_connect < 0:
                why = "no CONNECT is in more bytes than max_connect_size allows for"
        try:
            if not why:
                plain = stack.receive(data)
        except LayerError as error:
            why, limited = str(error), isinstance(error, ConnectionLimit)
        answers = stack.send()
        if answers:
            transport.write(answers)
        if why:
            name = self._listener.config.name
            log.warning("MQB1002W channel %s: closed the connection of client %s: %s", name, self.peer, why)
            if self.protocol.state is ConnectionState.WAITING_FOR_CONNECT:
                if not limited:
                    self._note_handshake(why)
                self._note_refusal(why)
            self.end_reason = self.end_reason or TRANSPORT_ERROR
            self.protocol.lose()
            self._close(transport)
        return plain

    def _work_on(self, data: bytes) -> None:
        protocol = self.protocol
        events = protocol.receive_data(data, self._time())
        if events:
            self.owner.received(events)
        elif protocol.buffered > BYTES_AT_A_TURN:
            self.hold(TURN)  # until the client's turn, or until CONNECT is answered
        if protocol.more and not self._scheduled:
            self._schedule()

    def pause_writing(self) -> None:
        self.owner.pause_writing()
        # Do not process further requests until the client has read the pending answers.
        self.hold(UNREAD)

    def resume_writing(self) -> None:
        self.owner.resume_writing()
        self.let_go(UNREAD)

    def eof_received(self) -> None:
        """Let asyncio close the connection: the client has closed its sending side."""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.closing and self.protocol.state is ConnectionState.CONNECTED:
            log.info(
                "MQB1003I channel %s: client %s left without DISCONNECT%s",
                self._listener.config.name,
                self.peer,
                f": {error}" if error is not None else "",
            )
        self.closing = True
        self.end_reason = self.end_reason or CONNECTION_LOST
        self.protocol.lose()
        self._listener.discard(self)
        self.owner.lost()

    # Reading ---------------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Process received packets, unless too many requests are uncommitted."""
        self._scheduled = False
        if self._held & UNCOMMITTED:
            return
        events = self.protocol.events()
        if events:
            self.owner.received(events)
        if self.protocol.more:
            self._schedule()
        else:
            self.let_go(TURN)

    def _schedule(self) -> None:
        self._scheduled = True
        self.hold(TURN)
        self._listener.loop.call_soon(self.take_turn)

    def slow_down(self, seconds: float) -> None:
        """Stop reading for a number of seconds. 0.0 does nothing."""
        if not seconds:
            return
        self._slow_until = self._time() + seconds
        if not self._held & TOO_MUCH:
            self.hold(TOO_MUCH)
            self._listener.loop.call_later(seconds, self._speed_up)

    def _speed_up(self) -> None:
        seconds = self._slow_until - self._time()
        if seconds > 0:
            self._listener.loop.call_later(seconds, self._speed_up)
        else:
            self.let_go(TOO_MUCH)

    def hold(self, reason: int) -> None:
        """Stop reading for the given reason."""
        if not self._held and self._transport is not None and not self.closing:
            self._transport.pause_reading()
        self._held |= reason

    def let_go(self, reason: int) -> None:
        """Remove a reason not to read. Resume reading if no reason remains."""
        if not self._held & reason:
            return
        self._held &= ~reason
        if reason == UNCOMMITTED and self._held & TURN and not self._scheduled:
            self._schedule()
        if not self._held and self._transport is not None and not self.closing:
            self.protocol.hear(self._time())  # the client may have sent something in the meantime
            self._transport.resume_reading()

    # Writing ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the protocol's output, and close the connection if the protocol requests it."""
        transport = self._transport
        if transport is None or self.closing:
            return
        output = self.protocol.data_to_send()
        if output:
            transport.write(output if self._stack is None else self._stack.send(output))
        if self.protocol.state is ConnectionState.DISCONNECTING:
            self._close(transport)

    def send_more_soon(self) -> None:
        """Schedule the owner's `send_more` in the next turn of the event loop."""
        self._listener.loop.call_soon(self.owner.send_more)

    def close(self, why: str = "", reason_code: int | None = None) -> None:
        """Close the connection after the pending output. `why` is logged unless it is blank.

        `reason_code` is sent to MQTT 5 clients in DISCONNECT. None sends no DISCONNECT.
        """
        if self.closing:
            return
        if why:
            log.warning("MQB1004W channel %s: disconnected client %s: %s", self._listener.config.name, self.peer, why)
            self.end_text = self.end_text or why
        if not self.end_reason:
            self.end_reason = BY_CLIENT if reason_code is None else _NAMES[reason_code]
        self.protocol.disconnect(reason_code, why)
        self.flush()
        self.closing = True

    def _close(self, transport: asyncio.Transport) -> None:
        self.closing = True
        last = b"" if self._stack is None else self._stack.close()
        if last:
            transport.write(last)
        if self.protocol.too_large:
            # The client is still sending. Closing the socket would reset the connection and discard output that the client
            # has not read. So discard its input until it closes its side.
            if self._held:
                transport.resume_reading()
            transport.write_eof()
            self._listener.loop.call_later(LINGER_TIMEOUT, transport.abort)
            return
        if transport.get_write_buffer_size():
            # A client that does not read must not keep its connection open forever.
            self._listener.loop.call_later(DRAIN_TIMEOUT, transport.abort)
        transport.close()

    def abort(self) -> None:
        """Close the connection without sending the pending output."""
        if self._transport is not None:
            self._transport.abort()

    # Time ------------------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close the connection if a timeout has expired."""
        protocol, transport = self.protocol, self._transport
        if protocol.state is ConnectionState.CONNECTED:
            self.owner.expire()
        if self._held and transport is not None and protocol.state is ConnectionState.CONNECTED:
            if not self._held & UNREAD or self._held & STOPPING:
                # The bridge itself has paused reading, so the client's silence is irrelevant.
                return
            unread = transport.get_write_buffer_size()
            if unread != self._unread:
                self._unread = unread
                protocol.hear(now)
        why = protocol.timeout(now)
        if why:
            if protocol.state is ConnectionState.WAITING_FOR_CONNECT:
                self._note_handshake(why)
            self.close(why, ReasonCode.KEEP_ALIVE_TIMEOUT)
        elif protocol.state is ConnectionState.CONNECTED:
            self.owner.sweep(now)
