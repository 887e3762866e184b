"""Properties of a PUBLISH of MQTT 5 in MQ, both ways: the table "Properties of MQTT 5 in MQ" (docs/reference/mqtt-5.md).

A message of a client keeps them as they came, but for those of one packet or one hop; they are written as headers where
somebody asks for its data. Links write the same elements and folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from bridge.mapping.folder_properties import as_text, folder_properties
from bridge.mapping.message import CCSID_UTF8
from bridge.mapping.property_name import property_name
from bridge.mapping.telemetry.folders import Properties
from bridge.mapping.telemetry.request import CORREL_ID_LENGTH, request_to_keep
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, Folder, Typed, Value, Writable
from bridge.wire.mqtt import PublishProperties, UserProperty

#: Expiry of the MQMD in tenths of a second, at most.
MAX_EXPIRY: Final = 999_999_999
#: Bytes of a string or of binary data of MQTT (MQTT 5 sections 1.5.4 and 1.5.6).
MQTT_LENGTH: Final = 65_535

_USER_PROPERTIES: Final = "userProperties"


def expiry_of(seconds: float | None) -> int:
    """Return MQMD.Expiry for an expiry in seconds, None being never.

    A publication that expires at once has a tenth of a second left.
    """
    return cmqc.MQEI_UNLIMITED if seconds is None else min(max(round(seconds * 10), 1), MAX_EXPIRY)


def correl_id_of(correlation_data: bytes) -> bytes:
    """Return the CorrelId that holds Correlation Data of 1 to 24 bytes; MQCI_NONE for other Correlation Data."""
    if len(correlation_data) > CORREL_ID_LENGTH:
        return cmqc.MQCI_NONE
    return correlation_data.ljust(CORREL_ID_LENGTH, b"\0")


def requested(fields: Mapping[str, bytes | int]) -> dict[str, bytes | int]:
    """Return fields of an MQMD, which with a ReplyToQ become those of a request.

    The application that answers keeps the CorrelId of the request where there is one to keep (MQMD.Report).
    """
    if "ReplyToQ" not in fields:
        return dict(fields)
    report = cmqc.MQRO_PASS_CORREL_ID if "CorrelId" in fields else cmqc.MQRO_NONE
    return {**fields, "MsgType": cmqc.MQMT_REQUEST, "Report": report}


def is_mqtt_string(text: str) -> bool:
    """Return whether text fits a UTF-8 string of MQTT: at most 65,535 bytes, no U+0000 (MQTT 5 section 1.5.4)."""
    if "\0" in text or len(text) > MQTT_LENGTH:
        return False
    try:
        return len(text.encode()) <= MQTT_LENGTH
    except UnicodeEncodeError:  # a surrogate
        return False


# To MQ ------------------------------------------------------------------------------------------------------------------


def kept(properties: PublishProperties) -> PublishProperties | None:
    """Return what a message keeps of the properties of a PUBLISH; None where that is nothing.

    The Message Expiry Interval is in the MQMD, and runs down; a Topic Alias is of one connection, a Subscription Identifier
    of one delivery.
    """
    if properties.message_expiry_interval is not None or properties.topic_alias or properties.subscription_identifier:
        properties = msgspec.structs.replace(
            properties, message_expiry_interval=None, topic_alias=None, subscription_identifier=()
        )
    return None if properties == _NOTHING else properties


_NOTHING: Final = PublishProperties()


def size_of_properties(properties: PublishProperties) -> int:
    """Return the bytes, about, that properties take in memory."""
    others = (properties.content_type or "", properties.response_topic or "", properties.correlation_data or b"")
    pairs = properties.user_property
    return _PROPERTIES_BYTES + sum(map(len, others)) + sum([_PAIR_BYTES + len(name) + len(value) for name, value in pairs])


#: What Python takes for the properties of a message, and for each pair among them, beside the characters.
_PROPERTIES_BYTES: Final = 250
_PAIR_BYTES: Final = 180


def descriptor_with(md: MQMD, properties: PublishProperties, client_id: str) -> MQMD:
    """Return the MQMD of a client's message with the fields that properties prescribe; the very same for none.

    With a Response Topic the message is a request: an answer that is put to ReplyToQ, with the client identifier as
    ReplyToQMgr, reaches the client as a direct message with that topic (integration table 4).
    """
    fields: dict[str, int | bytes] = {}
    if properties.message_expiry_interval is not None:
        fields["Expiry"] = expiry_of(properties.message_expiry_interval)
    correl_id = correl_id_of(properties.correlation_data or b"")
    if correl_id != cmqc.MQCI_NONE:
        fields["CorrelId"] = correl_id
    topic = properties.response_topic
    if topic and client_id:
        request = request_to_keep(properties)
        fields["ReplyToQ"] = (topic if request is None else request.queue).encode()
        fields["ReplyToQMgr"] = client_id.encode()
    return msgspec.structs.replace(md, **requested(fields)) if fields else md


def add_elements(
    content: dict[str, Writable],
    correl_id: bytes,
    *,
    response_topic: str | None,
    content_type: str | None,
    correlation_data: bytes | None,
    payload_format: int | None,
    user_property: UserProperty = (),
) -> None:
    """Add to the content of an mqtt folder what a PUBLISH says; None is what it does not say.

    `correl_id` is that of the MQMD: Correlation Data are written where it does not hold them, or not so that their end
    is known.
    """
    if response_topic is not None:
        content["responseTopic"] = response_topic
    if content_type is not None:
        content["contentType"] = content_type
    if correlation_data is not None and (not correlation_data or correlation_data != correl_id.rstrip(b"\0")):
        content["correlationData"] = correlation_data.hex().upper()
    if payload_format == 0:
        content["payloadFormatIndicator"] = Typed(0, "i4")
    if user_property and len(named(user_property)) < len(user_property):
        content[_USER_PROPERTIES] = msgspec.json.encode(user_property).decode()


def named(user_property: UserProperty) -> dict[str, str]:
    """Return element -> value of the usr folder.

    Of a name that comes twice it has the last value; a name that is too long for a message property is not in it.
    """
    return {
        element: value
        for name, value in user_property
        if len(element := property_name(name)) <= cmqc.MQ_MAX_PROPERTY_NAME_LENGTH
    }


def body_format(payload_format: int | None) -> bytes:
    """Return the Format of a body, in CCSID 1208: a Payload Format Indicator of 1 says that it is UTF-8."""
    return cmqc.MQFMT_STRING if payload_format == 1 else cmqc.MQFMT_NONE


def folders_of(properties: PublishProperties, content: dict[str, Writable], correl_id: bytes) -> list[Folder]:
    """Return the folders mqtt and usr of a client's message; `content` is what else is in the folder mqtt."""
    add_elements(
        content,
        correl_id,
        response_topic=properties.response_topic,
        content_type=properties.content_type,
        correlation_data=properties.correlation_data,
        payload_format=properties.payload_format_indicator,
        user_property=properties.user_property,
    )
    folders = [Folder.build("mqtt", content)]
    if users := named(properties.user_property):
        folders.append(Folder.build("usr", users))
    return folders


