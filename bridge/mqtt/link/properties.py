"""The properties of PUBLISH in MQTT 5 (section 3.3.2.3), to and from the fields of a publication.

paho's own Properties takes some 20 microseconds to make one object, whatever is in it: more than all the rest that a
message needs here. Nearly every message of another bridge has properties, so they are read and written directly.
"""

from __future__ import annotations

import math
import struct

from bridge.mapping.publication import Publication
from bridge.wire.mqtt import MalformedPacket, decode_remaining_length, encode_remaining_length

#: User Property: the mappings that a publication came through, comma separated, oldest first
HOPS = "mqbridge-hops"
#: User Property: who published it first (MQTT tells no subscriber the client identifier of the publisher)
CLIENT_ID = "mqbridge-clientId"

_PAYLOAD_FORMAT, _EXPIRY, _CONTENT_TYPE, _RESPONSE_TOPIC, _CORRELATION_DATA = 0x01, 0x02, 0x03, 0x08, 0x09
_SUBSCRIPTION_ID, _TOPIC_ALIAS, _USER = 0x0B, 0x23, 0x26

_HEADER = struct.Struct(">BH").pack
_LENGTH = struct.Struct(">H")
_FORMAT_FIELD = struct.Struct(">BB").pack
_EXPIRY_FIELD = struct.Struct(">BI").pack

_NEVER = 0xFFFFFFFF
"""Largest Message Expiry Interval, seconds: 136 years."""


def encode_properties(publication: Publication) -> bytes:
    """Encode the properties of a publication, with their length in front.

    The expiry is rounded up to whole seconds. Raises MalformedPacket for what has no room in a property: a string or
    correlation data of more than 65,535 bytes, or U+0000 in a string.
    """
    fields = []
    if publication.payload_format is not None:
        fields.append(_FORMAT_FIELD(_PAYLOAD_FORMAT, publication.payload_format))
    if publication.expiry is not None:
        fields.append(_EXPIRY_FIELD(_EXPIRY, min(max(math.ceil(publication.expiry), 0), _NEVER)))
    if publication.content_type:
        fields.append(_string(_CONTENT_TYPE, publication.content_type))
    if publication.response_topic:
        fields.append(_string(_RESPONSE_TOPIC, publication.response_topic))
    if publication.correlation_data:
        fields.append(_binary(_CORRELATION_DATA, publication.correlation_data))
    for name, value in publication.properties.items():
        if name not in (HOPS, CLIENT_ID):
            fields.append(_pair(name, value))
    if publication.client_id:
        fields.append(_pair(CLIENT_ID, publication.client_id))
    if publication.hops:
        fields.append(_pair(HOPS, ",".join(publication.hops)))
    if not fields:
        return b"\0"
    joined = b"".join(fields)
    return encode_remaining_length(len(joined)) + joined


def decode_properties(packet: bytes, at: int, publication: Publication, *, trusted: bool = True) -> int:
    """Read the properties at an offset into the fields of a publication; return the offset behind them.

    What other bridges write of clients and mappings is passed over unless the publishers are trusted. A Subscription
    Identifier means nothing to the bridge and is passed over. Raises MalformedPacket for properties that MQTT 5 does not
    allow, a Topic Alias included: the link's CONNECT allows none.
    """
    measured = decode_remaining_length(packet, at, "PUBLISH")
    if measured is None:
        raise _malformed("ends within the length of its properties")
    length, at = measured
    end = at + length
    if end > len(packet):
        raise _malformed("ends within its properties")
    users: dict[str, str] = {}
    while at < end:
        identifier = packet[at]
        at += 1
        if identifier == _USER:
            name, at = _read_string(packet, at, end)
            value, at = _read_string(packet, at, end)
            if name not in (HOPS, CLIENT_ID):
                users[name] = value
            elif not trusted:
                pass
            elif name == HOPS:
                publication.hops = tuple(value.split(",")) if value else ()
            else:
                publication.client_id = value
        elif identifier == _EXPIRY:
            publication.expiry = float(int.from_bytes(packet[at : at + 4], "big"))
            at += 4
        elif identifier == _CONTENT_TYPE:
            publication.content_type, at = _read_string(packet, at, end)
        elif identifier == _RESPONSE_TOPIC:
            publication.response_topic, at = _read_string(packet, at, end)
        elif identifier == _CORRELATION_DATA:
            publication.correlation_data, at = _read_binary(packet, at, end)
        elif identifier == _PAYLOAD_FORMAT:
            publication.payload_format = int.from_bytes(packet[at : at + 1])
            at += 1
        elif identifier == _SUBSCRIPTION_ID:
            behind = decode_remaining_length(packet, at, "PUBLISH")
            at = end + 1 if behind is None else behind[1]
        elif identifier == _TOPIC_ALIAS:
            raise _malformed("has a Topic Alias, of which the link allows none (MQTT-3.3.2-9)")
        else:
            raise _malformed(f"has property 0x{identifier:02x}, which is none of PUBLISH")
    if at != end:
        raise _malformed("has a property that is longer than all of them")
    publication.properties = users
    return end


def _malformed(what: str) -> MalformedPacket:
    return MalformedPacket("PUBLISH", 0, f"MQTT 5 section 3.3.2.3: the packet {what}")


def _read_binary(packet: bytes, at: int, end: int) -> tuple[bytes, int]:
    start = at + 2
    stop = start + int.from_bytes(packet[at:start], "big")
    if stop > end or start > end:
        raise _malformed("ends within a property")
    return packet[start:stop], stop


def _read_string(packet: bytes, at: int, end: int) -> tuple[str, int]:
    raw, at = _read_binary(packet, at, end)
    try:
        return raw.decode(), at
    except UnicodeDecodeError:
        raise _malformed("has a property that is not UTF-8 (MQTT-1.5.4-1)") from None


def _text(value: str) -> bytes:
    if "\0" in value:
        raise MalformedPacket("PUBLISH", 0, "MQTT-1.5.4-2: a property contains U+0000")
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise MalformedPacket("PUBLISH", 0, "MQTT-1.5.4-1: a property contains a surrogate") from None
    return _bounded(raw)


def _bounded(raw: bytes) -> bytes:
    if len(raw) > 0xFFFF:
        raise MalformedPacket("PUBLISH", 0, f"MQTT 5 section 1.5.4: a property is {len(raw)} bytes long, 65535 allowed")
    return raw


def _string(identifier: int, value: str) -> bytes:
    raw = _text(value)
    return _HEADER(identifier, len(raw)) + raw


def _binary(identifier: int, value: bytes) -> bytes:
    return _HEADER(identifier, len(_bounded(value))) + value


def _pair(name: str, value: str) -> bytes:
    first, second = _text(name), _text(value)
    return b"".join((_HEADER(_USER, len(first)), first, _LENGTH.pack(len(second)), second))
