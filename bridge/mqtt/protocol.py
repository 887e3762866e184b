"""The server's half of MQTT 3.1, 3.1.1 and 5 on one connection. Bytes in, events out; commands in, bytes out; no I/O.

A connection is in one of five states, and `LEGAL` says of each packet what it is worth in each state:

    WAITING_FOR_CONNECT --CONNECT--> AUTHENTICATING --accept()--> CONNECTED --disconnect()--> DISCONNECTING --> CLOSED
                                                    --refuse()-------------------------------------^

Whoever owns the connection hands over what has come with `receive_data`, acts on the events that it returns, answers by
commands, and sends what `data_to_send` returns. A turn is bounded in bytes, in packets, and in the deliveries that its
publications cause (`portion`). `more` is True if there is another turn, which `events` returns. `deadline` is when silence
ends the connection.

The protocol knows nothing of sessions: which acknowledgement is awaited is `bridge.mqtt.in_flight`, what a client is entitled
to is `bridge.service`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import Final

from bridge.mqtt.connection_state import LEGAL, State
from bridge.mqtt.events import Disconnected, Event, MessagePacket, Messages
from bridge.mqtt.output import Output
from bridge.mqtt.topic_aliases import IncomingTopicAliases, OutgoingTopicAliases
from bridge.wire.mqtt import (
    LEVEL_MQTT_5,
    MAX_REMAINING_LENGTH,
    Auth,
    ByteOrder,
    ConnackProperties,
    Connect,
    Decoder,
    Disconnect,
    MalformedPacket,
    Packet,
    PacketType,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Subscribe,
    Unsubscribe,
)

#: Bytes of one client that are decoded in one turn.
BYTES_AT_A_TURN: Final = 65_536
#: Packets of one client that are worked on in one turn, and those that a topic filter, or another control packet, counts for.
PACKETS_AT_A_TURN, FILTER_PACKETS = 1_000, 20
#: With so few recipients, and so few deliveries in a turn at most, deliveries are not counted.
FEW_RECIPIENTS, FEW_DELIVERIES = 200, 20_000
#: Topic Aliases of one direction, at most (MQTT 5 section 3.2.2.3.8).
TOPIC_ALIAS_MAXIMUM: Final = 64
#: Bytes of an incomplete packet that count as a sign of life. (A client that sends it byte by byte is as good as silent.)
PARTIAL_BYTES: Final = 1_000
#: The server gives a client one and a half times its keep-alive (MQTT-3.1.2-24).
KEEP_ALIVE_GRACE: Final = 1.5


_AUTHENTICATING: Final = State.AUTHENTICATING
_CONNECTED: Final = State.CONNECTED
_DISCONNECTING: Final = State.DISCONNECTING


_MESSAGES: Final = frozenset((Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingreq))


class ServerProtocol(Output):
    """One connection of a client, from its first byte to its last."""

    __slots__ = (
        "_authenticating",
        "_data",
        "_decoder",
        "_heard",
        "_incoming_aliases",
        "_now",
        "_packets",
        "_partial",
        "connect_timeout",
        "more",
        "portion",
        "recipients",
    )

    def __init__(
        self,
        now: float,
        *,
        connect_timeout: float = 10.0,
        max_packet_size: int = MAX_REMAINING_LENGTH,
        max_connect_size: int = MAX_REMAINING_LENGTH,
        byte_order: ByteOrder = "big",
    ) -> None:
        """Begin a connection that was made at `now`, in seconds of the owner's clock."""
        Output.__init__(self, byte_order)
        self.connect_timeout = connect_timeout
        #: the client authenticates itself, again where it is connected
        self._authenticating = False
        self._incoming_aliases: IncomingTopicAliases | None = None
        #: there is another turn for this client
        self.more = False
        #: everything that a publication may be delivered to
        self.recipients: Sized = ()
        #: returns how many of these packets, at least one, belong in one turn. Called if packets or recipients are many.
        self.portion: Callable[[Sequence[MessagePacket]], int] = len
        controls = PACKETS_AT_A_TURN // FILTER_PACKETS
        self._decoder = Decoder(
            max_packet_size=max_packet_size,
            max_first_size=max_connect_size,
            byte_order=byte_order,
            control_packets=controls,
        )
        #: bytes that are not decoded, and packets that belong to later turns
        self._data = b""
        self._packets: list[Packet] = []
        self._now = self._heard = now
        #: bytes of a packet that is not complete, since the last one or since they were last counted
        self._partial = 0

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
            messages: list[MessagePacket] = packets  # type: ignore[assignment]
            self._heard = now
            self._partial = 0
            count, recipients = len(messages), len(self.recipients)
            if recipients <= FEW_RECIPIENTS and count * recipients <= FEW_DELIVERIES:
                return [Messages(messages)]
            count = self.portion(messages)
            if count == len(messages):
                return [Messages(messages)]
            self._packets = packets[count:]
            self.more = True
            return [Messages(messages[:count])]
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
        if self._incoming_aliases is not None:
            try:
                self._incoming_aliases.resolve(packets)
            except MalformedPacket as error:
                decoder.error = error
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
            if self.state is State.CHALLENGED:
                self._take_control(packets[0], events)
                self._packets = [] if self.ended else packets[1:]
            else:
                self._take_first(packets, events)
        if self._decoder.error is not None and not self._packets and not self.ended and self.state is not _AUTHENTICATING:
            self._end(f"malformed packet: {self._decoder.error}", events, self._decoder.error.reason_code)
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
        if self.level == LEVEL_MQTT_5:
            self._take_properties(packet)
        self._packets = packets[1:]
        events.append(packet)

    def _take_properties(self, packet: Connect) -> None:
        """Note what a client of MQTT 5 says of the connection (section 3.1.2.11)."""
        self._incoming_aliases = IncomingTopicAliases(TOPIC_ALIAS_MAXIMUM)
        properties = packet.properties
        if properties is not None:
            self.authentication_method = properties.authentication_method
            self._authenticating = self.authentication_method is not None
            self.max_packet_size = properties.maximum_packet_size or 0
            self.problem_information = properties.request_problem_information != 0
            if properties.topic_alias_maximum:
                self._outgoing_aliases = OutgoingTopicAliases(min(properties.topic_alias_maximum, TOPIC_ALIAS_MAXIMUM))

    def _take(self, packets: list[Packet], events: list[Event]) -> None:
        """Make events of packets of a connected client; those beyond its turn wait for the next one."""
        count = len(packets)
        index, left = 0, PACKETS_AT_A_TURN
        portion = -1
        while index < count:
            begin, stop = index, min(count, index + left)
            while index < stop and type(packets[index]) in _MESSAGES:
                index += 1
            if index > begin:
                if portion >= 0:
                    # A portion is for a whole turn: messages after another control packet wait for the next one.
                    self._packets = packets[begin:]
                    return
                messages: list[MessagePacket] = packets[begin:index]  # type: ignore[assignment]
                portion = self.portion(messages)
                events.append(Messages(messages[:portion]))
                if begin + portion < index:
                    self._packets = packets[begin + portion :]
                    return
                left -= index - begin
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
        if isinstance(packet, Subscribe | Unsubscribe) and self.state is _CONNECTED:
            events.append(packet)
            return FILTER_PACKETS * len(packet.topics)
        if isinstance(packet, Disconnect):
            self._end("", events, ReasonCode.SUCCESS, packet)
            return 1
        if isinstance(packet, Auth) and self.authentication_method is not None:
            self._take_auth(packet, events)
            return FILTER_PACKETS
        verdict = LEGAL[self.state][_TYPE_OF[type(packet)]]
        self._end(f"it sent a {type(packet).__name__.upper()}: {verdict}", events, ReasonCode.PROTOCOL_ERROR)
        return 1

    def _take_auth(self, packet: Auth, events: list[Event]) -> None:
        properties = packet.properties
        again = packet.reason_code == ReasonCode.RE_AUTHENTICATE
        why = ""
        if properties is None or properties.authentication_method != self.authentication_method:
            why = "MQTT-4.12.0-5: an AUTH has another Authentication Method than CONNECT"
        elif again and (self._authenticating or self.state is not _CONNECTED):
            why = "MQTT 5 section 4.12.1: it authenticates itself again before it has done so"
        elif not again and not self._challenged:
            why = "MQTT 5 section 4.12: an AUTH goes on with an authentication that does not wait for it"
        if why:
            self._end(why, events, ReasonCode.PROTOCOL_ERROR)
            return
        self._authenticating, self._challenged = True, False
        if self.state is State.CHALLENGED:
            self.state = _AUTHENTICATING
        events.append(packet)

    def _end(
        self, why: str, events: list[Event], reason_code: int = ReasonCode.PROTOCOL_ERROR, packet: Disconnect | None = None
    ) -> None:
        self.ended = True
        self._data, self._packets = b"", []
        # Of a CONNECT that is malformed the level is known, perhaps.
        self.level = self.level or self._decoder.protocol_level or 0
        events.append(Disconnected(why, reason_code, packet))

    def accept(self, now: float, *, session_present: bool, properties: ConnackProperties | None = None) -> None:
        """Answer CONNECT by CONNACK 0; what came behind it is worked on from now on."""
        self._heard = now
        self._authenticating = False
        self.accepted(session_present, properties)

    def authenticated(self, data: bytes | None) -> None:
        """Tell the client that it has authenticated itself again (MQTT 5 section 4.12.1)."""
        self._authenticating = False
        self._auth(ReasonCode.SUCCESS, data)

    def disconnect(self, reason_code: int | None = None, why: str = "") -> None:
        """End the connection: nothing more is taken or written; a client of MQTT 5 is told why by DISCONNECT."""
        Output.disconnect(self, reason_code, why)
        self.more = False
        self._data, self._packets = b"", []

    def lose(self) -> None:
        """Note that the network connection is gone."""
        self.disconnect()
        self.state = State.CLOSED
        self._last_words = b""

    # Time ------------------------------------------------------------------------------------------------------------

    def hear(self, now: float) -> None:
        """Count `now` as a sign of life: the client has read, or the bridge did not listen until now.

        Until it is let in nothing but what it sends counts.
        """
        if self.state is _CONNECTED:
            self._heard = now

    def deadline(self) -> float | None:
        """Return when the silence of the client ends the connection; None: it may be silent."""
        if self.state is _CONNECTED and self.keep_alive:
            return self._heard + self.keep_alive * KEEP_ALIVE_GRACE
        if self.state in (State.WAITING_FOR_CONNECT, State.CHALLENGED):
            return self._heard + self.connect_timeout
        return None

    def timeout(self, now: float) -> str:
        """Return why the connection ends by now: the client has been silent for too long; "" where it does not."""
        deadline = self.deadline()
        if deadline is None or now <= deadline:
            return ""
        if self.state is State.WAITING_FOR_CONNECT:
            return f"no CONNECT within {self.connect_timeout:g} s"
        if self.state is State.CHALLENGED:
            return f"it is not authenticated within {self.connect_timeout:g} s"
        return f"nothing came for {now - self._heard:.1f} s, its keep-alive is {self.keep_alive:g} s"


_TYPE_OF: Final[dict[type[Packet], PacketType]] = {
    kind: PacketType[kind.__name__.upper()]
    for kind in (Connect, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Pingreq, Disconnect, Auth)
}
