"""One MQTT connection, server side, without I/O (MQTT 3.1, 3.1.1 and 5).

    WAITING_FOR_CONNECT --CONNECT--> AUTHENTICATING --accept()--> CONNECTED --disconnect()--> DISCONNECTING --> CLOSED
                                       |      ^                                                    ^
                             challenge()|     |AUTH                                                |
                                       v      |                                                    |
                                      CHALLENGED --------------------------------refuse()----------+

`TRANSITIONS` contains the next state for each packet in each state, or the rule that the packet breaks there.

The owner of a connection calls `receive_data` with received bytes, acts on the returned events, answers with commands, and
sends the bytes from `data_to_send`. A turn is bounded in bytes, in packets, and in the deliveries that its publications
cause (`portion`). If `more` is True, `events` returns the events of another turn. `deadline` is the time at which the client
has been silent for too long.

The connection does not handle sessions. `bridge.mqtt.flow` tracks the awaited acknowledgements.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from enum import IntEnum
from typing import Final

import msgspec

from bridge.mqtt.packets import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    MAX_PACKET_SIZE,
    AcknowledgementProperties,
    Auth,
    AuthProperties,
    ByteOrder,
    Connack,
    ConnackCode,
    ConnackProperties,
    Connect,
    Disconnect,
    Disconnected,
    DisconnectProperties,
    Event,
    MessagePacket,
    Messages,
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
from bridge.mqtt.reason_codes import FROM_SERVER, MalformedPacket, ReasonCode, cite_mqtt_5
from bridge.mqtt.writer import encode, encode_acknowledgement, encode_publish, encode_publish_5


class ConnectionState(IntEnum):
    """The state of a connection (MQTT 3.1.1 sections 3.1, 3.2 and 3.14)."""

    #: no complete packet has arrived
    WAITING_FOR_CONNECT = 0
    #: CONNECT has arrived, but CONNACK has not been sent
    AUTHENTICATING = 1
    #: AUTH has been sent before CONNACK, and the client's AUTH is awaited (MQTT 5 section 4.12)
    CHALLENGED = 2
    #: CONNACK 0 has been sent
    CONNECTED = 3
    #: input is ignored, and the remaining output is sent
    DISCONNECTING = 4
    #: the network connection is gone
    CLOSED = 5


_FIRST: Final = "MQTT-3.1.0-1: the first packet of a client is CONNECT"
_SECOND: Final = "MQTT-3.1.0-2: a client sends CONNECT once"
_DIRECTION: Final = "MQTT 3.1.1 section 2.2.1, table 2.1: such a packet flows from server to client"
_RESERVED: Final = (
    "MQTT 3.1.1 section 2.2.1, table 2.1: packet type 15 is reserved (AUTH needs an Authentication Method in CONNECT)"
)
_ONLY_AUTH: Final = (
    "MQTT-3.1.2-30: before CONNACK a client with an Authentication Method sends only AUTH and DISCONNECT"
)
_TO_CLIENT: Final = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)

Step = ConnectionState | str | None
"""The effect of a packet: the next state, the rule that it breaks, or None if it waits until CONNECT is answered."""


def _steps(default: Step, *, to_client: Step = _DIRECTION, **others: Step) -> dict[PacketType, Step]:
    return (
        dict.fromkeys(PacketType, default)
        | dict.fromkeys(_TO_CLIENT, to_client)
        | {PacketType[name]: step for name, step in others.items()}
    )


#: The server's state machine. Clients may send more packets before they receive CONNACK (MQTT 3.1.1 section 3.1.4).
#: DISCONNECTING and CLOSED have no row, because nothing is read after DISCONNECT or an error (MQTT-3.14.4-2, section 4.8).
TRANSITIONS: Final[dict[ConnectionState, dict[PacketType, Step]]] = {
    ConnectionState.WAITING_FOR_CONNECT: _steps(_FIRST, CONNECT=ConnectionState.AUTHENTICATING, AUTH=_RESERVED),
    ConnectionState.AUTHENTICATING: _steps(None, to_client=None),
    ConnectionState.CHALLENGED: _steps(
        _ONLY_AUTH,
        to_client=_ONLY_AUTH,
        CONNECT=_SECOND,
        AUTH=ConnectionState.AUTHENTICATING,
        DISCONNECT=ConnectionState.DISCONNECTING,
    ),
    ConnectionState.CONNECTED: _steps(
        ConnectionState.CONNECTED, CONNECT=_SECOND, DISCONNECT=ConnectionState.DISCONNECTING
    ),
}


class EnhancedAuthentication(IntEnum):
    """The state of an enhanced authentication (MQTT 5 section 4.12)."""

    #: no authentication is in progress
    NONE = 0
    SERVER = 1
    #: AUTH has been sent, and the client's AUTH is awaited
    CLIENT = 2


_TYPE_OF: Final[dict[type[Packet], PacketType]] = {
    kind: PacketType[kind.__name__.upper()]
    for kind in (Connect, Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Unsubscribe, Pingreq, Disconnect, Auth)
}
_MESSAGES: Final = frozenset((Publish, Puback, Pubrec, Pubrel, Pubcomp, Pingreq))


#: The encoded empty topic name in PUBLISH.
_NO_TOPIC: Final = b"\0\0"


class IncomingTopicAliases:
    """Topic Aliases that a client has defined, from 1 to `maximum`."""

    __slots__ = ("_maximum", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._topics: dict[int, str] = {}

    def resolve(self, packets: list[Packet]) -> None:
        """Replace Topic Aliases with topic names.

        Raises MalformedPacket for an alias that the client may not use. That packet and those after it are removed.
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
            rule = f"MQTT 5 section 3.3.2.3.4: Topic Alias {alias} is not defined"
            raise MalformedPacket("PUBLISH", 0, rule, ReasonCode.PROTOCOL_ERROR)
        return msgspec.structs.replace(packet, topic=topic)


