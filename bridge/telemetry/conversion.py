"""Publications to MQ messages and back (IBM MQ documentation, "Integration of MQ Telemetry with queue managers")."""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.mqtt.packets import PacketType, Publish, PublishProperties
from bridge.mqtt.reason_codes import FROM_SERVER, ReasonCode
from bridge.telemetry.headers import (
    correl_id_of,
    descriptor,
    descriptor_with,
    expiry_of,
    kept,
    properties_in,
    publisher_in,
    read_headers,
    rfh2_of,
)
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Destination, MappedMessage, Message, Publication
from bridge.telemetry.request import REPLY_TOPIC_PREFIX, Request, answer_correl_id
from bridge.telemetry.subscription import DIRECT_MESSAGE_QOS, PERSISTENCE_FROM_QOS, delivered_qos, publication_qos
from bridge.telemetry.transmission import AnyMessage, PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader

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


class OutgoingPublication:
    """An MQTT publication on its way to one client. DUP and the message id belong to a transmission, not to it."""

    __slots__ = ("payload", "properties", "qos", "retain", "topic")

    def __init__(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: PublishProperties | None = None
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        #: of MQTT 5, as the publisher gave them; the interval until it expires is not among them
        self.properties = properties

    def answer(self, request: Request) -> None:
        """Take over the Correlation Data of the request that this answers."""
        self._add(correlation_data=request.correlation_data)

    def ask(self, md: MQMD, response_topic: str) -> None:
        """Become a request from MQ, whose answer the client publishes to a topic, unless the application said which."""
        if self.properties is None or self.properties.response_topic is None:
            self._add(response_topic=response_topic, correlation_data=answer_correl_id(md))

    def properties_with(
        self, message_expiry_interval: int | None, subscription_identifiers: tuple[int, ...]
    ) -> PublishProperties | None:
        """Return all properties of the PUBLISH: the publication's, and what a transmission adds. None for none."""
        if message_expiry_interval is None and not subscription_identifiers:
            return self.properties
        return msgspec.structs.replace(
            self.properties or PublishProperties(),
            message_expiry_interval=message_expiry_interval,
            subscription_identifier=subscription_identifiers,
        )

    def _add(self, **properties: str | bytes | None) -> None:
        self.properties = msgspec.structs.replace(self.properties or PublishProperties(), **properties)


def from_mq(
    message: AnyMessage,
    *,
    topic: str | None = None,
    retained: bool = False,
    persistent: bool | None = None,
    requested_qos: int | None = None,
    direct_qos: int = DIRECT_MESSAGE_QOS,
    with_properties: bool = False,
) -> OutgoingPublication:
    """Return the publication that a message becomes for one client (integration tables 4 and 5).

    `topic` is the topic string published with, or the queue name that an application put the direct message to;
    `retained` whether it comes as a retained publication; `persistent` overrides MQMD.Persistence once the queue manager
    has resolved it; `requested_qos` the QoS of the subscription it comes for, None for a message sent without one, which
    then goes with `direct_qos`; `with_properties` asks for the properties of MQTT 5. Raises MalformedHeader where headers
    cannot be read.
    """
    said: PublishProperties | None = None
    if isinstance(message, PublicationMessage):
        source_qos = message.qos
        payload, name = message.payload, message.topic
        if with_properties:
            said = message.properties
    else:
        properties = read_headers(message)
        persistence = message.md.Persistence
        if persistent is not None:
            persistence = cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_NOT_PERSISTENT
        source_qos = publication_qos(persistence, properties.qos)
        payload = properties.body
        name = topic or properties.topic or ""
        retained = retained or properties.retained
        if with_properties:
            said = properties_in(properties, message.md.CorrelId)
    return OutgoingPublication(name, payload, delivered_qos(source_qos, requested_qos, direct_qos), retained, said)


def publisher_of(message: AnyMessage) -> str:
    """Return the identifier of the client that published a message; "" for none, and where the headers cannot be read."""
    if isinstance(message, PublicationMessage):
        return message.client_id
    try:
        return publisher_in(read_headers(message))
    except MalformedHeader:
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
    return _message(publication, (publication.topic, publication.retain))


def _message(publication: Publication, mqps: tuple[str, bool] | None) -> Message:
    correl_id = correl_id_of(publication.correlation_data)
    md = descriptor(publication.user, PERSISTENCE_FROM_QOS[publication.qos], expiry_of(publication.expiry))
    if correl_id != cmqc.MQCI_NONE:
        md = msgspec.structs.replace(md, CorrelId=correl_id)
    header = rfh2_of(publication, publication.properties, publication.hops, correl_id, mqps=mqps)
    return Message(md, header + publication.payload)
