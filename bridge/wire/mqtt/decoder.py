"""MQTT packets out of a byte stream that arrives in pieces of any size (MQTT 3.1 and 3.1.1 chapter 2).

Publications and their acknowledgements make up nearly all traffic. Well-formed ones are read within the loop of
``Decoder.feed`` itself; everything else, and whatever looks wrong there, goes the careful way through ``readers``,
which either makes a packet of it or says which rule it breaks.
"""

from __future__ import annotations

from .body import Body
from .errors import MalformedPacket
from .packets import ByteOrder, Connect, Packet, PacketType, Puback, Pubcomp, Publish, Pubrec, Pubrel
from .readers import LEVEL_MQTT_3_1, TO_CLIENT, TO_SERVER, Reader, knows_protocol
from .remaining_length import MAX_REMAINING_LENGTH, decode_remaining_length
from .topics import TOPIC_CACHE

# By the whole first byte, flags as MQTT 3.1.1 wants them; MQTT 3.1's other flags take the careful way.
_ACKNOWLEDGEMENTS: dict[int, type[Puback] | type[Pubrec] | type[Pubrel] | type[Pubcomp]] = {
    0x40: Puback,
    0x50: Pubrec,
    0x62: Pubrel,
    0x70: Pubcomp,
}


class Decoder:
    """Turns one connection's incoming bytes into packets, keeping only an incomplete packet between calls.

    Attributes:
        error: what was wrong with the stream, None while nothing was. Nothing behind a malformed packet can be
            trusted, so the decoder returns no packet any more; close the connection.
        protocol_level: the level whose rules hold, 3 (MQTT 3.1) or 4 (MQTT 3.1.1); None while a server waits for
            the CONNECT that tells it, when those of 4 are applied.
    """

    __slots__ = ("_little", "_max_packet_size", "_needed", "_pending", "_readers", "error", "protocol_level")

    def __init__(
        self,
        *,
        server: bool = True,
        protocol_level: int | None = None,
        max_packet_size: int = MAX_REMAINING_LENGTH,
        byte_order: ByteOrder = "big",
    ) -> None:
        """Prepare for the first byte of a connection.

        Args:
            server: whether this end is the server, to which only clients' packets are sensible; else the client.
            protocol_level: the level of the connection, for a client; a server learns it from CONNECT.
            max_packet_size: largest acceptable Remaining Length in bytes (the fixed header not counted). A larger
                packet is an error as soon as its length is read; its content is never stored.
            byte_order: order of the bytes in message ids and keep-alive; "little" for the older dialect.
        """
        self._readers: dict[PacketType, Reader] = TO_SERVER if server else TO_CLIENT
        self._max_packet_size = max_packet_size
        self._little = byte_order == "little"
        self._pending = bytearray()
        self._needed = 0
        self.protocol_level = protocol_level
        self.error: MalformedPacket | None = None

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
        little = self._little
        limit = self._max_packet_size
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
                if length > limit:
                    raise MalformedPacket(
                        self._require_type(first).name, 1, f"max_packet_size: {length} bytes, {limit} allowed"
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
                        if first & 6 == 0:
                            if behind <= stop and first < 0x38:
                                topic = known_topic(buffer[field:behind])
                                if topic is not None:
                                    append(Publish(topic, buffer[behind:stop], 0, first == 0x31))
                                    offset = stop
                                    continue
                        elif behind + 2 <= stop and first & 6 != 6:
                            topic = known_topic(buffer[field:behind])
                            if little:
                                message_id = buffer[behind + 1] << 8 | buffer[behind]
                            else:
                                message_id = buffer[behind] << 8 | buffer[behind + 1]
                            if topic is not None and message_id:
                                append(
                                    Publish(
                                        topic,
                                        buffer[behind + 2 : stop],
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
        if number in (0, 15):
            raise MalformedPacket("fixed header", 0, f"MQTT 3.1 section 2.1: message type {number} is reserved")
        packet_type = PacketType(number)
        if packet_type not in self._readers:
            receiver = "server" if self._readers is TO_SERVER else "client"
            raise MalformedPacket(packet_type.name, 0, f"MQTT 3.1.1 table 2.1: not a packet a {receiver} receives")
        return packet_type

    def _read(self, buffer: bytes, begin: int, start: int, stop: int) -> Packet:
        """Read one complete packet the careful way; see Body for the arguments. Raises MalformedPacket."""
        first = buffer[begin]
        packet_type = self._require_type(first)
        body = Body(buffer, begin, start, stop, packet_type.name, self._little)
        packet = self._readers[packet_type](body, first & 0x0F, self.protocol_level != LEVEL_MQTT_3_1)
        if type(packet) is Connect and knows_protocol(packet):
            self.protocol_level = packet.protocol_level
        return packet
