"""IBM MQ message to MQTT publication.

Source: the integration tables (IBM MQ, "Integration of MQ Telemetry with queue managers"), "IBM MQ to an MQTT client".
"""

from __future__ import annotations

import msgspec

from bridge.mapping.telemetry.folders import properties_of
from bridge.mapping.telemetry.message import AnyMessage, PublicationMessage
from bridge.mapping.telemetry.publish_properties import properties_in, publisher_in
from bridge.mapping.telemetry.qos import DIRECT_MESSAGE_QOS, delivered_qos, publication_qos
from bridge.mapping.telemetry.reply_address import answer_correl_id
from bridge.mapping.telemetry.request import Request
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MalformedHeader
from bridge.wire.mqtt import PublishProperties


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
        properties = properties_of(message)
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
        return publisher_in(properties_of(message))
    except MalformedHeader:
        return ""