# From MQ ----------------------------------------------------------------------------------------------------------------


def payload_format_of(format: bytes, ccsid: int) -> int | None:
    """Return the Payload Format Indicator of a body: 1 for text in UTF-8; None, nothing said, for any other.

    That is so for text in another CCSID, too: a client gets a body as it is.
    """
    return 1 if format == cmqc.MQFMT_STRING and ccsid == CCSID_UTF8 else None


def properties_in(found: Properties, correl_id: bytes) -> PublishProperties | None:
    """Return the properties that a message in bytes has for MQTT 5; None for none. It raises nothing.

    A property that is none that MQTT allows is left out, and so are the user properties of a usr folder that cannot be
    read: the publication is worth more than they are.
    """
    mqtt = found.mqtt
    content_type = _string(mqtt, "contentType")
    response_topic = _string(mqtt, "responseTopic")
    if response_topic is not None and (not response_topic or "+" in response_topic or "#" in response_topic):
        response_topic = None  # MQTT-4.7.3-1, MQTT-3.3.2-14
    properties = PublishProperties(
        payload_format_indicator=_payload_format(found),
        content_type=content_type,
        response_topic=response_topic,
        correlation_data=_correlation_data(mqtt, correl_id),
        user_property=_user_property(found),
    )
    return None if properties == _NOTHING else properties


def _string(mqtt: Mapping[str, Value], name: str) -> str | None:
    value = mqtt.get(name)
    if isinstance(value, list):
        value = value[-1]
    if value is None or isinstance(value, dict):
        return None
    text = as_text(value)
    return text if is_mqtt_string(text) else None


def _payload_format(found: Properties) -> int | None:
    said = found.mqtt.get("payloadFormatIndicator")
    if said is not None and str(said) in ("0", "1"):
        return int(str(said))
    return payload_format_of(found.format, found.ccsid)


def _correlation_data(mqtt: Mapping[str, Value], correl_id: bytes) -> bytes | None:
    said = mqtt.get("correlationData")
    if said is None:
        return correl_id.rstrip(b"\0") or None
    try:
        data = said if isinstance(said, bytes) else bytes.fromhex(said) if isinstance(said, str) else None
    except ValueError:
        return None
    return data if data is not None and len(data) <= MQTT_LENGTH else None


def _user_property(found: Properties) -> UserProperty:
    usr = folder_properties(found.usr).get("usr", {}) if found.usr else {}
    if isinstance(usr, str):
        usr = {}
    pairs = user_property_in(found.mqtt.get(_USER_PROPERTIES), usr) or (*usr.items(),)
    return tuple([pair for pair in pairs if is_mqtt_string(pair[0]) and is_mqtt_string(pair[1])])


def user_property_in(said: Value, usr: Mapping[str, str]) -> UserProperty:
    """Return what mqtt.userProperties says; () for nothing, and where an application has written another usr folder since."""
    if not isinstance(said, str):
        return ()
    try:
        pairs = msgspec.json.decode(said, type=UserProperty)
    except (ValueError, RecursionError):
        return ()
    return pairs if usr.items() <= dict(pairs).items() else ()


def publisher_in(found: Properties) -> str:
    """Return mqtt.clientId, the client that published a message; "" for none."""
    client_id = found.mqtt.get("clientId")
    return client_id if isinstance(client_id, str) else ""


