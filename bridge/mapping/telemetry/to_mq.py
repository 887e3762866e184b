"""MQTT publication to IBM MQ message.

Source: the integration tables (IBM MQ, "Integration of MQ Telemetry with queue managers"), "MQTT client to IBM MQ
publish/subscribe broker".
"""

from __future__ import annotations

from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.publish_properties import descriptor_with, kept
from bridge.wire.mqtt import Publish


def to_mq(publication: Publish, identity: ClientIdentity) -> PublicationMessage:
    """Return the MQ message that a PUBLISH of this client becomes.

    The payload is taken over as it is, zero length included.
    """
    qos = publication.qos
    md = identity.descriptors[qos]
    properties = publication.properties
    if properties is not None:
        md = descriptor_with(md, properties, identity.client_id)
        properties = kept(properties)
    return PublicationMessage(
        md,
        identity.client_id,
        publication.topic,
        publication.payload,
        qos,
        publication.message_id,
        properties,
    )
