"""The codec of MQTT 5 properties, and of the variable byte integer that encodes their length.

The properties of a packet are a struct with one field for each property that `property_table` allows there. Most publications
from other bridges have User Properties, so those are read and written in the loops themselves, and recent ones are cached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from bridge.mqtt.packets import (
    MAX_REMAINING_LENGTH,
    AcknowledgementProperties,
    AuthProperties,
    ConnackProperties,
    ConnectProperties,
    DisconnectProperties,
    PacketType,
    Properties,
    PublishProperties,
    SubscribeProperties,
    UnsubscribeProperties,
    UserProperty,
    WillProperties,
)
from bridge.mqtt.property_table import ANYWHERE, PROPERTIES, Place, PropertyKind, PropertyRow
from bridge.mqtt.reason_codes import MalformedPacket, ReasonCode


def encode_remaining_length(n: int) -> bytes:
    """Encode a length in as few bytes as possible. Raises MalformedPacket if it is out of range."""
    if 0 <= n < 0x80:
        return bytes((n,))
    if not 0 <= n <= MAX_REMAINING_LENGTH:
        raise MalformedPacket(
            "fixed header", 0, f"MQTT 3.1 section 2.1: Remaining Length is 0 to {MAX_REMAINING_LENGTH} bytes, not {n}"
        )
    digits = bytearray()
    while n > 0x7F:
        digits.append(n & 0x7F | 0x80)
        n >>= 7
    digits.append(n)
    return bytes(digits)


def decode_remaining_length(
    buffer: bytes | bytearray | memoryview, offset: int, packet: str = "fixed header"
) -> tuple[int, int] | None:
    """Return a length at an offset, and the offset after it, or None if the buffer ends inside the length.

    Encodings that are longer than necessary are accepted, as in MQTT 3.1 section 2.1. Raises MalformedPacket, with the name
    of the packet, for more than four bytes.
    """
    value = 0
    end = min(len(buffer), offset + 4)
    for position in range(offset, end):
        digit = buffer[position]
        value |= (digit & 0x7F) << 7 * (position - offset)
        if digit < 0x80:
            return value, position + 1
    if end - offset == 4:
        raise MalformedPacket(packet, 4, "MQTT 3.1 section 2.1: Remaining Length takes four bytes at most")
    return None


#: The maximum number of entries, after which the cache is cleared, and the maximum length of an entry in bytes.
ENTRIES: Final = 1_000
MAX_CACHED_LENGTH: Final = 1_000


class UserPropertyCache:
    """A cache of User Properties by encoded bytes, and of encoded bytes by identity of the User Properties."""

    __slots__ = ("_bytes", "_pairs")

    def __init__(self) -> None:
        self._pairs: dict[bytes, UserProperty] = {}
        #: by id(). The User Properties are stored too, so that their id is not reused
        self._bytes: dict[int, tuple[UserProperty, bytes]] = {}

    def pairs_of(self, encoded: bytes) -> UserProperty | None:
        """Return the cached User Properties of encoded bytes, or None."""
        return self._pairs.get(encoded)

    def bytes_of(self, pairs: UserProperty) -> bytes | None:
        """Return the cached encoded bytes of User Properties, compared by identity, or None."""
        entry = self._bytes.get(id(pairs))
        return entry[1] if entry is not None and entry[0] is pairs else None

    def remember(self, encoded: bytes, pairs: UserProperty) -> None:
        """Add an entry, unless it is too long."""
        if len(encoded) > MAX_CACHED_LENGTH:
            return
        if len(self._bytes) >= ENTRIES:
            self._pairs.clear()
            self._bytes.clear()
        self._pairs[encoded] = pairs
        self._bytes[id(pairs)] = pairs, encoded


USER_PROPERTIES: Final = UserPropertyCache()


_ACKNOWLEDGEMENTS = [PacketType[name] for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBACK", "UNSUBACK")]

STRUCTS: dict[Place, type[Properties]] = {
    **dict.fromkeys(_ACKNOWLEDGEMENTS, AcknowledgementProperties),
    PacketType.CONNECT: ConnectProperties,
    "WILL": WillProperties,
    PacketType.CONNACK: ConnackProperties,
    PacketType.PUBLISH: PublishProperties,
    PacketType.SUBSCRIBE: SubscribeProperties,
    PacketType.UNSUBSCRIBE: UnsubscribeProperties,
    PacketType.DISCONNECT: DisconnectProperties,
    PacketType.AUTH: AuthProperties,
}
"""The struct of the properties in each place. ``user_property`` is the last field of each."""

_Reader = Callable[[bytes, int, int], tuple[Any, int]]
"""(buffer, offset after the identifier, offset after all properties) -> (value, offset after it)."""
_Writer = Callable[[Any], bytes]
"""Value -> encoded property, including its identifier."""

MAX_USER_PROPERTIES: Final = 1_000
"""The maximum number of User Properties in a packet from a client. Decoding one is slow compared to its size."""

_USER_PROPERTY: Final = 0x26
_IDENTIFIERS = frozenset(row.identifier for row in PROPERTIES)
_HEAD = struct.Struct(">BH").pack
_WORD = struct.Struct(">H").pack
_ENDS = "MQTT 5 section 2.2.2.1: the properties end within this one"


class _Fault(Exception):
    """A rule that a value violates, and the reason code."""

    def __init__(self, rule: str, reason_code: ReasonCode = ReasonCode.MALFORMED_PACKET) -> None:
        super().__init__(rule)
        self.reason_code = reason_code


def decode_properties(  # noqa: C901
    place: Place, buffer: bytes, at: int, stop: int, begin: int, from_client: bool = False
) -> tuple[Any, int]:
    """Decode the properties of a packet, whose length is at offset `at`. Raises MalformedPacket.

    The packet is at the offsets `begin` to `stop`. A client may send fewer properties than a server. Returns a struct of the
    type in ``STRUCTS``, or None without properties, and the offset after them.
    """
    if at < stop and not buffer[at]:
        return None, at + 1
    values: dict[str, Any] = {}
    several: dict[str, list[Any]] = {}
    texts: list[str] = []
    readable = _READABLE[place]
    # Offset of the current property, or of the length.
    start = at
    # Offset of the User Properties, if no other property follows them.
    first = -1
    try:
        length, at = _read_variable(buffer, at, stop)
        end = at + length
        if end > stop:
            raise _Fault(f"MQTT 5 section 2.2.2.1: {length} bytes of properties, beyond the packet's end")
        while at < end:
            start = at
            identifier = buffer[at]
            if identifier == _USER_PROPERTY:
                if not texts and end - at <= MAX_CACHED_LENGTH:
                    cached_pairs = USER_PROPERTIES.pairs_of(buffer[at:end])
                    if cached_pairs is not None:
                        values["user_property"] = cached_pairs
                        at = end
                        break
                    first = at
                middle = at + 3 + (buffer[at + 1] << 8 | buffer[at + 2])
                at = middle + 2 + (buffer[middle] << 8 | buffer[middle + 1])
                if at > end:
                    raise _Fault(_ENDS)
                texts.append(buffer[start + 3 : middle].decode())
                texts.append(buffer[middle + 2 : at].decode())
                if from_client and len(texts) > 2 * MAX_USER_PROPERTIES:
                    raise _Fault(
                        f"more than {MAX_USER_PROPERTIES} User Properties in a packet", ReasonCode.QUOTA_EXCEEDED
                    )
                continue
            if texts:
                first = -1
            if identifier not in readable:
                where = f"is none of {_name(place)}" if identifier in _IDENTIFIERS else "does not exist"
                raise _Fault(f"MQTT 5 table 2-4: property 0x{identifier:02x} {where}")
            field, repeated, reader = readable[identifier]
            value, at = reader(buffer, at + 1, end)
            if repeated:
                # Subscription Identifiers of a PUBLISH.
                if from_client:
                    raise _Fault("MQTT-3.3.4-6: Subscription Identifier from a client", ReasonCode.PROTOCOL_ERROR)
                several.setdefault(field, []).append(value)
                continue
            if field in values:
                raise _Fault(
                    f"{_section(place)}: property 0x{identifier:02x} comes more than once", ReasonCode.PROTOCOL_ERROR
                )
            # Links tolerate an empty Response Topic from a broker.
            if value == "" and from_client and field == "response_topic":
                raise _Fault("MQTT-4.7.3-1: Response Topic is empty", ReasonCode.PROTOCOL_ERROR)
            values[field] = value
        if texts:
            if "\0" in "".join(texts):
                raise _Fault("MQTT-1.5.4-2: User Property contains U+0000")
            pairs = iter(texts)
            values["user_property"] = user_properties = tuple(zip(pairs, pairs, strict=True))
            if first >= 0:
                USER_PROPERTIES.remember(buffer[first:end], user_properties)
        for field, members in several.items():
            values[field] = tuple(members)
    except _Fault as fault:
        raise MalformedPacket(_name(place), start - begin, str(fault), fault.reason_code) from None
    except IndexError:
        raise MalformedPacket(_name(place), start - begin, _ENDS) from None
    except UnicodeDecodeError:
        raise MalformedPacket(_name(place), start - begin, "MQTT-1.5.4-1: a property is not UTF-8") from None
    return STRUCTS[place](**values), at


def encode_properties(place: Place, properties: Properties | None) -> bytes:
    """Encode the properties of a packet, after their length. Raises MalformedPacket for an invalid or too long value."""
    if properties is None:
        return b"\0"
    fields: list[bytes] = []
    others = msgspec.structs.astuple(properties)[:-1]
    try:
        if others != _NO_OTHERS[place]:
            for write, value in zip(_WRITTEN[place], others, strict=True):
                if value is not None:
                    fields.append(write(value))
        if pairs := properties.user_property:
            fields.append(USER_PROPERTIES.bytes_of(pairs) or _encode_user_property(pairs))
    except _Fault as fault:
        raise MalformedPacket(_name(place), 0, str(fault), fault.reason_code) from None
    except UnicodeEncodeError:
        raise MalformedPacket(_name(place), 0, "MQTT-1.5.4-1: a property contains a surrogate") from None
    except struct.error:
        raise MalformedPacket(_name(place), 0, "MQTT 5 section 1.5: a property has no room for its value") from None
    encoded = b"".join(fields)
    length = len(encoded)
    return (bytes((length,)) if length < 0x80 else encode_remaining_length(length)) + encoded


def _encode_user_property(pairs: UserProperty) -> bytes:
    fields: list[bytes] = []
    for name, value in pairs:
        if "\0" in value:
            raise _Fault("MQTT-1.5.4-2: User Property contains U+0000")
        raw = value.encode()
        fields += (_user_property_name(name), _WORD(len(raw)), raw)
    encoded = b"".join(fields)
    USER_PROPERTIES.remember(encoded, pairs)
    return encoded


def _name(place: Place) -> str:
    return place.name if isinstance(place, PacketType) else "CONNECT"


def _section(place: Place) -> str:
    # The sections of chapter 3 are numbered like the packet types.
    return f"MQTT 5 section 3.{place:d}.2" if isinstance(place, PacketType) else "MQTT 5 section 3.1.3.2"


@lru_cache(256)
def _user_property_name(name: str) -> bytes:
    """Encode a User Property up to its value. Cached, because publishers use few different names."""
    if "\0" in name:
        raise _Fault("MQTT-1.5.4-2: User Property contains U+0000")
    raw = name.encode()
    return _HEAD(_USER_PROPERTY, len(raw)) + raw


def _read_binary(buffer: bytes, at: int, end: int) -> tuple[bytes, int]:
    start = at + 2
    behind = start + (buffer[at] << 8 | buffer[at + 1])
    if behind > end:
        raise _Fault(_ENDS)
    return buffer[start:behind], behind


def _read_variable(buffer: bytes, at: int, end: int) -> tuple[int, int]:
    if at < end and buffer[at] < 0x80:
        return buffer[at], at + 1
    try:
        measured = decode_remaining_length(buffer, at)
    except MalformedPacket:
        measured = None
    if measured is None or measured[1] > end:
        raise _Fault("MQTT 5 section 1.5.5: a Variable Byte Integer ends with its properties, or after four bytes")
    value, behind = measured
    if not buffer[behind - 1]:
        raise _Fault("MQTT-1.5.5-1: a Variable Byte Integer takes more bytes than it needs")
    return value, behind


# A reader and a writer for each kind of value.


def _number(row: PropertyRow, layout: str) -> tuple[_Reader, _Writer]:
    identifier, pack, size = row.identifier, struct.Struct(f">B{layout}").pack, struct.calcsize(f">{layout}")

    def read(buffer: bytes, at: int, end: int) -> tuple[int, int]:
        behind = at + size
        if behind > end:
            raise _Fault(_ENDS)
        return _checked(row, int.from_bytes(buffer[at:behind], "big")), behind

    return read, lambda value: pack(identifier, _checked(row, value))


def _variable(row: PropertyRow) -> tuple[_Reader, _Writer]:
    identifier = bytes((row.identifier,))

    def read(buffer: bytes, at: int, end: int) -> tuple[int, int]:
        value, behind = _read_variable(buffer, at, end)
        return _checked(row, value), behind

    return read, lambda value: identifier + encode_remaining_length(_checked(row, value))


def _checked(row: PropertyRow, value: int) -> int:
    if not row.least <= value <= row.most:
        # An alias of 0 is as invalid as one above the receiver's maximum (section 3.3.2.3.4).
        topic_alias = row.name == "Topic Alias"
        raise _Fault(
            f"{'MQTT-3.3.2-8' if topic_alias else 'MQTT 5 section 2.2.2.2'}: {row.name} is {value}",
            ReasonCode.TOPIC_ALIAS_INVALID if topic_alias else ReasonCode.PROTOCOL_ERROR,
        )
    return value


def _binary(row: PropertyRow) -> tuple[_Reader, _Writer]:
    identifier = row.identifier
    return _read_binary, lambda value: _HEAD(identifier, len(value)) + value


def _string(row: PropertyRow) -> tuple[_Reader, _Writer]:
    identifier, is_topic = row.identifier, row.name == "Response Topic"

    def check(value: str) -> None:
        if "\0" in value:
            raise _Fault(f"MQTT-1.5.4-2: {row.name} contains U+0000")
        if is_topic and ("+" in value or "#" in value):
            raise _Fault(f"MQTT-3.3.2-14: {row.name} contains a wildcard", ReasonCode.PROTOCOL_ERROR)

    def read(buffer: bytes, at: int, end: int) -> tuple[str, int]:
        raw, behind = _read_binary(buffer, at, end)
        value = raw.decode()
        check(value)
        return value, behind

    def write(value: str) -> bytes:
        check(value)
        raw = value.encode()
        return _HEAD(identifier, len(raw)) + raw

    return read, write


def _each(write: _Writer) -> _Writer:
    return lambda values: b"".join(map(write, values))


_CODECS: dict[PropertyKind, Callable[[PropertyRow], tuple[_Reader, _Writer]]] = {
    PropertyKind.BYTE: lambda row: _number(row, "B"),
    PropertyKind.TWO_BYTE_INTEGER: lambda row: _number(row, "H"),
    PropertyKind.FOUR_BYTE_INTEGER: lambda row: _number(row, "I"),
    PropertyKind.VARIABLE_BYTE_INTEGER: _variable,
    PropertyKind.STRING: _string,
    PropertyKind.BINARY: _binary,
}
# By field name. The loops read and write User Properties themselves.
_BY_FIELD = {row.field: (row, *_CODECS[row.kind](row)) for row in PROPERTIES if row.kind in _CODECS}
_READABLE = {
    place: {
        row.identifier: (field, place in row.repeated, decode)
        for field, (row, decode, _) in _BY_FIELD.items()
        if place in row.places
    }
    for place in ANYWHERE
}
_WRITTEN = {
    place: [
        _each(write) if place in row.repeated else write
        for row, _, write in map(_BY_FIELD.__getitem__, fields.__struct_fields__[:-1])
    ]
    for place, fields in STRUCTS.items()
}
_NO_OTHERS = {place: msgspec.structs.astuple(fields())[:-1] for place, fields in STRUCTS.items()}
