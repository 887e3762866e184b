"""Conversion between publications and messages (IBM MQ documentation, "Integration of MQ Telemetry with queue managers")."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mqtt.packets import PacketType, Publish
from bridge.mqtt.reason_codes import FROM_SERVER, ReasonCode
from bridge.telemetry.headers import Headers, correl_id_of, descriptor, descriptor_with, expiry_of, kept, rfh2_of
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import NO_PROPERTIES, Destination, MappedMessage, Message, Publication, Unmappable
from bridge.telemetry.request import REPLY_TOPIC_PREFIX
from bridge.telemetry.subscription import DIRECT_MESSAGE_QOS, PERSISTENCE_FROM_QOS, delivered_qos, publication_qos
from bridge.telemetry.transmission import AnyMessage, PublicationMessage
from bridge.wire import cmqc

REASON_CODES: Final = {
    cmqc.MQRC_NOT_AUTHORIZED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_Q_FULL: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_Q_SPACE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_RESOURCE_PROBLEM: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_STORAGE_MEDIUM_FULL: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_STORAGE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q: ReasonCode.PACKET_TOO_LARGE,
    cmqc.MQRC_MSG_TOO_BIG_FOR_Q_MGR: ReasonCode.PACKET_TOO_LARGE,
    # The message exceeds the MAXMSGL of the channel.
    cmqc.MQRC_DATA_LENGTH_ERROR: ReasonCode.PACKET_TOO_LARGE,
    # The subscription needs a connection, and the limit is reached (MaxChannels, MAXINST, MAXINSTC).
    cmqc.MQRC_MAX_CONNS_LIMIT_REACHED: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_CHANNEL_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_CHANNEL_CONFIG_ERROR: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_HANDLE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_PUT_INHIBITED: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    cmqc.MQRC_SUB_INHIBITED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_DURABILITY_NOT_ALLOWED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_TOPIC_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_OBJECT_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    # Only a publication to the Response Topic of a request from MQ is put to a queue.
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: ReasonCode.TOPIC_NAME_INVALID,
    # The payload violates a schema of the channel.
    cmqc.MQRC_FORMAT_ERROR: ReasonCode.PAYLOAD_FORMAT_INVALID,
    cmqc.MQRC_NO_SUBS_MATCHED: ReasonCode.NO_MATCHING_SUBSCRIBERS,
    cmqc.MQRC_Q_MGR_QUIESCING: ReasonCode.SERVER_SHUTTING_DOWN,
    cmqc.MQRC_Q_MGR_STOPPING: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""Reason codes of MQTT 5 by MQRC_ number. Any other MQRC_ number is UNSPECIFIED_ERROR."""


#: Substitutes for reason codes that MQTT 5 does not define for a packet.
_ELSE: Final = {
    ReasonCode.PACKET_TOO_LARGE: ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.TOPIC_NAME_INVALID: ReasonCode.TOPIC_FILTER_INVALID,
}


def reason_code_of(reason: int, packet: PacketType) -> ReasonCode:
    """Return the MQTT 5 reason code of a packet for an MQRC_ number other than MQRC_NONE."""
    if reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME and packet is PacketType.SUBACK:
        # A queue of the bridge is missing. The filter is valid.
        return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    code, allowed = REASON_CODES.get(reason, ReasonCode.UNSPECIFIED_ERROR), FROM_SERVER[packet]
    if code not in allowed:
        code = _ELSE.get(code, code)
    return code if code in allowed else ReasonCode.UNSPECIFIED_ERROR


def to_mq(publication: Publish, identity: ClientIdentity) -> PublicationMessage:
    """Convert a PUBLISH of this client to an MQ message.

    The payload is unchanged and may be empty. A publication to the Response Topic of a request from MQ becomes the reply
    for its ReplyToQ.
    """
    qos = publication.qos
    md = identity.descriptors[qos]
    properties = publication.properties
    if properties is not None:
        md = descriptor_with(md, properties, identity.client_id)
        properties = kept(properties)
    topic = publication.topic
    reply_to = None
    if topic.startswith(REPLY_TOPIC_PREFIX) and identity.replies is not None:
        reply_to = identity.replies.queue(identity.client_id, topic)
        if md.MsgType == cmqc.MQMT_DATAGRAM:
            md = msgspec.structs.replace(md, MsgType=cmqc.MQMT_REPLY)
    return PublicationMessage(
        md, identity.client_id, topic, publication.payload, qos, publication.packet_id, properties, reply_to
    )


