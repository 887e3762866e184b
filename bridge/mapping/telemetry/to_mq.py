"""MQTT publication to IBM MQ message.

Source: the integration tables (IBM MQ, "Integration of MQ Telemetry with queue managers"), "MQTT client to IBM MQ
publish/subscribe broker".
"""

from __future__ import annotations

import msgspec

from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.publish_properties import descriptor_with, kept
from bridge.mapping.telemetry.reply_address import REPLY_TOPIC_PREFIX
from bridge.wire import cmqc
from bridge.wire.mqtt import Publish


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
