"""The fields after a packet's fixed header, read one by one with every bound checked.

This is the careful way of reading, used for all packets but the well-formed ones of the decoder's hot path. Sources:
MQTT 3.1 section 2.1 (words are big-endian), the older dialect (words are little-endian, string lengths big-endian all
the same), MQTT 3.1.1 section 1.5.3 (strings).
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from .errors import MalformedPacket
from .packets import LEVEL_MQTT_3_1, LEVEL_MQTT_5
from .properties import decode_properties
from .property_table import Place
from .reason_codes import ReasonCode

_MALFORMED: Final = ReasonCode.MALFORMED_PACKET
_PROTOCOL_ERROR: Final = ReasonCode.PROTOCOL_ERROR


class Body:
    """A position moving over one packet's fields.

    Every reading method moves behind the field it returns and raises MalformedPacket if the packet ends before the
    field does, or the field breaks the rules for its kind.
    """

    __slots__ = ("_begin", "_buffer", "_packet", "_position", "_stop", "_word_order", "from_client")

    def __init__(
        self, buffer: bytes, begin: int, start: int, stop: int, packet: str, little: bool, from_client: bool
    ) -> None:
        """Stand at the first field.

        Args:
            buffer: bytes of one or more packets.
            begin: offset of the packet's fixed header in the buffer.
            start: offset behind the fixed header.
            stop: offset behind the packet.
            packet: the packet's name for errors.
            little: whether words are little-endian.
            from_client: whether a client sent the packet.
        """
        self._buffer = buffer
        self._begin = begin
        self._position = start
        self._stop = stop
        self._packet = packet
        self.from_client = from_client
        self._word_order = -1 if little else 1

    @property
    def remaining(self) -> int:
        """Return the number of bytes not read yet."""
        return self._stop - self._position

    def fail(self, rule: str, back: int = 0, reason_code: ReasonCode = _MALFORMED) -> NoReturn:
        """Refuse the packet for a field which begins ``back`` bytes before the position."""
        raise MalformedPacket(self._packet, self._position - back - self._begin, rule, reason_code)

    def fail_protocol(self, rule: str, back: int = 0) -> NoReturn:
        """Refuse the packet as ``fail`` does, for what MQTT 5 calls a Protocol Error."""
        self.fail(rule, back, _PROTOCOL_ERROR)

    def fail_header(self, rule: str) -> NoReturn:
        """Refuse the packet for its first byte."""
        raise MalformedPacket(self._packet, 0, rule)

    def require_no_flags(self, flags: int, level: int) -> None:
        """Refuse the packet if flags are set in its first byte, which MQTT 3.1 alone leaves to the sender."""
        if level > LEVEL_MQTT_3_1 and flags:
            statement = "MQTT-2.1.3-1" if level == LEVEL_MQTT_5 else "MQTT-2.2.2-2"
            self.fail_header(f"{statement}: flags are reserved and 0, not {flags:#06b}")

    def _take(self, size: int, field: str) -> bytes:
        if size > self._stop - self._position:
            self.fail(f"MQTT 3.1.1 section 2.2.3: packet ends within {field}")
        taken = self._buffer[self._position : self._position + size]
        self._position += size
        return taken

    def byte(self, field: str) -> int:
        """Read a number of one byte."""
        return self._take(1, field)[0]

    def word(self, field: str) -> int:
        """Read a number of two bytes in the connection's byte order."""
        return int.from_bytes(self._take(2, field)[:: self._word_order], "big")

    def message_id(self) -> int:
        """Read a message identifier, which must not be 0 (MQTT 3.1 section 3.10)."""
        message_id = self.word("message id")
        if message_id == 0:
            self.fail_protocol("MQTT-2.3.1-1: message id is 0", back=2)
        return message_id

    def binary(self, field: str) -> bytes:
        """Read bytes behind their length of two bytes, big-endian in either dialect."""
        if self.remaining < 2:
            self.fail(f"MQTT 3.1.1 section 2.2.3: packet ends within the length of {field}")
        size = int.from_bytes(self._buffer[self._position : self._position + 2], "big")
        if size > self.remaining - 2:
            self.fail(f"MQTT 3.1.1 section 1.5.3: length of {field} is {size}, beyond the packet's end")
        self._position += 2
        return self._take(size, field)

    def string(self, field: str) -> str:
        """Read a UTF-8 string."""
        raw = self.binary(field)
        # NUL is a character to UTF-8 but not to MQTT; surrogates Python refuses by itself.
        if 0 in raw:
            self.fail(f"MQTT-1.5.3-2: {field} contains U+0000", back=len(raw) + 2)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = None
        if text is None:
            self.fail(f"MQTT-1.5.3-1: {field} is not UTF-8", back=len(raw) + 2)
        return text

    def properties(self, place: Place) -> Any:
        """Read the properties of a packet of MQTT 5, or of its will; None where there are none."""
        properties, self._position = decode_properties(
            place, self._buffer, self._position, self._stop, self._begin, self.from_client
        )
        return properties

    def rest(self) -> bytes:
        """Read all that is left."""
        return self._take(self.remaining, "payload")

    def packet(self) -> bytes:
        """Return the whole packet, its fixed header included."""
        return self._buffer[self._begin : self._stop]

    def finish(self) -> None:
        """Make sure that nothing is left."""
        if self.remaining:
            self.fail(f"MQTT 3.1.1 section 2.2.3: {self.remaining} bytes behind the last field")