def from_mq(
    message: AnyMessage,
    *,
    topic: str | None = None,
    retained: bool = False,
    persistent: bool | None = None,
    requested_qos: int | None = None,
    direct_qos: int = DIRECT_MESSAGE_QOS,
    with_properties: bool = False,
) -> Publication:
    """Convert a message to a publication for one client (integration tables 4 and 5).

    `topic` is the topic string of the publication, or the queue name of a direct message. `retained` means a retained
    publication. `persistent` overrides MQMD.Persistence after the queue manager has resolved it. `requested_qos` is the QoS
    of the subscription, or None for a direct message, which is sent with `direct_qos`. `with_properties` includes MQTT 5
    properties. Raises Unmappable if the headers are malformed.
    """
    properties = NO_PROPERTIES
    if isinstance(message, PublicationMessage):
        source_qos = message.qos
        payload, name = message.payload, message.topic
        if with_properties:
            properties = message.properties or NO_PROPERTIES
    else:
        headers = Headers(message, discard_others=True)
        persistence = message.md.Persistence
        if persistent is not None:
            persistence = cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_NOT_PERSISTENT
        source_qos = publication_qos(persistence, headers.qos)
        payload = headers.body
        name = topic or headers.topic
        retained = retained or headers.retained
        if with_properties:
            properties = headers.properties
    qos = delivered_qos(source_qos, requested_qos, direct_qos)
    return Publication(name, payload, qos, retained, properties=properties)


def publication_of(message: Message, *, topic: str | None = None, retained: bool | None = None) -> Publication:
    """Convert a message to the publication from which it was or could have been converted (the reverse of table 2).

    `topic` and `retained` override the RFH2. Raises Unmappable.
    """
    headers = Headers(message)
    return Publication(
        headers.topic if topic is None else topic,
        headers.body,
        publication_qos(headers.md.Persistence, headers.qos),
        headers.retained if retained is None else retained,
        headers.packet_id,
        headers.client_id,
        headers.user,
        headers.expiry,
        headers.properties,
        headers.hops,
    )


def publisher_of(message: AnyMessage) -> str:
    """Return the client identifier of a message's publisher, or "" if it is missing or the headers are malformed."""
    if isinstance(message, PublicationMessage):
        return message.client_id
    try:
        return Headers(message, discard_others=True).client_id
    except Unmappable:
        return ""


def with_publisher(message: Message) -> Message:
    """Return a copy of a publication with the user of the MQTT client that published it in its MQMD.

    On IBM MQ, the copy for a subscription has the user of the subscription (IBM MQ documentation, "Subscription security").
    Raises Unmappable if the message does not contain the client's user.
    """
    user = Headers(message).publisher
    if not user:
        raise Unmappable(
            cmqc.MQRC_NOT_AUTHORIZED,
            "the message does not name its publisher: an application published it, a mapping did, or an MQTT client before"
            " there was a mapping with as: publisher",
        )
    return Message(msgspec.structs.replace(message.md, UserIdentifier=user.encode()), message.data)


def message_of(publication: Publication) -> MappedMessage:
    """Convert a publication to the message that a client would have published (integration tables 1 and 2).

    The message has no mqps folder, because the queue manager writes it. Raises Unmappable if a value does not fit an RFH2.
    """
    return MappedMessage(
        destination=Destination(publication.topic, True),
        message=_message(publication, None),
        retain=publication.retain,
        clear=publication.retain and not publication.payload,
        hops=publication.hops,
    )


def received_message(publication: Publication) -> Message:
    """Convert a publication to the message that a subscriber receives, with an mqps folder. Raises Unmappable."""
    return _message(publication, (publication.topic, publication.retain, None))


def _message(publication: Publication, mqps: tuple[str, bool, str | None] | None) -> Message:
    properties = publication.properties
    correl_id = correl_id_of(properties.correlation_data)
    md = descriptor(publication.user, PERSISTENCE_FROM_QOS[publication.qos], expiry_of(publication.expiry))
    if correl_id != cmqc.MQCI_NONE:
        md = msgspec.structs.replace(md, CorrelId=correl_id)
    header = rfh2_of(
        publication.client_id or None,
        publication.qos,
        publication.packet_id,
        properties,
        correl_id,
        mqps=mqps,
        hops=publication.hops,
    )
    return Message(md, header + publication.payload)