class OutgoingTopicAliases:
    """Topic Aliases for publications to a client. The `maximum` most recently sent topic names have an alias."""

    __slots__ = ("_aliases", "_maximum")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        #: encoded topic -> alias, in the order of use
        self._aliases: OrderedDict[bytes, int] = OrderedDict()

    def of(self, topic: bytes) -> tuple[bytes, int]:
        """Return the topic field of a PUBLISH, which is empty if the client knows the alias, and the alias."""
        aliases = self._aliases
        alias = aliases.get(topic)
        if alias is not None:
            aliases.move_to_end(topic)
            return _NO_TOPIC, alias
        alias = len(aliases) + 1 if len(aliases) < self._maximum else aliases.popitem(last=False)[1]
        aliases[topic] = alias
        return topic, alias


_PINGRESP: Final = encode(Pingresp())
#: The encoding of empty properties.
_NO_PROPERTIES: Final = b"\0"
_CONNECTED: Final = ConnectionState.CONNECTED
_DISCONNECTING: Final = ConnectionState.DISCONNECTING
#: Reason codes that are sent with a Reason String, because the client caused the error. Other reasons may contain information
#: about other clients.
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
#: An acknowledgement or PINGRESP: its type, and its packet identifier (0 for PINGRESP).
Answer = tuple[PacketType, int]
#: A reason code of MQTT 5, and a Reason String or "".
Reason = tuple[ReasonCode, str]
#: Return codes of CONNACK before MQTT 5, as reason codes.
REASON_CODES: Final = {
    ConnackCode.UNACCEPTABLE_PROTOCOL_VERSION: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ConnackCode.IDENTIFIER_REJECTED: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ConnackCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_UNAVAILABLE,
    ConnackCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ConnackCode.NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
}


