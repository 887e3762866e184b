"""An MQTT client's connection over TCP or a Unix socket: reading, writing, flow control, rate limits and timeouts.

Layers (`layer.py`) between the socket and MQTT implement the PROXY protocol, TLS and WebSockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol, cast

from bridge.config import ChannelConfig
from bridge.config.values import endpoint
from bridge.mqtt.connection import BYTES_AT_A_TURN, ServerProtocol, State
from bridge.mqtt.events import Event
from bridge.mqtt.packets import ConnackCode
from bridge.mqtt.reason_codes import ReasonCode
from bridge.security import audit_log
from bridge.security.authenticator import Certificate
from bridge.transport.layer import LayerError, Stack
from bridge.transport.peer import Peer

#: Seconds' worth that a client may send at once, when it has been silent before.
BURST = 2.0


class Rate:
    """A budget that grows with time, and may be overdrawn (a token bucket)."""

    __slots__ = ("_at", "_left", "per_second")

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._left = per_second * BURST
        self._at = now

    def spend(self, amount: float, now: float) -> float:
        """Take an amount; return after how many seconds the budget is in credit again, 0.0 where it is."""
        full = self.per_second * BURST
        self._left = min(full, self._left + (now - self._at) * self.per_second) - amount
        self._at = now
        return 0.0 if self._left >= 0 else -self._left / self.per_second


log = logging.getLogger(__name__)

#: Bytes that the layers below MQTT take before its first packet, at most: a PROXY header, TLS's handshake with the client's
#: certificates, the request of a WebSocket.
LAYERS_BEFORE_CONNECT = 262_144
#: Bytes that the layers take at a time, and the seconds of one turn of the event loop that they may spend on one connection.
UNWRAPPED_AT_ONCE = 2_048
UNWRAPPING_SECONDS = 0.001
#: Seconds that a client has to read what was sent to it before its connection was closed.
DRAIN_TIMEOUT = 30.0

#: Reasons not to read from a client: packets wait for their turn; too many requests are not committed; the client does not
#: read; the bridge stops; the client exceeded its rate; bytes wait for the layers below MQTT.
TURN: Final = 1
UNCOMMITTED: Final = 2
UNREAD: Final = 4
STOPPING: Final = 8
TOO_MUCH: Final = 16
WRAPPED: Final = 32


class Owner(Protocol):
    """What a connection hands its events to: the client at its other end, as the service knows it."""

    def received(self, events: Sequence[Event]) -> None:
        """Act on what the client has sent."""

    def send_more(self) -> None:
        """Go on with sending: a turn's bytes were not enough."""

    def pause_writing(self) -> None:
        """Send no more for now: the client does not read."""

    def resume_writing(self) -> None:
        """Go on with a client that was slow and has read what was written."""

    def expire(self) -> None:
        """Close the connection where what the client has shown of itself is true no more."""

    def sweep(self, now: float) -> None:
        """Do what is due as time passes (called about every half second), but not while the client is not read."""

    def lost(self) -> None:
        """Note that the connection is gone."""


class Gateway(Protocol):
    """What a channel hands new connections to."""

    def client(self, transport: StreamConnection, protocol: ServerProtocol, channel: ChannelConfig) -> Owner:
        """Return the owner of a connection that was just made."""


class Listener(Protocol):
    """What a connection needs of the channel that accepted it."""

    config: ChannelConfig
    gateway: Gateway
    loop: asyncio.AbstractEventLoop
    #: bytes that may wait for a client that does not read
    pending_bytes: int

    def admit(self, connection: StreamConnection) -> str:
        """Take a new connection in; why there is no room for it, or ""."""

    def stack(self, connection: StreamConnection) -> Stack | None:
        """Return the layers of a new connection; None where its bytes are those of MQTT."""

    def discard(self, connection: StreamConnection) -> None:
        """Forget a connection that is gone."""


