"""Conversion between the bridge's publications and PUBLISH packets of a link.

MQTT does not identify the publisher to subscribers. Two User Properties do: the client identifier of the original publisher,
and the mappings on the path. They are used only if the link's publishers are trusted.
"""

from __future__ import annotations

import math

import msgspec

from bridge.link.state import Limits, Refusal
from bridge.mqtt.packets import MAX_REMAINING_LENGTH, PacketType, Puback, Pubcomp, Publish, PublishProperties, Pubrec
from bridge.mqtt.properties import encode_properties
from bridge.mqtt.reason_codes import MalformedPacket, ReasonCode, reason_name
from bridge.mqtt.writer import encode_publish, encode_publish_5, topic_field
from bridge.telemetry.headers import kept
from bridge.telemetry.message import NO_PROPERTIES, Publication, Received

#: User Property: the mappings that forwarded a publication, comma-separated, oldest first
HOPS = "mqbridge-hops"
#: User Property: client identifier of the original publisher
CLIENT_ID = "mqbridge-clientId"

# Enum member access is slow, so bind once.
_PUBLISH = PacketType.PUBLISH

_NEVER = 0xFFFFFFFF
"""The largest Message Expiry Interval in seconds (136 years)."""


def to_properties(publication: Publication) -> PublishProperties:
    """Return a publication's MQTT 5 properties. The expiry is rounded up to whole seconds."""
    users = publication.properties.user_property
    if users:
        users = tuple([pair for pair in users if pair[0] not in (HOPS, CLIENT_ID)])
    if publication.client_id:
        users += ((CLIENT_ID, publication.client_id),)
    if publication.hops:
        users += ((HOPS, ",".join(publication.hops)),)
    expiry = publication.expiry
    return msgspec.structs.replace(
        publication.properties,
        message_expiry_interval=None if expiry is None else min(max(math.ceil(expiry), 0), _NEVER),
        user_property=users,
    )


def received(packet: Publish, origin: str, generation: int, trusted: bool) -> Received:
    """Convert a PUBLISH from the broker.

    `origin` becomes the client identifier unless the link is `trusted` and a property contains one. Subscription Identifiers
    are ignored. Raises MalformedPacket for a Topic Alias.
    """
    properties = packet.properties
    qos = packet.qos
    publication = Publication(
        topic=packet.topic,
        payload=packet.payload,
        qos=qos,
        retain=packet.retain,
        message_id=packet.message_id,
        client_id=origin,
    )
    if properties is not None:
        _take_over(properties, publication, trusted)
    return Received(publication, qos, packet.message_id, packet.dup, generation)


def _take_over(properties: PublishProperties, publication: Publication, trusted: bool) -> None:
    if properties.topic_alias is not None:
        raise MalformedPacket(
            "PUBLISH", 0, f"MQTT-3.3.2-11: Topic Alias is {properties.topic_alias}, of which the link allows none"
        )
    users = properties.user_property
    if users:
        own = dict(users)
        hops, client_id = own.get(HOPS), own.get(CLIENT_ID)
        if hops is not None or client_id is not None:
            users = tuple([pair for pair in users if pair[0] not in (HOPS, CLIENT_ID)])
            properties = msgspec.structs.replace(properties, user_property=users)
        if trusted:
            if hops is not None:
                publication.hops = tuple(hops.split(",")) if hops else ()
            if client_id is not None:
                publication.client_id = client_id
    if properties.message_expiry_interval is not None:
        publication.expiry = float(properties.message_expiry_interval)
    publication.properties = kept(properties) or NO_PROPERTIES


def encode(publication: Publication, mid: int, dup: bool, version_5: bool, limits: Limits) -> bytes | Refusal:
    """Encode a PUBLISH, or return why the broker would reject it. `mid` and `dup` apply to QoS 1 and 2 only."""
    qos = publication.qos
    retain = publication.retain
    if qos > limits.maximum_qos:
        return _refusal(ReasonCode.QOS_NOT_SUPPORTED, f"QoS {qos}, the broker takes at most {limits.maximum_qos}")
    if retain and not limits.retain_available:
        return _refusal(ReasonCode.RETAIN_NOT_SUPPORTED, "the broker keeps no retained publications")
    try:
        field = topic_field(publication.topic)
    except MalformedPacket as error:
        return _refusal(ReasonCode.TOPIC_NAME_INVALID, error.rule)
    properties = b""
    if version_5:
        try:
            properties = encode_properties(_PUBLISH, to_properties(publication))
        except MalformedPacket as error:
            return _refusal(ReasonCode.UNSPECIFIED_ERROR, error.rule)
    if len(field) + len(properties) + len(publication.payload) + 2 > MAX_REMAINING_LENGTH:
        return _refusal(ReasonCode.PACKET_TOO_LARGE, f"MQTT allows {MAX_REMAINING_LENGTH} bytes")
    again, message_id = (dup, mid) if qos else (False, 0)
    if version_5:
        packet = encode_publish_5(field, properties, publication.payload, qos, retain, again, message_id)
    else:
        packet = encode_publish(field, publication.payload, qos, retain, again, message_id)
    if len(packet) > limits.maximum_packet_size:
        return _refusal(
            ReasonCode.PACKET_TOO_LARGE, f"{len(packet)} bytes, the broker takes {limits.maximum_packet_size}"
        )
    return packet


def refusal(answer: Puback | Pubrec | Pubcomp) -> Refusal:
    """Return the refusal of an acknowledgement with a failure reason code."""
    text = reason_name(answer.reason_code)
    if answer.properties is not None and answer.properties.reason_string:
        text = f"{text} ({answer.properties.reason_string})"
    return Refusal(answer.reason_code, text)


def _refusal(reason: ReasonCode, why: str) -> Refusal:
    return Refusal(reason, f"{reason_name(reason)}: {why}")
