"""The server's half of MQTT 3.1 and 3.1.1 on one connection. Bytes in, events out; commands in, bytes out; no I/O, no clock.

A connection is in one of five states, and `LEGAL` says of each packet what it is worth in each state:

    WAITING_FOR_CONNECT --CONNECT--> AUTHENTICATING --accept()--> CONNECTED --disconnect()--> DISCONNECTING --> CLOSED
                                                    --refuse()-------------------------------------^

Whoever owns the connection hands over what has come with `receive_data`, acts on the events that it returns, answers by
commands, and sends what `data_to_send` returns. A turn is bounded in bytes and packets, whatever the client has sent: `more`
says that there is another one, which `events` returns. `deadline` is when silence ends the connection.

The protocol knows nothing of sessions: which acknowledgement is awaited is `bridge.mqtt.in_flight`, what a client is entitled
to is `bridge.service`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import Final

from bridge.mqtt.events import Disconnected, Event, Messages
from bridge.wire.mqtt import (
    MAX_REMAINING_LENGTH,
    ByteOrder,
    Connack,
    ConnackCode,
    Connect,
    Decoder,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    encode,
    encode_acknowledgement,
    encode_publish,
)

#: Bytes of one client that are decoded in one turn.
BYTES_AT_A_TURN: Final = 65_536
#: Packets of one client that are worked on in one turn, and those that a topic filter, or another control packet, counts for.
PACKETS_AT_A_TURN, FILTER_PACKETS = 1_000, 20
#: Bytes of an incomplete packet that count as a sign of life. (A client that sends it byte by byte is as good as silent.)
PARTIAL_BYTES: Final = 1_000
#: The server gives a client one and a half times its keep-alive (MQTT-3.1.2-24).
KEEP_ALIVE_GRACE: Final = 1.5
_PINGRESP: Final = encode(Pingresp())


class State(IntEnum):
    """How far a connection has come (MQTT 3.1.1 sections 3.1, 3.2 and 3.14)."""

    #: nothing has come, or no whole packet
    WAITING_FOR_CONNECT = 0
    #: CONNECT came, CONNACK is not sent yet
    AUTHENTICATING = 1
    #: CONNACK 0 is sent
    CONNECTED = 2
    #: nothing more is read; what is written is still sent
    DISCONNECTING = 3
    #: the network connection is gone
    CLOSED = 4


_AUTHENTICATING: Final = State.AUTHENTICATING
_CONNECTED: Final = State.CONNECTED
_DISCONNECTING: Final = State.DISCONNECTING


class Verdict(Enum):
    """What a packet is worth in a state where it breaks no rule."""

    ACCEPTED = "accepted"
    #: it is judged when CONNACK is sent
    WAITS = "waits"
    IGNORED = "ignored"


_ACCEPTED, _WAITS, _IGNORED = Verdict.ACCEPTED, Verdict.WAITS, Verdict.IGNORED
_FIRST = "MQTT-3.1.0-1: the first packet of a client is CONNECT"
_SECOND = "MQTT-3.1.0-2: a client sends CONNECT once"
_DIRECTION = "MQTT 3.1.1 section 2.2.1, table 2.1: such a packet flows from server to client"
_RESERVED = "MQTT 3.1.1 section 2.2.1, table 2.1: packet type 15 is reserved (AUTH belongs to MQTT 5)"
_LATER = "MQTT 3.1.1 section 3.1.4: a client may send more before it has got CONNACK"
_TO_CLIENT = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)


def _row(connect: Verdict | str, others: Verdict | str, *, open: bool = False) -> dict[PacketType, Verdict | str]:
    row = dict.fromkeys(PacketType, others)
    row[PacketType.CONNECT] = connect
    if open:
        row |= dict.fromkeys(_TO_CLIENT, _DIRECTION)
        row[PacketType.AUTH] = _RESERVED
    return row


#: state -> packet -> what it is worth, or the statement that it breaks. `_LATER` is why packets wait in AUTHENTICATING;
#: after MQTT-3.14.4-2 and section 4.8 nothing is read that comes behind a DISCONNECT or an error.
LEGAL: Final[dict[State, dict[PacketType, Verdict | str]]] = {
    State.WAITING_FOR_CONNECT: _row(_ACCEPTED, _FIRST, open=True),
    State.AUTHENTICATING: _row(_WAITS, _WAITS),
    State.CONNECTED: _row(_SECOND, _ACCEPTED, open=True),
    State.DISCONNECTING: _row(_IGNORED, _IGNORED),
    State.CLOSED: _row(_IGNORED, _IGNORED),
}

_MESSAGES: Final = frozenset((Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingreq))
#: An answer to a packet about messages: its type, and its message id (0 for PINGRESP).
Answer = tuple[PacketType, int]


class ServerProtocol:
    """One connection of a client, from its first byte to its last."""

    __slots__ = (
        "_connected_at",
        "_data",
        "_decoder",
        "_heard",
        "_last_words",
        "_now",
        "_out",
        "_packets",
        "_partial",
        "byte_order",
        "connect_timeout",
        "ended",
        "keep_alive",
        "level",
        "more",
        "state",
    )

    def __init__(
        self,
        now: float,
        *,
        connect_timeout: float = 10.0,
        max_packet_size: int = MAX_REMAINING_LENGTH,
        byte_order: ByteOrder = "big",
    ) -> None:
        """Begin a connection that was made at `now`, in seconds of the owner's clock."""
        self.state = State.WAITING_FOR_CONNECT
        self.byte_order: ByteOrder = byte_order
        self.connect_timeout = connect_timeout
        #: seconds as CONNECT gives them; 0 for none
        self.keep_alive = 0
        #: protocol level of CONNECT; 0 before it
        self.level = 0
        #: nothing more is taken of what the client sends
        self.ended = False
        #: behind the last `events` there is another turn for this client
        self.more = False
        controls = PACKETS_AT_A_TURN // FILTER_PACKETS
        self._decoder = Decoder(max_packet_size=max_packet_size, byte_order=byte_order, control_packets=controls)
        #: bytes that are not decoded, and packets that belong to later turns
        self._data = b""
        self._packets: list[Packet] = []
        self._now = self._heard = now
        #: bytes of a packet that is not complete, since the last one or since they were last counted
        self._partial = 0
        self._out: list[bytes] = []
        #: what was written before `disconnect`, while it is not taken yet
        self._last_words = b""

    # Bytes in, events out --------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take bytes that have come at `now`; return what happens in this turn of the client, as `events` does.

        While earlier turns are due, nothing happens in this one.
        """
        self._now = now
        if self.ended:
            return []
        if self._data or self._packets or self.state is not _CONNECTED or len(data) > BYTES_AT_A_TURN:
            self._data = self._data + data if self._data else data
            return [] if self.more else self.events()
        packets = self._decode(data)
        whole = 0 < len(packets) <= PACKETS_AT_A_TURN and not self._data and self._decoder.error is None
        if whole and all(type(packet) in _MESSAGES for packet in packets):
            self._heard = now
            self._partial = 0
            return [Messages(packets)]  # type: ignore[arg-type]
        return self._turn(packets, len(data))

    @property
    def buffered(self) -> int:
        """Return the bytes that have come and are not decoded yet."""
        return len(self._data)

    def events(self) -> list[Event]:
        """Return what happens in the next turn of this client; `Disconnected` is the last event of all.

        A PUBLISH is not answered by this: events are for the owner to act on, in their order.
        """
        if self.ended or self.state is _AUTHENTICATING:
            self.more = False
            return []
        packets, size = self._packets, 0
        if packets:
            self._packets = []
        else:
            data, self._data = self._data[:BYTES_AT_A_TURN], self._data[BYTES_AT_A_TURN:]
            packets, size = self._decode(data), len(data)
        return self._turn(packets, size)

    def _decode(self, data: bytes) -> list[Packet]:
        """Return the packets in bytes; bytes behind a turn's worth of control packets belong to later turns."""
        decoder = self._decoder
        packets = decoder.feed(data)
        if decoder.rest:
            self._data, decoder.rest = decoder.rest + self._data, b""
        return packets

    def _turn(self, packets: list[Packet], size: int) -> list[Event]:
        """Make events of packets, decoded from `size` bytes."""
        events: list[Event] = []
        if self.state is _CONNECTED:
            # Packets count for the keep-alive (MQTT-3.1.2-24); of a long one, which takes its time, so do its parts.
            self._partial += size
            if packets or self._partial >= PARTIAL_BYTES:
                self._heard = self._now
                self._partial = 0
            self._take(packets, events)
        elif packets:
            self._take_first(packets, events)
        if self._decoder.error is not None and not self._packets and not self.ended and self.state is not _AUTHENTICATING:
            self._end(f"malformed packet: {self._decoder.error}", events)
        self.more = bool(self._data or self._packets) and self.state is not _AUTHENTICATING
        return events

    def _take_first(self, packets: list[Packet], events: list[Event]) -> None:
        packet = packets[0]
        verdict = LEGAL[self.state][_TYPE_OF[type(packet)]]
        if not isinstance(packet, Connect):
            self._end(f"its first packet is a {type(packet).__name__.upper()}: {verdict}", events)
            return
        self.state = _AUTHENTICATING
        self.level = packet.protocol_level
        self.keep_alive = packet.keep_alive
        self._packets = packets[1:]
        events.append(packet)

    def _take(self, packets: list[Packet], events: list[Event]) -> None:
        """Make events of packets of a connected client; those beyond its turn wait for the next one."""
        count = len(packets)
        index, left = 0, PACKETS_AT_A_TURN
        while index < count:
            begin, stop = index, min(count, index + left)
            while index < stop and type(packets[index]) in _MESSAGES:
                index += 1
            if index > begin:
                left -= index - begin
                events.append(Messages(packets[begin:index]))  # type: ignore[arg-type]
            if index == count:
                return
            if left <= 0:
                self._packets = packets[index:]
                return
            left -= self._take_control(packets[index], events)
            if self.ended:
                return
            index += 1

    def _take_control(self, packet: Packet, events: list[Event]) -> int:
        """Take a packet that is not about messages; return the part of the turn that it takes."""
        if isinstance(packet, Subscribe | Unsubscribe):
            events.append(packet)
            return FILTER_PACKETS * len(packet.topics)
        verdict = LEGAL[State.CONNECTED][_TYPE_OF[type(packet)]]
        self._end("" if verdict is _ACCEPTED else f"it sent a {type(packet).__name__.upper()}: {verdict}", events)
        return 1

    def _end(self, why: str, events: list[Event]) -> None:
        self.ended = True
        self._data, self._packets = b"", []
        events.append(Disconnected(why))

    # Time ------------------------------------------------------------------------------------------------------------

    def hear(self, now: float) -> None:
        """Count `now` as a sign of life: the client has read, or the bridge did not listen until now."""
        self._heard = now

    def deadline(self) -> float | None:
        """Return when the silence of the client ends the connection; None: it may be silent."""
        if self.state is _CONNECTED and self.keep_alive:
            return self._heard + self.keep_alive * KEEP_ALIVE_GRACE
        if self.state is State.WAITING_FOR_CONNECT:
            return self._heard + self.connect_timeout
        return None

    def timeout(self, now: float) -> str:
        """Return why the connection ends by now: the client has been silent for too long; "" where it does not."""
        deadline = self.deadline()
        if deadline is None or now <= deadline:
            return ""
        if self.state is State.WAITING_FOR_CONNECT:
            return f"no CONNECT within {self.connect_timeout:g} s"
        return f"nothing came for {now - self._heard:.1f} s, its keep-alive is {self.keep_alive:g} s"

    # Commands in, bytes out ------------------------------------------------------------------------------------------

    def accept(self, now: float, *, session_present: bool) -> None:
        """Answer CONNECT by CONNACK 0; what came behind it is worked on from now on."""
        self.state = _CONNECTED
        self._heard = now
        self._out.append(encode(Connack(ConnackCode.ACCEPTED, session_present and self.level >= 4), self.byte_order))

    def refuse(self, code: ConnackCode) -> None:
        """Answer CONNECT by a CONNACK that refuses the client, and end the connection (MQTT-3.2.2-5)."""
        self._out.append(encode(Connack(code), self.byte_order))
        self.disconnect()

    def publish(self, topic: bytes, payload: bytes, qos: int, retain: bool, dup: bool, message_id: int) -> None:
        """Send PUBLISH; `topic` is as `bridge.wire.mqtt.encode_topic` returns it."""
        self._out.append(encode_publish(topic, payload, qos, retain, dup, message_id, self.byte_order))

    def release(self, message_id: int) -> None:
        """Send PUBREL."""
        self._out.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))

    def answer(self, answers: Iterable[Answer]) -> None:
        """Send PUBACK, PUBREC, PUBREL, PUBCOMP and PINGRESP, in the order given."""
        byte_order, out = self.byte_order, self._out
        for kind, message_id in answers:
            out.append(encode_acknowledgement(kind, message_id, byte_order) if message_id else _PINGRESP)

    def suback(self, message_id: int, return_codes: Sequence[int]) -> None:
        """Answer SUBSCRIBE: the QoS granted for each filter, or 0x80."""
        self._out.append(encode(Suback(message_id, tuple(return_codes)), self.byte_order))

    def unsuback(self, message_id: int) -> None:
        """Answer UNSUBSCRIBE."""
        self._out.append(encode(Unsuback(message_id), self.byte_order))

    def disconnect(self) -> None:
        """End the connection: nothing more is taken or written. MQTT 3.1.1 has no packet for that."""
        if self.state < _DISCONNECTING:
            self._last_words = b"".join(self._out)
            self.state = _DISCONNECTING
        self.ended, self.more = True, False
        self._data, self._packets = b"", []

    def lose(self) -> None:
        """Note that the network connection is gone."""
        self.disconnect()
        self.state = State.CLOSED
        self._last_words = b""

    def data_to_send(self) -> bytes:
        """Return what the commands since the last call have written, as one piece; b"" for nothing."""
        if self.state >= _DISCONNECTING:
            data, self._last_words = self._last_words, b""
            self._out.clear()
            return data
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data


_TYPE_OF: Final[dict[type[Packet], PacketType]] = {
    kind: PacketType[kind.__name__.upper()]
    for kind in (Connect, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Pingreq, Disconnect)
}
