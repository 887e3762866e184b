"""Telemetry channels: listeners for MQTT clients, and the connections they accept. The thin asyncio shell of the sessions.

What a connection carries is somebody else's business (`Gateway`); here are sockets, time-outs and flow control.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import Protocol, cast

from bridge.config import ChannelConfig
from bridge.mqtt.peer import Peer
from bridge.mqtt.session import Session
from bridge.wire import cmqc
from bridge.wire.mqtt import Connack, ConnackCode, Connect, Decoder, Packet, Will, encode

log = logging.getLogger(__name__)

#: Bytes of one client that are worked on in one turn of the event loop.
RECEIVED_AT_A_TURN = 65_536
#: Bytes of an incomplete packet that count as a sign of life. (A client that sends it byte by byte is as good as silent.)
PARTIAL_BYTES = 1_000
#: Seconds between looks at keep-alive, connect and retry time-outs.
SWEEP_INTERVAL = 0.5
#: Seconds that a client has to read what was sent to it before its connection was closed.
DRAIN_TIMEOUT = 30.0
#: The server gives a client one and a half times its keep-alive (MQTT-3.1.2-24).
KEEP_ALIVE_GRACE = 1.5


class Gateway(Protocol):
    """What a connection hands its packets to."""

    def connect(self, connection: Connection, packet: Connect) -> None:
        """Take the first packet of a connection, always a CONNECT."""

    def received(self, connection: Connection, packets: Sequence[Packet]) -> None:
        """Take packets of a connected client."""

    def writable(self, connection: Connection) -> None:
        """Go on with a client that was slow and has read what was written."""

    def sweep(self, connection: Connection, now: float) -> None:
        """Do what is due as time passes (called about every half second)."""

    def lost(self, connection: Connection) -> None:
        """Note that the connection of a connected client is gone."""


class Connection(asyncio.Protocol):
    """One network connection of an MQTT client."""

    __slots__ = (
        "_later",
        "_partial",
        "_transport",
        "_turn",
        "_unfed",
        "_unread",
        "channel",
        "client",
        "closing",
        "connecting",
        "decoder",
        "keep_alive",
        "last_received",
        "level",
        "paused",
        "pending",
        "session",
        "will",
    )

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.decoder = Decoder(max_packet_size=channel.config.max_packet_size, byte_order=channel.config.byte_order)
        self.session: Session | None = None
        self.will: Will | None = None
        #: seconds; 0 for none
        self.keep_alive = 0.0
        #: when bytes came last; before CONNACK, when the connection was made
        self.last_received = channel.loop.time()
        self.level = 0
        #: publications of this client that are not committed yet
        self.pending = 0
        self.paused = False
        self.closing = False
        #: CONNECT came, CONNACK is not sent yet
        self.connecting = False
        #: for log lines
        self.client = Peer("?")
        #: bytes written that the client had not read at the last look
        self._unread = 0
        #: packets that are still to be worked on, and behind them bytes: before CONNACK, or in this client's next turns
        self._later: list[Packet] = []
        self._unfed = b""
        #: its next turn is scheduled
        self._turn = False
        #: bytes of a packet that is not complete, since the last one or since they were last counted
        self._partial = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclasses
        channel = self.channel
        transport = self._transport
        peer = transport.get_extra_info("peername")
        self.client = Peer(f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "?")
        transport.set_write_buffer_limits(high=channel.pending_bytes)
        full = len(channel.connections) >= channel.config.max_clients
        if (full or channel.room.taken >= channel.room.connections) and not channel.make_room():
            log.warning(
                "channel %s: a connection %s is refused: %s",
                channel.config.name,
                self.client,
                f"max_clients ({channel.config.max_clients}) are connected"
                if full
                else f"the limit of open files leaves room for {channel.room.connections} clients",
            )
            self.refuse(ConnackCode.SERVER_UNAVAILABLE)
            return
        channel.connections.add(self)
        channel.room.taken += 1
        channel.silent[self] = None

    def data_received(self, data: bytes) -> None:
        """Work on bytes, so many as belong in one turn; the rest waits until others had theirs."""
        if self.closing:
            return
        if self._turn or self._unfed or self._later:
            # What came before is not done with yet: reading is paused, but this was on its way.
            self._unfed += data
            if len(self._unfed) > RECEIVED_AT_A_TURN:
                self.pause()
            return
        if len(data) > RECEIVED_AT_A_TURN:
            self._unfed = data[RECEIVED_AT_A_TURN:]
            data = data[:RECEIVED_AT_A_TURN]
            self._schedule()
        packets = self.decoder.feed(data)
        if self.session is not None:
            # Packets count for the keep-alive (MQTT-3.1.2-24); of a long one, which takes its time, so do its parts.
            self._partial += len(data)
            if packets or self._partial >= PARTIAL_BYTES:
                self.last_received = self.channel.loop.time()
                self._partial = 0
        if packets:
            if self.session is not None:
                self.channel.gateway.received(self, packets)
            else:
                self._first(packets)
        if self.decoder.error is not None and not self.closing and not self._later:
            self._malformed()

    def put_off(self, packets: list[Packet]) -> None:
        """Work on packets in this client's next turn: it has had this one."""
        self._later[:0] = packets
        self._schedule()

    def _schedule(self) -> None:
        self.pause()
        if not self._turn:
            self._turn = True
            self.channel.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Go on with what was put off."""
        self._turn = False
        if self.closing:
            return
        if self._later:
            packets, self._later = self._later, []
            self.channel.gateway.received(self, packets)
            if self.decoder.error is not None and not self.closing and not self._later:
                self._malformed()
        elif self._unfed:
            data, self._unfed = self._unfed, b""
            self.data_received(data)
        if self.closing:
            return
        if self._later or self._unfed:
            self._schedule()
        else:
            self.resume()

    def _first(self, packets: list[Packet]) -> None:
        if self.connecting:
            self._later += packets
            if len(self._later) > self.channel.pending_publications:
                self.pause()
            return
        packet = packets[0]
        if not isinstance(packet, Connect):
            # MQTT-3.1.0-1
            self.close(f"its first packet is a {type(packet).__name__.upper()}, not a CONNECT")
            return
        self.connecting = True
        self.channel.silent.pop(self, None)
        self._later = packets[1:]
        self.channel.gateway.connect(self, packet)

    def _malformed(self) -> None:
        error = self.decoder.error
        if self.connecting and self.session is None:
            # What came before it is still to be answered.
            self.channel.loop.call_soon(self.close, f"malformed packet: {error}")
            return
        self.close(f"malformed packet: {error}")

    def accept(self, session: Session, *, session_present: bool, keep_alive: int) -> None:
        """Send CONNACK 0, then take the packets that came behind the CONNECT."""
        self.session = session
        self.connecting = False
        self.last_received = self.channel.loop.time()
        self.keep_alive = keep_alive * KEEP_ALIVE_GRACE
        self.write(encode(Connack(ConnackCode.ACCEPTED, session_present and self.level >= 4), session.byte_order))
        self.resume()

    def take_held(self) -> None:
        """Work on packets that came before CONNACK was sent."""
        if self._later or self._unfed:
            self._take_turn()

    def refuse(self, code: ConnackCode) -> None:
        """Send a CONNACK that refuses the client, and close (MQTT-3.2.2-5)."""
        if self._transport is not None:
            self.write(encode(Connack(code)))
        self.close("")

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens on a connection that is closing."""
        if self._transport is not None and not self.closing:
            self._transport.write(data)

    def close(self, why: str) -> None:
        """Close after what was written; `why` goes to the log (blank where it was logged already)."""
        if self.closing:
            return
        self.closing = True
        if why:
            log.warning("channel %s: client %s is disconnected: %s", self.channel.config.name, self.client, why)
        if self._transport is not None:
            if self._transport.get_write_buffer_size():
                # A client that does not read must not keep its connection open for ever.
                self.channel.loop.call_later(DRAIN_TIMEOUT, self._transport.abort)
            self._transport.close()

    def pause(self) -> None:
        """Stop reading: the client has sent more than is committed, or does not read itself."""
        if not self.paused and self._transport is not None and not self.closing:
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, unless there is a reason left not to.

        Such a reason is that the channel stops, or that this client has not read what was sent to it, has sent more than is
        committed, or something of it is still to be worked on.
        """
        if not self.paused or self._transport is None or self.closing or self.channel.stopping:
            return
        if self._later or self._unfed or self.pending > self.channel.pending_publications:
            return
        if self.session is None or self.session.outbox.open:
            self.paused = False
            self.last_received = self.channel.loop.time()  # it may have sent something all the time
            self._transport.resume_reading()

    def hold(self, count: int) -> None:
        """Count what the queue manager has been asked for and has not answered; above a limit nothing more is read."""
        self.pending += count
        if self.pending > self.channel.pending_publications:
            self.pause()

    def release(self, count: int) -> None:
        """Count what it has answered."""
        self.pending -= count
        if self.paused and self.pending * 2 < self.channel.pending_publications:
            self.resume()

    def pause_writing(self) -> None:
        if self.session is not None:
            self.session.outbox.open = False
        # It gets no more answers before it has read those it was sent.
        self.pause()

    def resume_writing(self) -> None:
        if self.session is not None and self.session.connection is self:
            self._tell_dropped(self.session)
            self.session.outbox.open = True
            self.channel.gateway.writable(self)
        self.resume()

    def _tell_dropped(self, session: Session) -> None:
        dropped, session.outbox.dropped = session.outbox.dropped, 0
        if dropped:
            log.warning(
                "channel %s: client %s read too slowly: %d publications with QoS 0 for it were dropped",
                self.channel.config.name,
                self.client,
                dropped,
            )

    def abort(self) -> None:
        """Close without sending what is left."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.closing and self.session is not None:
            log.info(
                "channel %s: client %s is gone without DISCONNECT%s",
                self.channel.config.name,
                self.client,
                f": {error}" if error is not None else "",
            )
        self.closing = True
        self.channel.discard(self)
        if self.session is not None:
            self._tell_dropped(self.session)
            self.channel.gateway.lost(self)

    def sweep(self, now: float) -> None:
        """Close a connection that has been silent for too long."""
        silent = now - self.last_received
        if self.session is None:
            if silent > self.channel.config.connect_timeout and not self.connecting:
                self.close(f"no CONNECT within {self.channel.config.connect_timeout:g} s")
            return
        if self.paused:
            if self.session.outbox.open or self._transport is None:
                # It is the bridge that does not read: nothing can be said of the client.
                return
            unread = self._transport.get_write_buffer_size()
            if unread != self._unread:
                self._unread, self.last_received = unread, now
        if self.keep_alive and silent > self.keep_alive:
            self.close(f"nothing came for {silent:.1f} s, its keep-alive is {self.keep_alive / KEEP_ALIVE_GRACE:g} s")
            return
        self.channel.gateway.sweep(self, now)


