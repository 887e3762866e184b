"""IBM MQ message to MQTT publication.

Source: the integration tables (IBM MQ, "Integration of MQ Telemetry with queue managers"), "IBM MQ to an MQTT client".
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from bridge.mapping.message import AnyMessage, Message, PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import RFH2, MalformedHeader, decode_chain

#: A client alters the QoS of direct messages by subscribing to this topic with another QoS (integration table 4).
DEFAULT_QOS_TOPIC = "DEFAULT.QoS"
#: QoS of a message that is sent to a client without a subscription (integration table 4).
DIRECT_MESSAGE_QOS = 2


class Properties(msgspec.Struct, gc=False):
    """What the rules need of a message that came as bytes: its mqtt and mqps folders, and the body behind all headers."""

    body: bytes
    topic: str | None = None
    qos: int | None = None
    retained: bool = False
    user_data: str | None = None


class OutgoingPublication(msgspec.Struct, gc=False):
    """An MQTT publication on its way to one client. DUP and the message id belong to a transmission, not to it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


def properties_of(message: Message) -> Properties:
    """Read the headers of a message that an MQ application (or IBM MQ itself) wrote; whatever else they hold is dropped.

    Raises MalformedHeader when a header named by the chain of Formats cannot be read.
    """
    md = message.md
    if md.Format not in HEADER_FORMATS:
        return Properties(message.data)
    chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data)
    properties = Properties(chain.body)
    for header in chain.headers:
        if not isinstance(header, RFH2):
            continue
        for folder in header.folders:
            if folder.name == "mqps":
                _read_mqps(folder.content, properties)
            elif folder.name == "mqtt":
                properties.qos = _qos(folder.content.get("qos"), properties.qos)
    return properties


#: Formats of the headers that `properties_of` walks.
HEADER_FORMATS = frozenset(
    (cmqc.MQFMT_RF_HEADER_2, cmqc.MQFMT_XMIT_Q_HEADER, cmqc.MQFMT_DEAD_LETTER_HEADER, cmqc.MQFMT_MD_EXTENSION)
)


def _read_mqps(content: Mapping[str, object], properties: Properties) -> None:
    topic = content.get("Top")
    if isinstance(topic, str) and topic:
        properties.topic = topic
    retained = content.get("Ret")
    if retained is not None:
        properties.retained = str(retained).strip().lower() in ("1", "true")
    user_data = content.get("Sud")
    if isinstance(user_data, str):
        properties.user_data = user_data


def _qos(value: object, otherwise: int | None) -> int | None:
    """Return the QoS in an mqtt folder, typed or as text; raise MalformedHeader for anything that is no QoS."""
    if value is None:
        return otherwise
    text = str(value).strip()
    if text not in ("0", "1", "2"):
        raise MalformedHeader("MQRFH2", 0, f"mqtt.qos is 0, 1 or 2 (integration table 2), not {text[:20]!r}")
    return int(text)


def publication_qos(persistence: int, mqtt_qos: int | None) -> int:
    """Return the QoS that an incoming publication counts as.

    A publication of an MQTT client has a QoS of its own; for one of an MQ application it follows from persistence.
    """
    if mqtt_qos is not None:
        return mqtt_qos
    return 2 if persistence == cmqc.MQPER_PERSISTENT else 0


def subscription_qos(user_data: str | None) -> int | None:
    """Return the QoS that a client asked for, as the bridge writes it into the subscription's user data.

    None stands for no subscription. User data that the bridge did not write (a subscription made by an administrator for a
    client) limits nothing: 2.
    """
    if user_data is None:
        return None
    return int(user_data) if user_data in ("0", "1", "2") else 2


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
    if requested_qos is None:
        return OutgoingPublication(name, payload, direct_qos, retained)
    return OutgoingPublication(name, payload, min(source_qos, requested_qos), retained)


def message_id_from(msg_id_low: int, in_use: Container[int]) -> int:
    """Return the MQTT message id of a transmission (integration table 5).

    The id is the last two bytes of the MQMD.MsgId that the transmission has on the transmission queue. Where they are 0,
    which MQTT reserves, or still in flight for that client, it is the next free id. Raises ValueError when all 65535 are
    in use, which an in-flight window prevents.
    """
    candidate = msg_id_low & 0xFFFF
    for _ in range(65_536):
        if candidate and candidate not in in_use:
            return candidate
        candidate = (candidate + 1) & 0xFFFF
    raise ValueError("all 65535 message ids of the client are in flight")
