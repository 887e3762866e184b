"""MQTT publication to IBM MQ message.

Source: the integration tables (IBM MQ, "Integration of MQ Telemetry with queue managers"), "MQTT client to IBM MQ
publish/subscribe broker".
"""

from __future__ import annotations

from bridge.mapping.message import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from bridge.wire.mqtt import Publish

#: MQMD.UserIdentifier is an MQCHAR12.
USER_IDENTIFIER_LENGTH = 12

#: Seed 004, table 1: QoS of the publication to MQMD.Persistence.
PERSISTENCE_FROM_QOS = (cmqc.MQPER_NOT_PERSISTENT, cmqc.MQPER_PERSISTENT, cmqc.MQPER_PERSISTENT)


def user_identifier(
    client_id: str, user_name: str | None = None, *, mcauser: str | None = None, use_client_id: bool = False
) -> bytes:
    """Return the identity of an MQTT client, as MQMD.UserIdentifier carries it: at most 12 bytes.

    In this order (IBM MQ, "DEFINE CHANNEL", CHLTYPE(MQTT)): USECLTID(YES) takes the client identifier; else the channel's
    MCAUSER; else the user name of the CONNECT. Where none is given the field stays blank. A longer name is cut, never in
    the middle of a UTF-8 character.
    """
    name = client_id if use_client_id else (mcauser or user_name or "")
    encoded = name.encode("utf-8")[:USER_IDENTIFIER_LENGTH]
    return encoded.decode("utf-8", "ignore").encode("utf-8").rstrip(b" ")


class ClientIdentity:
    """What the messages of one connected client have in common: its identifier and its MQMDs."""

    __slots__ = ("client_id", "descriptors", "user")

    def __init__(self, client_id: str, user: bytes) -> None:
        self.client_id = client_id
        self.user = user
        not_persistent, persistent = (
            MQMD(
                Format=cmqc.MQFMT_RF_HEADER_2,
                UserIdentifier=user,
                Priority=cmqc.MQPRI_PRIORITY_AS_Q_DEF,
                Persistence=persistence,
            )
            for persistence in (cmqc.MQPER_NOT_PERSISTENT, cmqc.MQPER_PERSISTENT)
        )
        #: by QoS
        self.descriptors = (not_persistent, persistent, persistent)


def to_mq(publication: Publish, identity: ClientIdentity) -> PublicationMessage:
    """Return the MQ message that a PUBLISH of this client becomes.

    The payload is taken over as it is, zero length included.
    """
    qos = publication.qos
    return PublicationMessage(
        identity.descriptors[qos],
        identity.client_id,
        publication.topic,
        publication.payload,
        qos,
        publication.message_id,
    )