class Room:
    """How many connections all channels may have: those for which there are descriptors."""

    def __init__(self, connections: int) -> None:
        self.connections = connections
        self.taken = 0


class Channel:
    """A listener with its rules."""

    def __init__(
        self,
        config: ChannelConfig,
        gateway: Gateway,
        *,
        pending_bytes: int,
        pending_publications: int,
        room: Room | None = None,
    ) -> None:
        self.config = config
        self.room = room or Room(config.max_clients)
        self.gateway = gateway
        self.pending_bytes = pending_bytes
        self.pending_publications = pending_publications
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        #: of these, those that have sent no CONNECT yet, the oldest first
        self.silent: dict[Connection, None] = {}
        #: reasons for which a refused publication goes to the dead-letter queue (MQRC numbers)
        self.dead_letters = frozenset(getattr(cmqc, name) for name in config.refused_to_dead_letters)
        #: nothing more is read
        self.stopping = False
        self._empty: asyncio.Future[None] | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def listen(self) -> tuple[str, int]:
        """Start to listen; returns address and port. Raises OSError when that is not possible."""
        self._server = await self.loop.create_server(
            lambda: Connection(self), self.config.address, self.config.port, backlog=self.config.backlog
        )
        self._timer = self.loop.call_later(SWEEP_INTERVAL, self._sweep)
        listener = self._server.sockets[0]
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address, port = listener.getsockname()[:2]
        return str(address), int(port)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)
        self._timer = self.loop.call_later(SWEEP_INTERVAL, self._sweep)

    def stop_listening(self) -> None:
        """Accept no more clients, and read no more from those connected."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.pause()

    def make_room(self) -> bool:
        """Have the connection give way that has been there longest without a CONNECT; False where all have sent theirs."""
        silent = next(iter(self.silent), None)
        if silent is None:
            return False
        self.discard(silent)
        silent.closing = True
        silent.abort()
        return True

    def discard(self, connection: Connection) -> None:
        """Forget a connection that is gone."""
        if connection in self.connections:
            self.connections.discard(connection)
            self.room.taken -= 1
        self.silent.pop(connection, None)
        if self._empty is not None and not self.connections and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """Close all connections once what was written to them is sent; returns when they are gone."""
        if not self.connections:
            return
        self._empty = self.loop.create_future()
        for connection in list(self.connections):
            connection.close("")
        await self._empty

    def abort(self) -> int:
        """Close the connections that are left at once; how many."""
        left = list(self.connections)
        for connection in left:
            connection.abort()
        return len(left)