#: The maximum number of bytes of one client that are decoded in one turn.
BYTES_AT_A_TURN: Final = 65_536
#: The maximum number of packets of one client in one turn. A topic filter or another control packet counts as FILTER_PACKETS.
PACKETS_AT_A_TURN, FILTER_PACKETS = 1_000, 20
#: Deliveries are not counted if neither the recipients nor the possible deliveries of a turn exceed these numbers.
FEW_RECIPIENTS, FEW_DELIVERIES = 200, 20_000
#: The maximum number of Topic Aliases in each direction (MQTT 5 section 3.2.2.3.8).
TOPIC_ALIAS_MAXIMUM: Final = 64
#: Number of bytes of an incomplete packet that count as a sign of life. Single bytes do not count.
PARTIAL_BYTES: Final = 1_000
#: A client may be silent for one and a half times its keep-alive (MQTT-3.1.2-24).
KEEP_ALIVE_GRACE: Final = 1.5


_AUTHENTICATING: Final = ConnectionState.AUTHENTICATING


class ServerProtocol:
    """One connection of a client, from its first byte to its last."""

    __slots__ = (
        "_data",
        "_decoder",
        "_exchange",
        "_heard",
        "_incoming_aliases",
        "_last_words",
        "_now",
        "_out",
        "_outgoing_aliases",
        "_packets",
        "_partial",
        "authentication_method",
        "bridge",
        "byte_order",
        "connect_timeout",
        "ended",
        "keep_alive",
        "level",
        "max_packet_size",
        "more",
        "portion",
        "problem_information",
        "recipients",
        "state",
    )

    def __init__(
        self,
        now: float,
        *,
        connect_timeout: float = 10.0,
        max_packet_size: int = MAX_PACKET_SIZE,
        max_connect_size: int = MAX_PACKET_SIZE,
        byte_order: ByteOrder = "big",
    ) -> None:
        """Begin a connection that was made at `now`, in seconds of the owner's clock."""
        self.state = ConnectionState.WAITING_FOR_CONNECT
        #: no further input from the client is read
        self.ended = False
        self.connect_timeout = connect_timeout
        self.byte_order: ByteOrder = byte_order

        # Values from CONNECT and CONNACK
        #: protocol level, or 0 before CONNECT
        self.level = 0
        #: the client is another broker's bridge
        self.bridge = False
        #: seconds, or 0 for none
        self.keep_alive = 0
        #: longest packet in bytes that the client accepts, or 0 for any (MQTT 5 section 3.1.2.11.4)
        self.max_packet_size = 0
        #: the client accepts Reason Strings (MQTT 5 section 3.1.2.11.7)
        self.problem_information = True
        #: Authentication Method, or None without enhanced authentication (MQTT 5 section 4.12)
        self.authentication_method: str | None = None
        self._exchange = EnhancedAuthentication.NONE

        # Input
        #: another turn of this client is due
        self.more = False
        #: all possible recipients of a publication
        self.recipients: Sized = ()
        #: returns how many of these packets, at least one, fit into one turn. Called if there are many packets or recipients.
        self.portion: Callable[[Sequence[MessagePacket]], int] = len
        self._decoder = Decoder(
            max_packet_size=max_packet_size,
            max_first_size=max_connect_size,
            byte_order=byte_order,
            control_packets=PACKETS_AT_A_TURN // FILTER_PACKETS,
        )
        self._incoming_aliases: IncomingTopicAliases | None = None
        #: undecoded bytes, and packets that belong to later turns
        self._data = b""
        self._packets: list[Packet] = []
        self._now = self._heard = now
        #: bytes of an incomplete packet since the last packet, or since they last counted as a sign of life
        self._partial = 0

        # Output
        self._outgoing_aliases: OutgoingTopicAliases | None = None
        self._out: list[bytes] = []
        #: unsent output from before `disconnect`
        self._last_words = b""

    @property
    def too_large(self) -> bool:
        """Whether the client sends a packet that exceeds the maximum size. The rest of the packet is not read."""
        error = self._decoder.error
        return error is not None and error.reason_code == ReasonCode.PACKET_TOO_LARGE

    # Bytes in, events out --------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Process bytes that arrived at `now`. Return the events of this turn, like `events`.

        While earlier turns are due, no events are returned.
        """
        self._now = now
        if self.ended:
            return []
        if self._data or self._packets or self.state is not _CONNECTED or len(data) > BYTES_AT_A_TURN:
            self._data = self._data + data if self._data else data
            return [] if self.more else self.events()
        packets = self._decode(data)
        whole = 0 < len(packets) <= PACKETS_AT_A_TURN and not self._data and self._decoder.error is None
        if whole and _MESSAGES.issuperset(map(type, packets)):
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
        """The number of received bytes that are not decoded yet."""
        return len(self._data)

    def events(self) -> list[Event]:
        """Return the events of the next turn, in order. `Disconnected` is the last event of a connection.

        The owner must act on the events. The connection itself does not answer them.
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
        """Decode bytes. Bytes after a turn's worth of control packets belong to later turns."""
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
        """Return the events for packets that were decoded from `size` bytes."""
        events: list[Event] = []
        if self.state is _CONNECTED:
            # Packets count for the keep-alive (MQTT-3.1.2-24), and so do the parts of a long packet.
            self._partial += size
            if packets or self._partial >= PARTIAL_BYTES:
                self._heard = self._now
                self._partial = 0
            self._take(packets, events)
        elif packets:
            self._packets = packets[1:]
            self._take_control(packets[0], events)
        if (
            self._decoder.error is not None
            and not self._packets
            and not self.ended
            and self.state is not _AUTHENTICATING
        ):
            self._end(f"malformed packet: {self._decoder.error}", events, self._decoder.error.reason_code)
        self.more = bool(self._data or self._packets) and self.state is not _AUTHENTICATING
        return events

    def _take_connect(self, packet: Connect) -> None:
        self.level, self.bridge = packet.protocol_level, packet.bridge
        self.keep_alive = packet.keep_alive
        if self.level != LEVEL_MQTT_5:
            return
        self._incoming_aliases = IncomingTopicAliases(TOPIC_ALIAS_MAXIMUM)
        properties = packet.properties
        if properties is not None:
            self.authentication_method = properties.authentication_method
            if self.authentication_method is not None:
                self._exchange = EnhancedAuthentication.SERVER
            self.max_packet_size = properties.maximum_packet_size or 0
            self.problem_information = properties.request_problem_information != 0
            if properties.topic_alias_maximum:
                self._outgoing_aliases = OutgoingTopicAliases(min(properties.topic_alias_maximum, TOPIC_ALIAS_MAXIMUM))

    def _take(self, packets: list[Packet], events: list[Event]) -> None:
        """Append the events for packets of a connected client. Packets beyond its turn wait for the next turn."""
        count = len(packets)
        index, remaining = 0, PACKETS_AT_A_TURN
        portion = -1
        while index < count:
            begin, stop = index, min(count, index + remaining)
            while index < stop and type(packets[index]) in _MESSAGES:
                index += 1
            if index > begin:
                if portion >= 0:
                    # A portion applies to a whole turn, so messages after another control packet wait for the next turn.
                    self._packets = packets[begin:]
                    return
                messages: list[MessagePacket] = packets[begin:index]  # type: ignore[assignment]
                portion = self.portion(messages)
                events.append(Messages(messages[:portion]))
                if begin + portion < index:
                    self._packets = packets[begin + portion :]
                    return
                remaining -= index - begin
            if index == count:
                return
            if remaining <= 0:
                self._packets = packets[index:]
                return
            remaining -= self._take_control(packets[index], events)
            if self.ended:
                return
            index += 1

    def _take_control(self, packet: Packet, events: list[Event]) -> int:
        """Process one packet unless it is a message packet. Return its share of the turn, in packets."""
        step = TRANSITIONS[self.state][_TYPE_OF[type(packet)]]
        if isinstance(packet, Auth):
            step = self._auth_violation(packet) or step
        if isinstance(step, str):
            self._end(f"received {type(packet).__name__.upper()}: {step}", events)
            return 1
        assert step is not None
        if isinstance(packet, Disconnect):
            self._end("", events, ReasonCode.SUCCESS, packet)
            return 1
        self.state = step
        share = FILTER_PACKETS
        if isinstance(packet, Subscribe | Unsubscribe):
            share = FILTER_PACKETS * len(packet.topics)
            events.append(packet)
        elif isinstance(packet, Auth):
            self._exchange = EnhancedAuthentication.SERVER
            events.append(packet)
        elif isinstance(packet, Connect):
            self._take_connect(packet)
            events.append(packet)
        return share

    def _auth_violation(self, packet: Auth) -> str | None:
        """Return the rule that an AUTH breaks in the current exchange, or None."""
        properties = packet.properties
        again = packet.reason_code == ReasonCode.RE_AUTHENTICATE
        if self.authentication_method is None:
            return _RESERVED
        if properties is None or properties.authentication_method != self.authentication_method:
            return "MQTT-4.12.0-5: an AUTH has another Authentication Method than CONNECT"
        if again and (self._exchange != EnhancedAuthentication.NONE or self.state is not _CONNECTED):
            return "MQTT 5 section 4.12.1: re-authentication is not allowed during an authentication"
        if not again and self._exchange != EnhancedAuthentication.CLIENT:
            return "MQTT 5 section 4.12: an AUTH with Continue Authentication answers an AUTH of the server"
        return None

    def _end(
        self,
        why: str,
        events: list[Event],
        reason_code: int = ReasonCode.PROTOCOL_ERROR,
        packet: Disconnect | None = None,
    ) -> None:
        self.ended = True
        self._data, self._packets = b"", []
        # The level of a malformed CONNECT may be known.
        self.level = self.level or self._decoder.protocol_level or 0
        events.append(Disconnected(why, reason_code, packet))

    # Commands in, bytes out ------------------------------------------------------------------------------------------

    def accept(self, now: float, *, session_present: bool, properties: ConnackProperties | None = None) -> None:
        """Answer CONNECT with CONNACK 0. Packets that followed CONNECT are processed from now on.

        A Server Keep Alive among the properties replaces the client's (MQTT-3.2.2-21).
        """
        self._heard = now
        self._exchange = EnhancedAuthentication.NONE
        self.state = _CONNECTED
        if properties is not None and properties.server_keep_alive is not None:
            self.keep_alive = properties.server_keep_alive
        connack = Connack(ConnackCode.ACCEPTED, session_present and self.level >= LEVEL_MQTT_3_1_1, properties)
        self._out.append(encode(connack, self.byte_order, self.level))

    def admits(self, properties: ConnackProperties | None) -> bool:
        """Return whether the client's Maximum Packet Size allows a CONNACK 0 with these properties (MQTT-3.1.2-24)."""
        if not self.max_packet_size:
            return True
        connack = Connack(ConnackCode.ACCEPTED, properties=properties)
        return len(encode(connack, "big", self.level)) <= self.max_packet_size

    def refuse(
        self,
        code: ConnackCode,
        why: str = "",
        reason_code: ReasonCode | None = None,
        server_reference: str | None = None,
    ) -> None:
        """Reject CONNECT with a CONNACK, and end the connection (MQTT-3.2.2-5).

        A client of MQTT 5 gets `reason_code` if it is more specific than `code`, `why` as the Reason String, and the Server
        Reference.
        """
        if self.level == LEVEL_MQTT_5:
            properties = None
            if why or server_reference:
                properties = ConnackProperties(reason_string=why or None, server_reference=server_reference)
            self._write(Connack(reason_code or REASON_CODES[code], properties=properties))
        else:
            self._out.append(encode(Connack(code), self.byte_order))
        self.disconnect()

    def challenge(self, data: bytes | None) -> bool:
        """Send an AUTH that the client must answer (MQTT-4.12.0-2). Return False like `suback`."""
        if not self._auth(ReasonCode.CONTINUE_AUTHENTICATION, data):
            return False
        self._exchange = EnhancedAuthentication.CLIENT
        if self.state is _AUTHENTICATING:
            self.state = ConnectionState.CHALLENGED
        return True

    def authenticated(self, data: bytes | None) -> bool:
        """Send the AUTH that completes a re-authentication (MQTT 5 section 4.12.1). Return False like `suback`."""
        self._exchange = EnhancedAuthentication.NONE
        return self._auth(ReasonCode.SUCCESS, data)

    def _auth(self, reason_code: ReasonCode, data: bytes | None) -> bool:
        encoded = encode(Auth(reason_code, AuthProperties(self.authentication_method, data)), "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(encoded) > self.max_packet_size:
            return False  # AUTH is useless without its properties
        self._out.append(encoded)
        return True

    def _write(self, packet: Connack | Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback | Disconnect) -> bool:
        """Write a packet of MQTT 5, without its properties if it would exceed the Maximum Packet Size (MQTT-3.1.2-24).

        Return False, and write nothing, if the packet is too long even then.
        """
        encoded = encode(packet, "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(encoded) > self.max_packet_size and packet.properties is not None:
            encoded = encode(msgspec.structs.replace(packet, properties=None), "big", LEVEL_MQTT_5)
        if self.max_packet_size and len(encoded) > self.max_packet_size:
            return False
        self._out.append(encoded)
        return True

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        properties: PublishProperties | None = None,
    ) -> None:
        """Send PUBLISH. `topic` is a result of `writer.encode_topic`. Properties are for MQTT 5 only."""
        if self.level != LEVEL_MQTT_5:
            self._out.append(encode_publish(topic, payload, qos, retain, dup, packet_id, self.byte_order))
            return
        if self._outgoing_aliases is not None:
            topic, alias = self._outgoing_aliases.of(topic)
            properties = msgspec.structs.replace(properties or PublishProperties(), topic_alias=alias)
        encoded = _NO_PROPERTIES if properties is None else encode_properties(PacketType.PUBLISH, properties)
        self._out.append(encode_publish_5(topic, encoded, payload, qos, retain, dup, packet_id))

    def takes(self, topic: bytes, payload: bytes, properties: PublishProperties | None) -> bool:
        """Return whether the client's Maximum Packet Size allows a PUBLISH (MQTT-3.1.2-24)."""
        if not self.max_packet_size:
            return True
        encoded = encode_properties(PacketType.PUBLISH, properties)
        # Including a packet identifier and a Topic Alias.
        alias = 0 if self._outgoing_aliases is None else 3
        return len(encode_publish_5(topic, encoded, payload, 1, False, False, 1)) + alias <= self.max_packet_size

    def release(self, packet_id: int) -> None:
        """Send PUBREL."""
        self._out.append(encode_acknowledgement(PacketType.PUBREL, packet_id, self.byte_order))

    def answer(self, answers: Iterable[Answer], reasons: Mapping[Answer, Reason] | None = None) -> None:
        """Send PUBACK, PUBREC, PUBREL, PUBCOMP and PINGRESP, in this order.

        `reasons` contains the reason codes of MQTT 5 that are not Success.
        """
        if reasons:
            for answer in answers:
                if answer in reasons:
                    self._answer(answer, *reasons[answer])
                else:
                    self.answer((answer,))
            return
        byte_order, out = self.byte_order, self._out
        for kind, packet_id in answers:
            out.append(encode_acknowledgement(kind, packet_id, byte_order) if packet_id else _PINGRESP)

    def _answer(self, answer: Answer, reason_code: ReasonCode, why: str) -> None:
        """Write an acknowledgement of MQTT 5 with a reason code and a Reason String."""
        kind, packet_id = answer
        properties = self._reason_string(why)
        self._write(_ACKNOWLEDGEMENTS[kind](packet_id, reason_code=reason_code, properties=properties))

    def _reason_string(self, why: str) -> AcknowledgementProperties | None:
        """Return the properties for a Reason String, or None if empty or unwanted (MQTT-3.1.2-29)."""
        return AcknowledgementProperties(reason_string=why) if why and self.problem_information else None

    def suback(self, packet_id: int, codes: Sequence[int], why: str = "") -> bool:
        """Answer SUBSCRIBE with the granted QoS or a reason code for each filter. `why` is the Reason String.

        Return False if the answer would exceed the client's Maximum Packet Size.
        """
        if self.level == LEVEL_MQTT_5:
            return self._write(Suback(packet_id, tuple(codes), self._reason_string(why)))
        self._out.append(encode(Suback(packet_id, tuple(codes)), self.byte_order))
        return True

    def unsuback(self, packet_id: int, reason_codes: Sequence[int] = ()) -> bool:
        """Answer UNSUBSCRIBE, in MQTT 5 with a reason code for each filter. Return False like `suback`."""
        if self.level == LEVEL_MQTT_5:
            return self._write(Unsuback(packet_id, tuple(reason_codes)))
        self._out.append(encode(Unsuback(packet_id), self.byte_order))
        return True

    def disconnect(self, reason_code: int | None = None, why: str = "") -> None:
        """End the connection. Nothing is read or written afterwards.

        With a reason code, a client of MQTT 5 gets a DISCONNECT, or before CONNACK a CONNACK (MQTT-3.14.0-1, section 4.13.1).
        """
        if self.state < _DISCONNECTING:
            if reason_code is not None and self.level == LEVEL_MQTT_5:
                fault = cite_mqtt_5(why) if reason_code in _FAULTS else ""
                if self.state is _CONNECTED:
                    self._write(Disconnect(reason_code, DisconnectProperties(reason_string=fault) if fault else None))
                elif reason_code in _REFUSALS:
                    self._write(
                        Connack(reason_code, properties=ConnackProperties(reason_string=fault) if fault else None)
                    )
            self._last_words = b"".join(self._out)
            self.state = _DISCONNECTING
        self.ended = True
        self.more = False
        self._data, self._packets = b"", []

    def lose(self) -> None:
        """Handle the loss of the network connection."""
        self.disconnect()
        self.state = ConnectionState.CLOSED
        self._last_words = b""

    def data_to_send(self) -> bytes:
        """Return the bytes that commands have written since the last call."""
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

    # Time ------------------------------------------------------------------------------------------------------------

    def hear(self, now: float) -> None:
        """Count `now` as a sign of life, because the client has read output, or because the bridge had paused reading.

        Before CONNACK, only packets count.
        """
        if self.state is _CONNECTED:
            self._heard = now

    def deadline(self) -> float | None:
        """Return the time at which the client has been silent for too long, or None without a limit."""
        if self.state is _CONNECTED and self.keep_alive:
            return self._heard + self.keep_alive * KEEP_ALIVE_GRACE
        if self.state in (ConnectionState.WAITING_FOR_CONNECT, ConnectionState.CHALLENGED):
            return self._heard + self.connect_timeout
        return None

    def timeout(self, now: float) -> str:
        """Return why the deadline has passed, or "" if it has not."""
        deadline = self.deadline()
        if deadline is None or now <= deadline:
            return ""
        if self.state is ConnectionState.WAITING_FOR_CONNECT:
            return f"no CONNECT within {self.connect_timeout:g} s"
        if self.state is ConnectionState.CHALLENGED:
            return f"not authenticated within {self.connect_timeout:g} s"
        return f"no packet for {now - self._heard:.1f} s, keep-alive is {self.keep_alive:g} s"