class StreamConnection:
    """One network connection, on an asyncio transport.

    To asyncio it is a Protocol, in all but its base class: mypyc keeps no slots for what derives from an interpreted one.
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
        self.owner: Owner = listener.gateway.client(self, self.protocol, config)
        self.peer = Peer("?")
        #: IP address of the client, as far as it is known; "" on a Unix socket
        self.address = ""
        #: what its certificate says, which TLS or a proxy has verified
        self.certificate: Certificate | None = None
        self._stack: Stack | None = None
        #: when it is read again, having sent too much
        self._slow_until = 0.0
        #: bytes that it may send in a second; None: any
        self._bytes = None if config.publish_bytes is None else Rate(config.publish_bytes, self._time())
        self.closing = False
        #: bytes that may still come before CONNECT is there
        self._before_connect = config.max_connect_size + LAYERS_BEFORE_CONNECT
        #: reasons not to read
        self._held = 0
        #: bytes of the network that the layers have not taken yet
        self._wrapped = b""
        #: the client's next turn is scheduled
        self._scheduled = False
        #: bytes written that the client had not read at the last look
        self._unread = 0
        self._transport: asyncio.Transport | None = None

    # What asyncio calls ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        listener = self._listener
        peer = transport.get_extra_info("peername")
        if listener.config.socket is not None:
            self.peer = Peer(f"socket {listener.config.socket}")
        elif isinstance(peer, tuple):
            self.come_from(peer[0], peer[1])
        else:
            # It was reset before its address could be asked for; without one no rule could be asked about it.
            self.closing = True
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=listener.pending_bytes)
        no_room = listener.admit(self)
        if no_room:
            log.warning("MQB1001W channel %s: a connection %s is refused: %s", listener.config.name, self.peer, no_room)
            self._note_refusal(no_room)
            self._refuse()
            return
        self._stack = listener.stack(self)

    def come_from(self, address: str, port: int) -> None:
        """Note whose connection it is: that of the other end, or of the client that this one names as a proxy."""
        self.address = address
        self.peer = Peer(endpoint(address, port))

    def _refuse(self) -> None:
        """Close a connection before its CONNECT, which would be answered so."""
        if self._listener.config.tls is None and self._listener.config.websocket is None:
            self.protocol.refuse(ConnackCode.SERVER_UNAVAILABLE)
            self.flush()
        else:
            self.closing = True
            self.abort()

    def _note_refusal(self, why: str) -> None:
        """Note in the audit log that a connection ends before its CONNECT."""
        audit_log.note("refused", self.peer, stranger=self.address, channel=self._listener.config.name, why=why)

    def data_received(self, data: bytes) -> None:
        """Work on bytes, so many as belong in one turn; the rest waits until others had theirs."""
        if self._bytes is not None:
            self.slow_down(self._bytes.spend(len(data), self._time()))
        if self._stack is None:
            self._work_on(data)
        elif self._wrapped:
            self._wrapped += data
        else:
            self._take_wrapped(self._stack, data)

    def _take_wrapped(self, stack: Stack, data: bytes) -> None:
        """Take bytes of the network, for a bounded time; the rest waits for the next turn of the event loop.

        A WebSocket frame of six bytes takes as long as one of a thousand.
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
            self._transport.close()  # as at the end of the network connection

    def _take_more(self) -> None:
        data, self._wrapped = self._wrapped, b""
        if self._stack is not None and not self.closing:
            self._take_wrapped(self._stack, data)
        if not self._wrapped:
            self.let_go(WRAPPED)

    def _unwrap(self, stack: Stack, data: bytes) -> bytes:
        """Return the bytes of MQTT in bytes of the network; have the layers answer."""
        transport = self._transport
        if transport is None or self.closing:
            return b""
        plain, why = b"", ""
        if self.protocol.state is State.WAITING_FOR_CONNECT:
            self._before_connect -= len(data)
            if self._before_connect < 0:
                why = "no CONNECT is in more bytes than max_connect_size allows for"
        try:
            if not why:
                plain = stack.receive(data)
        except LayerError as error:
            why = str(error)
        answers = stack.send()
        if answers:
            transport.write(answers)
        if why:
            name = self._listener.config.name
            log.warning("MQB1002W channel %s: the connection of client %s ends: %s", name, self.peer, why)
            if self.protocol.state is State.WAITING_FOR_CONNECT:
                self._note_refusal(why)
            self.protocol.lose()
            self._close(transport)
        return plain

    def _work_on(self, data: bytes) -> None:
        protocol = self.protocol
        events = protocol.receive_data(data, self._time())
        if events:
            self.owner.received(events)
        elif protocol.buffered > BYTES_AT_A_TURN:
            self.hold(TURN)  # until its turn, or until CONNECT is answered
        if protocol.more and not self._scheduled:
            self._schedule()

    def pause_writing(self) -> None:
        self.owner.pause_writing()
        # It gets no more answers before it has read those it was sent.
        self.hold(UNREAD)

    def resume_writing(self) -> None:
        self.owner.resume_writing()
        self.let_go(UNREAD)

    def eof_received(self) -> None:
        """Have asyncio close the connection: the client sends no more."""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.closing and self.protocol.state is State.CONNECTED:
            log.info(
                "MQB1003I channel %s: client %s is gone without DISCONNECT%s",
                self._listener.config.name,
                self.peer,
                f": {error}" if error is not None else "",
            )
        self.closing = True
        self.protocol.lose()
        self._listener.discard(self)
        self.owner.lost()

    # Reading ---------------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Work on packets that have arrived. While too many requests are not committed, they wait."""
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
        """Stop reading for a while; 0.0: go on."""
        if not seconds:
            return
        self._slow_until = self._time() + seconds
        if not self._held & TOO_MUCH:
            self.hold(TOO_MUCH)
            self._listener.loop.call_later(seconds, self._speed_up)

    def _speed_up(self) -> None:
        left = self._slow_until - self._time()
        if left > 0:
            self._listener.loop.call_later(left, self._speed_up)
        else:
            self.let_go(TOO_MUCH)

    def hold(self, reason: int) -> None:
        """Stop reading for a reason."""
        if not self._held and self._transport is not None and not self.closing:
            self._transport.pause_reading()
        self._held |= reason

    def let_go(self, reason: int) -> None:
        """Drop a reason not to read; without any left, read again."""
        if not self._held & reason:
            return
        self._held &= ~reason
        if reason == UNCOMMITTED and self._held & TURN and not self._scheduled:
            self._schedule()
        if not self._held and self._transport is not None and not self.closing:
            self.protocol.hear(self._time())  # it may have sent something all the time
            self._transport.resume_reading()

    # Writing ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what the protocol has written, and close where it says so."""
        transport = self._transport
        if transport is None or self.closing:
            return
        data = self.protocol.data_to_send()
        if data:
            transport.write(data if self._stack is None else self._stack.send(data))
        if self.protocol.state is State.DISCONNECTING:
            self._close(transport)

    def send_more_soon(self) -> None:
        """Have the owner go on with sending in the next turn of the event loop."""
        self._listener.loop.call_soon(self.owner.send_more)

    def close(self, why: str = "", reason_code: int | None = None) -> None:
        """Close after what was written; `why` goes to the log (blank where it was logged already).

        The reason code goes to a client of MQTT 5, by DISCONNECT; None: it gets none.
        """
        if self.closing:
            return
        if why:
            log.warning(
                "MQB1004W channel %s: client %s is disconnected: %s", self._listener.config.name, self.peer, why
            )
        self.protocol.disconnect(reason_code, why)
        self.flush()
        self.closing = True

    def _close(self, transport: asyncio.Transport) -> None:
        self.closing = True
        last = b"" if self._stack is None else self._stack.close()
        if last:
            transport.write(last)
        if transport.get_write_buffer_size():
            # A client that does not read must not keep its connection open for ever.
            self._listener.loop.call_later(DRAIN_TIMEOUT, transport.abort)
        transport.close()

    def abort(self) -> None:
        """Close without sending what is left."""
        if self._transport is not None:
            self._transport.abort()

    # Time ------------------------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close a connection that has been silent for too long."""
        protocol, transport = self.protocol, self._transport
        if protocol.state is State.CONNECTED:
            self.owner.expire()
        if self._held and transport is not None and protocol.state is State.CONNECTED:
            if not self._held & UNREAD or self._held & STOPPING:
                # It is the bridge that does not read: nothing can be said of the client.
                return
            unread = transport.get_write_buffer_size()
            if unread != self._unread:
                self._unread = unread
                protocol.hear(now)
        why = protocol.timeout(now)
        if why:
            self.close(why, ReasonCode.KEEP_ALIVE_TIMEOUT)
        elif protocol.state is State.CONNECTED:
            self.owner.sweep(now)
