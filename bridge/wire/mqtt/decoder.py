"""MQTT packets out of a byte stream that arrives in pieces of any size (MQTT 3.1, 3.1.1 and 5, chapter 2).

Publications and their acknowledgements make up nearly all traffic. Well-formed ones are read within the loop of
``Decoder.feed`` itself (those of MQTT 5 with properties or a reason code close to it); everything else, and whatever
looks wrong there, goes the careful way through ``readers``, which either makes a packet of it or says which rule it
breaks.
"""

from __future__ import annotations

from typing import Final

from .body import Body
from .connection_readers import read_protocol_level
from .errors import MalformedPacket
from .packets import (
    LEVEL_MQTT_3_1_1,
    LEVEL_MQTT_5,
    ByteOrder,
    Packet,
    PacketType,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from .properties import decode_properties
from .readers import MESSAGES_ONLY, TO_CLIENT, TO_CLIENT_5, TO_SERVER, TO_SERVER_5, Reader
from .reason_codes import ReasonCode
from .remaining_length import MAX_REMAINING_LENGTH, decode_remaining_length
from .topics import TOPIC_CACHE

# By the whole first byte, flags as MQTT 3.1.1 wants them; MQTT 3.1's other flags take the careful way.
_ACKNOWLEDGEMENTS: Final[dict[int, type[Puback] | type[Pubrec] | type[Pubrel] | type[Pubcomp]]] = {
    0x40: Puback,
    0x50: Pubrec,
    0x62: Pubrel,
    0x70: Pubcomp,
}

# A member of an enumeration takes long to get.
_PUBLISH: Final = PacketType.PUBLISH
_CONNECT: Final = PacketType.CONNECT


class Decoder:
    """Turns one connection's incoming bytes into packets, keeping only an incomplete packet between calls.

    Attributes:
        error: what was wrong with the stream, None while nothing was. Nothing behind a malformed packet can be
            trusted, so the decoder returns no packet any more; close the connection.
        protocol_level: the level whose rules hold, 3 (MQTT 3.1), 4 (MQTT 3.1.1) or 5 (MQTT 5); None while a server
            waits for the CONNECT that tells it, when those of 4 are applied.
        rest: bytes that the last ``feed`` left alone, having met ``control_packets``: the caller's, to be fed again.
    """

    __slots__ = (
        "_control_packets",
        "_little",
        "_max_first_size",
        "_max_packet_size",
        "_messages_only",
        "_needed",
        "_no_properties",
        "_pending",
        "_readers",
        "_server",
        "error",
        "protocol_level",
        "rest",
    )

    def __init__(
        self,
        *,
        server: bool = True,
        protocol_level: int | None = None,
        max_packet_size: int = MAX_REMAINING_LENGTH,
        max_first_size: int = MAX_REMAINING_LENGTH,
        byte_order: ByteOrder = "big",
        messages_only: bool = False,
        control_packets: int | None = None,
    ) -> None:
        """Prepare for the first byte of a connection.

        Args:
            server: whether this end is the server, to which only clients' packets are sensible; else the client.
            protocol_level: the level of the connection, for a client; a server learns it from CONNECT.
            max_packet_size: largest acceptable Remaining Length in bytes (the fixed header not counted). A larger
                packet is an error as soon as its length is read; its content is never stored.
            max_first_size: the same for the first packet that a server reads, from a client that it does not know yet.
            byte_order: order of the bytes in message ids and keep-alive; "little" for the older dialect.
            messages_only: whether packets that are no publications nor acknowledgements of such are somebody else's:
                each is returned as an OtherPacket, whether this end may receive it or not.
            control_packets: how many packets that are no publications nor acknowledgements of such one ``feed`` reads:
                they take far longer than their few bytes tell. None: any number.
        """
        self._server = server
        self._messages_only = messages_only
        self._max_packet_size = max_packet_size
        self._max_first_size = min(max_first_size, max_packet_size) if server else max_packet_size
        self._little = byte_order == "little"
        self._pending = bytearray()
        self._needed = 0
        self._control_packets = control_packets if control_packets is not None else -1
        self.error: MalformedPacket | None = None
        self.rest = b""
        self._set_level(protocol_level)

    def _set_level(self, protocol_level: int | None) -> None:
        self.protocol_level = protocol_level
        self._readers: dict[PacketType, Reader] = MESSAGES_ONLY
        if not self._messages_only:
            if protocol_level == LEVEL_MQTT_5:
                self._readers = TO_SERVER_5 if self._server else TO_CLIENT_5
            else:
                self._readers = TO_SERVER if self._server else TO_CLIENT
        # How many bytes say that a PUBLISH has no properties: their length of 0, in MQTT 5.
        self._no_properties = 1 if protocol_level == LEVEL_MQTT_5 else 0

    @property
    def missing(self) -> int:
        """Return how many bytes the packet that has begun to come still lacks; 0 where that is not known."""
        return max(self._needed - len(self._pending), 0) if self._pending else 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[Packet]:
        """Take bytes from the connection and return the packets they complete, in order.

        Never raises on account of the bytes: see ``error``.
        """
        if self.error is not None:
            return []
        pending = self._pending
        if pending:
            # A large packet in small pieces is gathered here and looked at again only when all of it has come.
            pending += data
            if len(pending) < self._needed:
                return []
            buffer = bytes(pending)
            pending.clear()
        else:
            buffer = data if type(data) is bytes else bytes(data)

        packets: list[Packet] = []
        append = packets.append
        known_topic = TOPIC_CACHE.get
        acknowledgement_of = _ACKNOWLEDGEMENTS.get
        no_properties = self._no_properties
        little = self._little
        limit = self._max_first_size if self.protocol_level is None else self._max_packet_size
        control_packets = self._control_packets
        needed = 0
        offset = 0
        end = len(buffer)
        try:
            while offset < end:
                first = buffer[offset]
                start = offset + 2
                if start > end:
                    self._require_type(first)
                    break
                length = buffer[offset + 1]
                if length > 0x7F:
                    if start < end and buffer[start] < 0x80:
                        length += (buffer[start] << 7) - 0x80
                        start += 1
                    else:
                        decoded = decode_remaining_length(buffer, offset + 1, self._require_type(first).name)
                        if decoded is None:
                            break
                        length, start = decoded
                    if no_properties and not buffer[start - 1]:
                        raise MalformedPacket(
                            self._require_type(first).name,
                            1,
                            "MQTT-1.5.5-1: Remaining Length takes more bytes than it needs",
                        )
                if length > limit:
                    raise MalformedPacket(
                        self._require_type(first).name,
                        1,
                        f"{'max_packet_size' if limit == self._max_packet_size else 'max_connect_size'}: {length} bytes, "
                        f"{limit} allowed",
                        ReasonCode.PACKET_TOO_LARGE,
                    )
                stop = start + length
                if stop > end:
                    self._require_type(first)
                    needed = stop - offset
                    break

                if first & 0xF0 == 0x30:
                    if length > 2:
                        field = start + 2
                        behind = field + (buffer[start] << 8 | buffer[start + 1])
                        payload = behind + no_properties + (2 if first & 6 else 0)
                        if payload > stop or (no_properties and buffer[payload - 1]):
                            pass  # It goes the careful way.
                        elif first & 6 == 0:
                            if first < 0x38:
                                topic = known_topic(buffer[field:behind])
                                if topic is not None:
                                    append(Publish(topic, buffer[payload:stop], 0, first == 0x31))
                                    offset = stop
                                    continue
                        elif first & 6 != 6:
                            topic = known_topic(buffer[field:behind])
                            if little:
                                message_id = buffer[behind + 1] << 8 | buffer[behind]
                            else:
                                message_id = buffer[behind] << 8 | buffer[behind + 1]
                            if topic is not None and message_id:
                                append(
                                    Publish(
                                        topic,
                                        buffer[payload:stop],
                                        first >> 1 & 3,
                                        first & 1 == 1,
                                        first & 8 == 8,
                                        message_id,
                                    )
                                )
                                offset = stop
                                continue
                elif length == 2:
                    acknowledgement = acknowledgement_of(first)
                    if acknowledgement is not None:
                        if little:
                            message_id = buffer[start + 1] << 8 | buffer[start]
                        else:
                            message_id = buffer[start] << 8 | buffer[start + 1]
                        if message_id:
                            append(acknowledgement(message_id))
                            offset = stop
                            continue

                append(self._read(buffer, offset, start, stop))
                offset = stop
                if not 0x30 <= first < 0x80:
                    # It was a CONNECT, perhaps.
                    no_properties = self._no_properties
                    if self.protocol_level is not None:
                        limit = self._max_packet_size
                    control_packets -= 1
                    if not control_packets:
                        self.rest = buffer[offset:]
                        return packets
        except MalformedPacket as error:
            # The traceback would keep the buffer, and this decoder itself, alive as long as the error.
            self.error = error.with_traceback(None)
            return packets
        if offset < end:
            pending += buffer[offset:] if offset else buffer
            self._needed = needed
        return packets

    def _require_type(self, first: int) -> PacketType:
        """Tell a packet's type by its first byte; raise MalformedPacket if this end must not receive such a packet."""
        number = first >> 4
        if number == 0 or (number == PacketType.AUTH and self.protocol_level != LEVEL_MQTT_5):
            raise MalformedPacket("fixed header", 0, f"MQTT 3.1 section 2.1: message type {number} is reserved")
        packet_type = PacketType(number)
        if packet_type not in self._readers:
            receiver = "server" if self._server else "client"
            raise MalformedPacket(
                packet_type.name,
                0,
                f"MQTT 3.1.1 table 2.1: not a packet a {receiver} receives",
                ReasonCode.PROTOCOL_ERROR,
            )
        return packet_type

    def _read(self, buffer: bytes, begin: int, start: int, stop: int) -> Packet:
        """Read one complete packet that ``feed`` does not; see Body for the arguments. Raises MalformedPacket."""
        if self.protocol_level != LEVEL_MQTT_5:
            return self._read_carefully(buffer, begin, start, stop)
        packet = None if self._little else _read_quickly(buffer, begin, start, stop, self._server)
        return self._read_carefully(buffer, begin, start, stop) if packet is None else packet

    def _read_carefully(self, buffer: bytes, begin: int, start: int, stop: int) -> Packet:
        first = buffer[begin]
        packet_type = self._require_type(first)
        name = packet_type.name
        if packet_type is _CONNECT and not self._messages_only:
            # At once: who refuses a CONNECT that is malformed behind its level answers by the rules of this level.
            level = read_protocol_level(Body(buffer, begin, start, stop, name, self._little, self._server))
            if level is not None:
                self._set_level(level)
        body = Body(buffer, begin, start, stop, name, self._little, self._server)
        return self._readers[packet_type](body, first & 0x0F, self.protocol_level or LEVEL_MQTT_3_1_1)


def _read_quickly(buffer: bytes, begin: int, start: int, stop: int, from_client: bool) -> Packet | None:
    """Read a well-formed PUBLISH of MQTT 5 to a known topic, or an acknowledgement with its reason code alone.

    Returns None for all else, and raises MalformedPacket for properties that are wrong.
    """
    first = buffer[begin]
    length = stop - start
    if first & 0xF0 == 0x30 and length > 2:
        field = start + 2
        behind = field + (buffer[start] << 8 | buffer[start + 1])
        topic = TOPIC_CACHE.get(buffer[field:behind])
        qos = first >> 1 & 3
        message_id = 0
        if qos:
            behind += 2
            if behind <= stop:
                message_id = buffer[behind - 2] << 8 | buffer[behind - 1]
        if topic is None or behind > stop or qos == 3 or (not message_id if qos else first & 8):
            return None
        properties, behind = decode_properties(_PUBLISH, buffer, behind, stop, begin, from_client)
        return Publish(topic, buffer[behind:stop], qos, first & 1 == 1, first & 8 == 8, message_id, properties)
    # Some servers write the length of no properties. Only `readers` checks which reason codes a client may send.
    code_only = length == 3 or (length == 4 and not buffer[stop - 1])
    if first in _ACKNOWLEDGEMENTS and code_only and not (from_client and buffer[start + 2]):
        message_id = buffer[start] << 8 | buffer[start + 1]
        if message_id:
            return _ACKNOWLEDGEMENTS[first](message_id, reason_code=buffer[start + 2])
    return None
