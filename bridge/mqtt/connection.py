"""The server's half of MQTT 3.1, 3.1.1 and 5 on one connection. Bytes in, events out; commands in, bytes out; no I/O.

A connection is in one of five states, and `LEGAL` says of each packet what it is worth in each state:

    WAITING_FOR_CONNECT --CONNECT--> AUTHENTICATING --accept()--> CONNECTED --disconnect()--> DISCONNECTING --> CLOSED
                                                    --refuse()-------------------------------------^

Whoever owns the connection hands over what has come with `receive_data`, acts on the events that it returns, answers by
commands, and sends what `data_to_send` returns. A turn is bounded in bytes, in packets, and in the deliveries that its
publications cause (`portion`). `more` is True if there is another turn, which `events` returns. `deadline` is when silence
ends the connection.

The protocol knows nothing of sessions: `bridge.telemetry.in_flight` knows which acknowledgement is awaited.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from enum import Enum, IntEnum
from typing import Final

import msgspec

from bridge.mqtt.events import Disconnected, Event, MessagePacket, Messages
from bridge.mqtt.packets import (
    LEVEL_MQTT_5,
    MAX_REMAINING_LENGTH,
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    ByteOrder,
    Connack,
    ConnackCode,
    ConnackProperties,
    Connect,
    Disconnect,
    DisconnectProperties,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    PublishProperties,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from bridge.mqtt.properties import encode_properties
from bridge.mqtt.reader import Decoder
from bridge.mqtt.reason_codes import FROM_SERVER, MalformedPacket, ReasonCode
from bridge.mqtt.writer import encode, encode_acknowledgement, encode_publish, encode_publish_5


class State(IntEnum):
    """How far a connection has come (MQTT 3.1.1 sections 3.1, 3.2 and 3.14)."""

    #: nothing has come, or no whole packet
    WAITING_FOR_CONNECT = 0
    #: CONNECT came, CONNACK is not sent yet
    AUTHENTICATING = 1
    #: AUTH is sent, and the client's is awaited (MQTT 5 section 4.12)
    CHALLENGED = 2
    #: CONNACK 0 is sent
    CONNECTED = 3
    #: nothing more is read; what is written is still sent
    DISCONNECTING = 4
    #: the network connection is gone
    CLOSED = 5


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
_RESERVED = "MQTT 3.1.1 section 2.2.1, table 2.1: packet type 15 is reserved (AUTH needs an Authentication Method in CONNECT)"
_ONLY = "MQTT-3.1.2-30: before CONNACK a client with an Authentication Method sends AUTH and DISCONNECT alone"
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
    State.CHALLENGED: _row(_SECOND, _ONLY) | dict.fromkeys((PacketType.AUTH, PacketType.DISCONNECT), _ACCEPTED),
    State.CONNECTED: _row(_SECOND, _ACCEPTED, open=True),
    State.DISCONNECTING: _row(_IGNORED, _IGNORED),
    State.CLOSED: _row(_IGNORED, _IGNORED),
}


#: A topic name of no characters, as PUBLISH carries it.
_NO_TOPIC: Final = b"\0\0"


class IncomingTopicAliases:
    """The Topic Aliases that a client has given to topic names, from 1 to `maximum`."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, packets: list[Packet]) -> None:
        """Put topic names in place of Topic Aliases.

        Raises MalformedPacket for an alias that the client may not use; the packet, and those behind it, are removed.
        """
        for index, packet in enumerate(packets):
            if type(packet) is Publish and packet.properties is not None and packet.properties.topic_alias is not None:
                try:
                    packets[index] = self._resolved(packet, packet.properties.topic_alias)
                except MalformedPacket:
                    del packets[index:]
                    raise

    def _resolved(self, packet: Publish, alias: int) -> Publish:
        if alias > self._maximum:
            rule = f"MQTT-3.3.2-9: Topic Alias {alias} is above {self._maximum}, the server's Topic Alias Maximum"
            raise MalformedPacket("PUBLISH", 0, rule, ReasonCode.TOPIC_ALIAS_INVALID)
        if packet.topic:
            self._topics[alias] = packet.topic
            return packet
        topic = self._topics.get(alias)
        if topic is None:
            rule = f"MQTT 5 section 3.3.2.3.4: Topic Alias {alias} stands for no topic name"
            raise MalformedPacket("PUBLISH", 0, rule, ReasonCode.PROTOCOL_ERROR)
        return msgspec.structs.replace(packet, topic=topic)


class OutgoingTopicAliases:
    """The Topic Aliases of what a client is sent: the topic names that were sent last have them, at most `maximum`."""

    __slots__ = ("_aliases", "_maximum")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        #: topic as PUBLISH carries it -> its alias, the one sent last at the end
        self._aliases: OrderedDict[bytes, int] = OrderedDict()

    def of(self, topic: bytes) -> tuple[bytes, int]:
        """Return what PUBLISH is to carry for a topic: the topic, empty where the client knows the alias; and the alias."""
        aliases = self._aliases
        alias = aliases.get(topic)
        if alias is not None:
            aliases.move_to_end(topic)
            return _NO_TOPIC, alias
        alias = len(aliases) + 1 if len(aliases) < self._maximum else aliases.popitem(last=False)[1]
        aliases[topic] = alias
        return topic, alias


