"""Publications to MQ messages and back (IBM MQ documentation, "Integration of MQ Telemetry with queue managers")."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mqtt.packets import PacketType, Publish
from bridge.mqtt.reason_codes import FROM_SERVER, ReasonCode
from bridge.telemetry.headers import (
    Headers,
    correl_id_of,
    descriptor,
    descriptor_with,
    expiry_of,
    kept,
    rfh2_of,
)
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
    # A message above the MAXMSGL of the channel.
    cmqc.MQRC_DATA_LENGTH_ERROR: ReasonCode.PACKET_TOO_LARGE,
    # A subscription for which the queue manager or its channel has no connection left (MaxChannels, MAXINST, MAXINSTC).
    cmqc.MQRC_MAX_CONNS_LIMIT_REACHED: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_CHANNEL_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_CHANNEL_CONFIG_ERROR: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_HANDLE_NOT_AVAILABLE: ReasonCode.QUOTA_EXCEEDED,
    cmqc.MQRC_PUT_INHIBITED: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    cmqc.MQRC_SUB_INHIBITED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_DURABILITY_NOT_ALLOWED: ReasonCode.NOT_AUTHORIZED,
    cmqc.MQRC_TOPIC_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_OBJECT_STRING_ERROR: ReasonCode.TOPIC_NAME_INVALID,
    # Of the Response Topic of a request from MQ, the only topic that stands for a queue.
    cmqc.MQRC_UNKNOWN_OBJECT_NAME: ReasonCode.TOPIC_NAME_INVALID,
    cmqc.MQRC_NO_SUBS_MATCHED: ReasonCode.NO_MATCHING_SUBSCRIBERS,
    cmqc.MQRC_Q_MGR_QUIESCING: ReasonCode.SERVER_SHUTTING_DOWN,
    cmqc.MQRC_Q_MGR_STOPPING: ReasonCode.SERVER_SHUTTING_DOWN,
}
"""Those that say more than that something is wrong; the rest is UNSPECIFIED_ERROR."""


#: What a packet says in place of a reason code that MQTT 5 does not have for it.
_ELSE: Final = {
    ReasonCode.PACKET_TOO_LARGE: ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.TOPIC_NAME_INVALID: ReasonCode.TOPIC_FILTER_INVALID,
}


def reason_code_of(reason: int, packet: PacketType) -> ReasonCode:
    """Return the reason code with which a packet tells a client of an MQRC_ number that is not MQRC_NONE."""
    code, allowed = REASON_CODES.get(reason, ReasonCode.UNSPECIFIED_ERROR), FROM_SERVER[packet]
    if code not in allowed:
        code = _ELSE.get(code, code)
    return code if code in allowed else ReasonCode.UNSPECIFIED_ERROR


def to_mq(publication: Publish, identity: ClientIdentity) -> PublicationMessage:
    """Return the MQ message that a PUBLISH of this client becomes.

    The payload is taken over as it is, zero length included. A publication to the Response Topic of a request from MQ
    becomes the answer that is put to its ReplyToQ.
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
        md,
        identity.client_id,
        topic,
        publication.payload,
        qos,
        publication.message_id,
        properties,
        reply_to,
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
    """Return the publication that a message becomes for one client (integration tables 4 and 5).

    `topic` is the topic string published with, or the queue name that an application put the direct message to;
    `retained` whether it comes as a retained publication; `persistent` overrides MQMD.Persistence once the queue manager
    has resolved it; `requested_qos` the QoS of the subscription it comes for, None for a message sent without one, which
    then goes with `direct_qos`; `with_properties` asks for the properties of MQTT 5. Raises Unmappable where headers cannot
    be read.
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
    """Return the publication that a message was made of, or would be: the reverse of integration table 2.

    `topic` and `retained` say what is known of them from elsewhere than the RFH2. Raises Unmappable.
    """
    headers = Headers(message)
    return Publication(
        headers.topic if topic is None else topic,
        headers.body,
        publication_qos(headers.md.Persistence, headers.qos),
        headers.retained if retained is None else retained,
        headers.message_id,
        headers.client_id,
        headers.user,
        headers.expiry,
        headers.properties,
        headers.hops,
    )


def publisher_of(message: AnyMessage) -> str:
    """Return the identifier of the client that published a message; "" for none, and where the headers cannot be read."""
    if isinstance(message, PublicationMessage):
        return message.client_id
    try:
        return Headers(message, discard_others=True).client_id
    except Unmappable:
        return ""


def message_of(publication: Publication) -> MappedMessage:
    """Return the message that a client would have published (integration tables 1 and 2), with all else the publication has.

    The message is for a topic, so its mqps folder is the queue manager's to write. Raises Unmappable for what no RFH2 can
    hold.
    """
    return MappedMessage(
        destination=Destination(publication.topic, True),
        message=_message(publication, None),
        retain=publication.retain,
        clear=publication.retain and not publication.payload,
        hops=publication.hops,
    )


def received_message(publication: Publication) -> Message:
    """Return the same message as a subscriber has it, topic and whether it is retained included, or raise Unmappable."""
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
        publication.message_id,
        properties,
        correl_id,
        mqps=mqps,
        hops=publication.hops,
    )
    return Message(md, header + publication.payload)
