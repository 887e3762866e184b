"""IBM MQ message to MQTT publication.

Source: the integration tables (IBM MQ, "Integration of MQ Telemetry with queue managers"), "IBM MQ to an MQTT client".
"""

from __future__ import annotations

from bridge.mapping.telemetry.folders import properties_of
from bridge.mapping.telemetry.message import AnyMessage, PublicationMessage
from bridge.mapping.telemetry.qos import DIRECT_MESSAGE_QOS, delivered_qos, publication_qos, subscription_qos
from bridge.wire import cmqc


class OutgoingPublication:
    """An MQTT publication on its way to one client. DUP and the message id belong to a transmission, not to it."""

    __slots__ = ("payload", "qos", "retain", "topic")

    def __init__(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain


def from_mq(
    message: AnyMessage,
    *,
    topic: str | None = None,
    retained: bool = False,
    persistent: bool | None = None,
    requested_qos: int | None = None,
    direct_qos: int = DIRECT_MESSAGE_QOS,
) -> OutgoingPublication:
    """Return the publication that a message becomes for one client (integration tables 4 and 5).

    `topic` is the topic string published with, or the queue name that an application put the direct message to;
    `retained` whether it comes as a retained publication; `persistent` overrides MQMD.Persistence once the queue manager
    has resolved it; `requested_qos` the QoS of the subscription it comes for, None for a message sent without one, which
    then goes with `direct_qos`. Raises MalformedHeader where headers cannot be read.
    """
    if isinstance(message, PublicationMessage):
        source_qos = message.qos
        payload, name = message.payload, message.topic
    else:
        properties = properties_of(message)
        persistence = message.md.Persistence
        if persistent is not None:
            persistence = cmqc.MQPER_PERSISTENT if persistent else cmqc.MQPER_NOT_PERSISTENT
        source_qos = publication_qos(persistence, properties.qos)
        payload = properties.body
        name = topic or properties.topic or ""
        retained = retained or properties.retained
        if requested_qos is None:
            requested_qos = subscription_qos(properties.user_data)
    return OutgoingPublication(name, payload, delivered_qos(source_qos, requested_qos, direct_qos), retained)