_PINGRESP: Final = encode(Pingresp())
#: Properties of MQTT 5 where there are none.
_NO_PROPERTIES: Final = b"\0"
_CONNECTED: Final = State.CONNECTED
_DISCONNECTING: Final = State.DISCONNECTING
#: Why a connection ends that its client may be told in words: the fault is its own. Other reasons may speak of others.
_FAULTS: Final = frozenset(
    (
        ReasonCode.MALFORMED_PACKET,
        ReasonCode.PROTOCOL_ERROR,
        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
        ReasonCode.TOPIC_ALIAS_INVALID,
        ReasonCode.PACKET_TOO_LARGE,
        ReasonCode.QUOTA_EXCEEDED,
    )
)
_ACKNOWLEDGEMENTS: Final[dict[PacketType, type[Puback | Pubrec | Pubrel | Pubcomp]]] = {
    PacketType.PUBACK: Puback,
    PacketType.PUBREC: Pubrec,
    PacketType.PUBREL: Pubrel,
    PacketType.PUBCOMP: Pubcomp,
}
_REFUSALS: Final = FROM_SERVER[PacketType.CONNACK] - {ReasonCode.SUCCESS}
#: An answer to a packet about messages: its type, and its message id (0 for PINGRESP).
Answer = tuple[PacketType, int]
#: A reason code of MQTT 5, and in words why; "" for no words.
Reason = tuple[ReasonCode, str]
#: Return codes of CONNACK before MQTT 5, as reason codes.
REASON_CODES: Final = {
    ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ConnackCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ConnackCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ConnackCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ConnackCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}


