"""The folders mqtt and mqps of the RFH2, written and read (integration table 2)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bridge.mapping.message import CCSID_UTF8, Message
from bridge.mapping.remembered import remembered
from bridge.wire import cmqc
from bridge.wire.mq import RFH2, Folder, MalformedHeader, Typed, Value, Writable, decode_chain
from bridge.wire.mq.other_headers import OTHER_KINDS

#: Formats of the headers that stand before the body of a message.
HEADER_FORMATS = frozenset(
    (cmqc.MQFMT_RF_HEADER_2, cmqc.MQFMT_XMIT_Q_HEADER, cmqc.MQFMT_DEAD_LETTER_HEADER, cmqc.MQFMT_MD_EXTENSION)
)
#: Formats of the headers that are removed from messages for MQTT clients (integration tables: "any other headers, are
#: discarded").
DISCARDED_FORMATS = HEADER_FORMATS | OTHER_KINDS.keys()


def mqtt_content(client_id: str | None, qos: int, message_id: int) -> dict[str, Writable]:
    """Return clientId, qos and msgid of an mqtt folder; no identifier and a message id of 0 are left out.

    A will has a QoS but no message id; with QoS 0 there is none.
    """
    content: dict[str, Writable] = {}
    if client_id is not None:
        content["clientId"] = client_id
    content["qos"] = Typed(qos, "i4")
    if qos and message_id:
        content["msgid"] = Typed(message_id, "i4")
    return content


@remembered(4096)
def mqps_folder(topic: str, retained: bool, user_data: str | None) -> Folder:
    """Return the `mqps` folder of a publication: MQTopicString, MQSubUserData and MQIsRetained."""
    content: dict[str, Writable] = {"Top": topic}
    if user_data is not None:
        content["Sud"] = user_data
    if retained:
        content["Ret"] = True
    return Folder.build("mqps", content)


def is_set(retained: object) -> bool:
    """Return whether mqps.Ret, typed or as text, says that the message comes as a retained publication; None: no."""
    return str(retained).strip().lower() in ("1", "true")


def qos_in(value: object) -> int | None:
    """Return the QoS in an mqtt folder, typed or as text; None for none. Raises MalformedHeader for what is no QoS."""
    if value is None:
        return None
    text = str(value).strip()
    if text not in ("0", "1", "2"):
        raise MalformedHeader("MQRFH2", 0, f"mqtt.qos is 0, 1 or 2 (integration table 2), not {text[:20]!r}")
    return int(text)


class Properties(msgspec.Struct, gc=False):
    """What the rules need of a message that came as bytes: three of its folders, and the body behind all headers."""

    body: bytes
    topic: str | None = None
    qos: int | None = None
    retained: bool = False
    user_data: str | None = None
    #: Format and CCSID of the body; a CCSID left to the queue manager is UTF-8, which the bridge writes
    format: bytes = cmqc.MQFMT_NONE
    ccsid: int = CCSID_UTF8
    #: the content of the mqtt folder, and the usr folders
    mqtt: Mapping[str, Value] = {}
    usr: tuple[Folder, ...] = ()


def properties_of(message: Message) -> Properties:
    """Read the headers of a message that an MQ application (or IBM MQ itself) wrote; whatever else they hold is dropped.

    Raises MalformedHeader when a header named by the chain of Formats cannot be read.
    """
    md = message.md
    if md.Format not in DISCARDED_FORMATS:
        return Properties(message.data, format=md.Format, ccsid=md.CodedCharSetId or CCSID_UTF8)
    chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data, discard_others=True)
    properties = Properties(chain.body, format=chain.Format, ccsid=chain.CodedCharSetId or CCSID_UTF8)
    for header in chain.headers:
        if not isinstance(header, RFH2):
            continue
        for folder in header.folders:
            if folder.name == "mqps":
                _read_mqps(folder.content, properties)
            elif folder.name == "mqtt":
                content = folder.content
                qos = qos_in(content.get("qos"))
                properties.qos = properties.qos if qos is None else qos
                properties.mqtt = {**properties.mqtt, **content} if properties.mqtt else content
            elif folder.name == "usr":
                properties.usr += (folder,)
    return properties


def _read_mqps(content: Mapping[str, object], properties: Properties) -> None:
    topic = content.get("Top")
    if isinstance(topic, str) and topic:
        properties.topic = topic
    retained = content.get("Ret")
    if retained is not None:
        properties.retained = is_set(retained)
    user_data = content.get("Sud")
    if isinstance(user_data, str):
        properties.user_data = user_data
