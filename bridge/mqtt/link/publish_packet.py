"""PUBLISH packets of MQTT 3.1.1 and 5, to and from publications."""

from __future__ import annotations

import functools

from bridge.mapping.publication import Publication
from bridge.mqtt.link.properties import decode_properties, encode_properties
from bridge.mqtt.link.state import Limits, Received, Refusal
from bridge.wire.mqtt import MAX_REMAINING_LENGTH, MalformedPacket, encode_publish, encode_topic
from bridge.wire.mqtt.topics import TOPIC_CACHE, topic_name_fault

# Reason codes of MQTT 5 (section 2.4) that a broker would answer with.
_UNSPECIFIED, _TOPIC_INVALID, _TOO_LARGE, _NO_RETAIN, _NO_SUCH_QOS = 0x80, 0x90, 0x95, 0x9A, 0x9B

#: A mapping publishes to few topics, over and over.
_topic_field = functools.lru_cache(4096)(encode_topic)


def decode_publish(
    first: int, packet: bytes, version_5: bool, origin: str, generation: int, trusted: bool
) -> Received:
    """Read a PUBLISH.

    `first` is the packet's first byte, `packet` what follows the fixed header. `origin` becomes the publication's
    client identifier unless a property of a `trusted` publisher tells it. Raises MalformedPacket.
    """
    qos = first >> 1 & 3
    behind = 2 + int.from_bytes(packet[:2], "big")
    raw = packet[2:behind]
    if behind > len(packet) or qos == 3:
        raise MalformedPacket("PUBLISH", 0, "MQTT 3.1.1 section 3.3: the packet ends within its topic, or has QoS 3")
    topic = TOPIC_CACHE.get(raw) or _new_topic(raw)
    mid = 0
    if qos:
        mid = int.from_bytes(packet[behind : behind + 2], "big")
        behind += 2
        if not mid or behind > len(packet):
            raise MalformedPacket("PUBLISH", 0, "MQTT-2.3.1-1: no message id, or 0")
    publication = Publication(
        topic=topic, payload=b"", qos=qos, retain=first & 1 == 1, message_id=mid, client_id=origin
    )
    if version_5:
        if packet[behind : behind + 1] == b"\0":
            behind += 1
        else:
            behind = decode_properties(packet, behind, publication, trusted=trusted)
    publication.payload = packet[behind:]
    return Received(publication, qos, mid, first & 8 == 8, generation)


def encode(publication: Publication, mid: int, dup: bool, version_5: bool, limits: Limits) -> bytes | Refusal:
    """Write a PUBLISH, or say why the broker would refuse it; `mid` and DUP count with QoS 1 and 2 only."""
    qos = publication.qos
    if qos > limits.maximum_qos:
        return Refusal(_NO_SUCH_QOS, f"QoS not supported: QoS {qos}, the broker takes at most {limits.maximum_qos}")
    if publication.retain and not limits.retain_available:
        return Refusal(_NO_RETAIN, "Retain not supported: the broker keeps no retained publications")
    try:
        topic_field = _topic_field(publication.topic)
    except MalformedPacket as error:
        return Refusal(_TOPIC_INVALID, f"Topic Name invalid: {error.rule}")
    try:
        payload = encode_properties(publication) + publication.payload if version_5 else publication.payload
    except MalformedPacket as error:
        return Refusal(_UNSPECIFIED, f"Unspecified error: {error.rule}")
    if len(topic_field) + len(payload) + 2 > MAX_REMAINING_LENGTH:
        return Refusal(_TOO_LARGE, f"Packet too large: MQTT allows {MAX_REMAINING_LENGTH} bytes")
    # In MQTT 5 the properties stand between message id and payload; all else is as in 3.1.1.
    packet = encode_publish(topic_field, payload, qos, publication.retain, dup and qos > 0, mid if qos else 0)
    if len(packet) > limits.maximum_packet_size:
        return Refusal(
            _TOO_LARGE, f"Packet too large: {len(packet)} bytes, the broker takes {limits.maximum_packet_size}"
        )
    return packet


def _new_topic(raw: bytes) -> str:
    try:
        topic = raw.decode()
    except UnicodeDecodeError:
        raise MalformedPacket("PUBLISH", 2, "MQTT-1.5.3-1: topic name is not UTF-8") from None
    fault = topic_name_fault(topic) or ("MQTT-1.5.3-2: topic name contains U+0000" if "\0" in topic else None)
    if fault:
        raise MalformedPacket("PUBLISH", 2, fault)
    TOPIC_CACHE.remember(raw, topic)
    return topic