class Output:
    """What the server says on one connection; `bridge.mqtt.connection.ServerProtocol` is the whole of it."""

    __slots__ = (
        "_challenged",
        "_last_words",
        "_out",
        "_outgoing_aliases",
        "authentication_method",
        "byte_order",
        "ended",
        "keep_alive",
        "level",
        "max_packet_size",
        "problem_information",
        "state",
    )

    def __init__(self, byte_order: ByteOrder) -> None:
        self.state = State.WAITING_FOR_CONNECT
        self.byte_order: ByteOrder = byte_order
        #: seconds as CONNECT gives them, or CONNACK; 0 for none
        self.keep_alive = 0
        #: protocol level of CONNECT; 0 before it
        self.level = 0
        #: nothing more is taken of what the client sends
        self.ended = False
        #: longest packet in bytes that the client takes; 0 for any (MQTT 5 section 3.1.2.11.4)
        self.max_packet_size = 0
        #: the client wants to be told why (MQTT 5 section 3.1.2.11.7)
        self.problem_information = True
        #: Authentication Method of CONNECT; None: there is no enhanced authentication (MQTT 5 section 4.12)
        self.authentication_method: str | None = None
        #: an AUTH of the client is awaited
        self._challenged = False
        self._outgoing_aliases: OutgoingTopicAliases | None = None
        self._out: list[bytes] = []
        #: what was written before `disconnect`, while it is not taken yet
        self._last_words = b""

    def accepted(self, session_present: bool, properties: ConnackProperties | None) -> None:
        """Write CONNACK 0.

        A Server Keep Alive among the properties takes the place of the client's (MQTT-3.2.2-21).
        """
        self.state = _CONNECTED
        if properties is not None and properties.server_keep_alive is not None:
            self.keep_alive = properties.server_keep_alive
        connack = Connack(ConnackCode.ACCEPTED, session_present and self.level >= 4, properties)
        self._out.append(encode(connack, self.byte_order, self.level))

    def admits(self, properties: ConnackProperties | None) -> bool:
        """Return whether a CONNACK 0 is no longer than the client's Maximum Packet Size (MQTT-3.1.2-24)."""
        if not self.max_packet_size:
            return True
        connack = Connack(ConnackCode.ACCEPTED, properties=properties)
        return len(encode(connack, "big", self.level)) <= self.max_packet_size

    def refuse(self, code: ConnackCode, why: str = "", reason_code: ReasonCode | None = None) -> None:
        """Answer CONNECT by a CONNACK that refuses the client, and end the connection (MQTT-3.2.2-5).

        `reason_code` is what MQTT 5 has in place of the return code where it says more; `why` is told there, too.
        """
        if self.level == LEVEL_MQTT_5:
            told = ConnackProperties(reason_string=why) if why else None
            self._write(Connack(reason_code or REASON_CODES[code], properties=told))
        else:
            self._out.append(encode(Connack(code), self.byte_order))
        self.disconnect()

    def challenge(self, data: bytes | None) -> None:
        """Have the client go on with its authentication (MQTT-4.12.0-2)."""
        self._challenged = True
        if self.state is State.AUTHENTICATING:
            self.state = State.CHALLENGED
        self._auth(ReasonCode.CONTINUE_AUTHENTICATION, data)

    def _auth(self, reason_code: ReasonCode, data: bytes | None) -> None:
        packet = Auth(reason_code, AuthProperties(self.authentication_method, data))
        self._out.append(encode(packet, "big", LEVEL_MQTT_5))

    def _write(self, packet: Connack | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Disconnect) -> bool:
        """Write a packet of MQTT 5; without its properties where the client would not take it with them (MQTT-3.1.2-24).

        Return False for one that it would not take even so, and that is not written.
        """
        data = encode(packet, "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(data) > self.max_packet_size and packet.properties is not None:
            data = encode(msgspec.structs.replace(packet, properties=None), "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(data) > self.max_packet_size:
            return False
        self._out.append(data)
        return True

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        message_id: int,
        properties: PublishProperties | None = None,
    ) -> None:
        """Send PUBLISH; `topic` is as `writer.encode_topic` returns it, the properties are for MQTT 5 only."""
        if self.level != LEVEL_MQTT_5:
            self._out.append(encode_publish(topic, payload, qos, retain, dup, message_id, self.byte_order))
            return
        if self._outgoing_aliases is not None:
            topic, alias = self._outgoing_aliases.of(topic)
            properties = msgspec.structs.replace(properties or PublishProperties(), topic_alias=alias)
        encoded = _NO_PROPERTIES if properties is None else encode_properties(PacketType.PUBLISH, properties)
        self._out.append(encode_publish_5(topic, encoded, payload, qos, retain, dup, message_id))

    def takes(self, topic: bytes, payload: bytes, properties: PublishProperties | None) -> bool:
        """Return whether a PUBLISH is no longer than the client's Maximum Packet Size (MQTT-3.1.2-24)."""
        if not self.max_packet_size:
            return True
        encoded = encode_properties(PacketType.PUBLISH, properties)
        # With a message id and a Topic Alias, which it may get.
        alias = 0 if self._outgoing_aliases is None else 3
        return len(encode_publish_5(topic, encoded, payload, 1, False, False, 1)) + alias <= self.max_packet_size

    def release(self, message_id: int) -> None:
        """Send PUBREL."""
        self._out.append(encode_acknowledgement(PacketType.PUBREL, message_id, self.byte_order))

    def answer(self, answers: Iterable[Answer], reasons: Mapping[Answer, Reason] | None = None) -> None:
        """Send PUBACK, PUBREC, PUBREL, PUBCOMP and PINGRESP, in the order given.

        `reasons` are for those of MQTT 5 that say more than Success.
        """
        if reasons:
            for answer in answers:
                if answer in reasons:
                    self._answer(answer, *reasons[answer])
                else:
                    self.answer((answer,))
            return
        byte_order, out = self.byte_order, self._out
        for kind, message_id in answers:
            out.append(encode_acknowledgement(kind, message_id, byte_order) if message_id else _PINGRESP)

    def _answer(self, answer: Answer, reason_code: ReasonCode, why: str) -> None:
        """Write an acknowledgement of MQTT 5 with a reason code, and why."""
        kind, message_id = answer
        told = self._told(why)
        self._write(_ACKNOWLEDGEMENTS[kind](message_id, reason_code=reason_code, properties=told))

    def _told(self, why: str) -> AcknowledgementProperties | None:
        """Return the Reason String of an acknowledgement, where there is one and the client wants it (MQTT-3.1.2-29)."""
        return AcknowledgementProperties(reason_string=why) if why and self.problem_information else None

    def suback(self, message_id: int, codes: Sequence[int], why: str = "") -> bool:
        """Answer SUBSCRIBE: the QoS granted for each filter, or 0x80; in MQTT 5 another reason code, and why.

        Return False where the client would not take so long an answer.
        """
        if self.level == LEVEL_MQTT_5:
            return self._write(Suback(message_id, tuple(codes), self._told(why)))
        self._out.append(encode(Suback(message_id, tuple(codes)), self.byte_order))
        return True

    def unsuback(self, message_id: int, reason_codes: Sequence[int] = ()) -> bool:
        """Answer UNSUBSCRIBE; in MQTT 5 with the reason codes, one for each filter. What is returned is as with `suback`."""
        if self.level == LEVEL_MQTT_5:
            return self._write(Unsuback(message_id, tuple(reason_codes)))
        self._out.append(encode(Unsuback(message_id), self.byte_order))
        return True

    def disconnect(self, reason_code: int | None = None, why: str = "") -> None:
        """End the connection: nothing more is written.

        A client of MQTT 5 is told why, where there is a reason code: by DISCONNECT, or before CONNACK by that
        (MQTT-3.14.0-1, section 4.13.1).
        """
        if self.state < _DISCONNECTING:
            if reason_code is not None and self.level == LEVEL_MQTT_5:
                fault = why if reason_code in _FAULTS else ""
                if self.state is _CONNECTED:
                    self._write(Disconnect(reason_code, DisconnectProperties(reason_string=fault) if fault else None))
                elif reason_code in _REFUSALS:
                    self._write(Connack(reason_code, properties=ConnackProperties(reason_string=fault) if fault else None))
            self._last_words = b"".join(self._out)
            self.state = _DISCONNECTING
        self.ended = True

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
