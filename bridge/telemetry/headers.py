"""RFH2 folders and MQTT properties: what the mqps, mqtt, usr and other folders of a message say, read and written.

Source: IBM MQ documentation, "Integration of MQ Telemetry with queue managers" and "MQRFH2 - Rules and formatting header 2".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from typing import Final, ParamSpec, TypeVar

import msgspec

from bridge.mqtt.packets import PublishProperties, UserProperty
from bridge.telemetry.message import CCSID_UTF8, Message, Publication, Unmappable
from bridge.telemetry.request import CORREL_ID_LENGTH, request_to_keep
from bridge.wire import cmqc
from bridge.wire.mq import (
    MQMD,
    RFH2,
    ByteOrder,
    Folder,
    MalformedHeader,
    Typed,
    Value,
    Writable,
    decode_chain,
    encode_rfh2,
)
from bridge.wire.mq.headers import OTHER_KINDS

P = ParamSpec("P")
R = TypeVar("R")

#: Longest first argument of a call whose result is remembered.
LONGEST = 1024


def remembered(entries: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have the last `entries` results of a function remembered, unless its first argument is longer than LONGEST."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize=entries)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return (cached if len(args[0]) <= LONGEST else function)(*args, **kwargs)  # type: ignore[arg-type]

        return call

    return decorate


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_ESCAPE = re.compile(r"_x(?:([0-9A-F]{4})|([0-9A-F]{8}))_")
_TO_ESCAPE = re.compile(r"_(?=x(?:[0-9A-F]{4}|[0-9A-F]{8})_)|^[0-9$]|[^A-Za-z0-9_$]")


@remembered(1024)
def property_name(name: str) -> str:
    """Return the name of the element in the usr folder; `_x0000_` for an empty name."""
    if not name:
        return _EMPTY_NAME
    if _PLAIN.fullmatch(name) and "_x" not in name:
        return name
    return _TO_ESCAPE.sub(_escaped, name)


@remembered(1024)
def user_name(element: str) -> str:
    """Return the name that an element of the usr folder stands for."""
    if "_x" not in element:
        return element
    return "" if element == _EMPTY_NAME else _ESCAPE.sub(_character, element)


#: U+0000 stands in no name.
_EMPTY_NAME = "_x0000_"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"_x{code:04X}_" if code <= 0xFFFF else f"_x{code:08X}_"


def _character(found: re.Match[str]) -> str:
    code = int(found[1] or found[2], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF and code else found[0]


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


def read_headers(message: Message) -> Properties:
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


#: A folder of text and integers without groups, references or other attributes, in ASCII; and an element of it.
_SIMPLE = re.compile(
    rb"<(\w++)>((?:<(\w++)(?: dt='i4'>[0-9]{1,9}|>[ !-%'-;=-~]*+)</\3>)*+)</\1> *+"
)
_ELEMENT = re.compile(rb"<(\w++)(?: dt='i4'>([0-9]++)|>([^<]*+))<")
#: name -> value as text; or why the folder cannot be read
FolderProperties = Mapping[str, str] | str


def folder_properties(folders: Iterable[Folder]) -> dict[str, FolderProperties]:
    """Return what folders say, by name; of those with one name, what they say together.

    A property in a group is `group.name`; of one that is there twice the last value counts; one that is nil is none. Names
    in the usr folder are as the bridge reads them (:mod:`bridge.telemetry.headers`).
    """
    found: dict[str, FolderProperties] = {}
    for folder in folders:
        name, properties = _read(folder.NameValueData, folder.NameValueCCSID, folder.byte_order)
        before = found.get(name, properties)
        if before is not properties and not isinstance(before, str) and not isinstance(properties, str):
            properties = {**before, **properties}
        found[name] = before if isinstance(before, str) else properties
    return found


@remembered(4096)
def _read(data: bytes, ccsid: int, byte_order: ByteOrder) -> tuple[str, FolderProperties]:
    """Return (name, properties) of a folder, or (name, reason) where the folder cannot be read.

    The reason is for callers that need the folder.
    """
    simple = _SIMPLE.fullmatch(data) if ccsid == CCSID_UTF8 else None
    found: dict[str, str] = {}
    if simple is not None:
        # Such are all folders that the bridge writes; the mqtt folder, with its message id, is never twice the same.
        name = simple[1].decode()
        for element, integer, text in _ELEMENT.findall(simple[2]):
            found[element.decode()] = str(int(integer)) if integer else text.decode()
    else:
        folder = Folder(data, ccsid, byte_order)
        name = folder.name
        try:
            _flatten(folder.content, "", found)
        except MalformedHeader as error:
            return name, f"folder {name} of the RFH2 cannot be read: {error}"
    if name == "usr":
        found = {user_name(element): value for element, value in found.items()}
    return name, found


def _flatten(content: Mapping[str, Value], prefix: str, found: dict[str, str]) -> None:
    for name, value in content.items():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                _flatten(item, f"{prefix}{name}.", found)
            elif item is not None:
                found[prefix + name] = as_text(item)


def as_text(value: Value) -> str:
    """Return the value of a property as text; bytes in hexadecimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


#: The folder, and the element in it.
FOLDER, ELEMENT = "mqbridge", "hops"
#: Name of the message property, and of the user property.
HOPS_PROPERTY = f"{FOLDER}.{ELEMENT}"


def mark_of(origin: str, mapping: str) -> str:
    """Return the mark that a mapping leaves: "queue manager/mapping"; neither name has a comma in it."""
    return f"{origin}/{mapping}"


def hops_text(hops: tuple[str, ...]) -> str:
    """Return the marks as text, oldest first."""
    return ",".join(hops)


@remembered(1024)
def hops_of(text: str) -> tuple[str, ...]:
    """Return the marks in a text that `hops_text` or somebody else wrote."""
    return tuple(mark for mark in (mark.strip() for mark in text.split(",")) if mark)


@lru_cache(maxsize=1024)
def hops_folder(hops: tuple[str, ...]) -> Folder:
    """Return the folder of an RFH2 that holds the marks."""
    return Folder.build(FOLDER, {ELEMENT: hops_text(hops)})


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
    return None if properties == _NO_PROPERTIES else properties


_NO_PROPERTIES: Final = PublishProperties()


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
    return None if properties == _NO_PROPERTIES else properties


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


@lru_cache(maxsize=4096)
def descriptor(
    user: bytes, persistence: int, expiry: int, priority: int = cmqc.MQPRI_PRIORITY_AS_Q_DEF,
    format: bytes = cmqc.MQFMT_RF_HEADER_2, ccsid: int = cmqc.MQCCSI_Q_MGR,
) -> MQMD:  # fmt: skip
    """Return the MQMD that messages of the same kind share."""
    return MQMD(
        Format=format,
        CodedCharSetId=ccsid,
        UserIdentifier=user,
        Priority=priority,
        Persistence=persistence,
        Expiry=expiry,
    )


def rfh2_of(
    publication: Publication,
    properties: Mapping[str, str],
    hops: tuple[str, ...],
    correl_id: bytes,
    *,
    mqps: tuple[str, bool] | None,
    original_topic: str = "",
    format: bytes | None = None,
    ccsid: int = CCSID_UTF8,
) -> bytes:
    """Encode the RFH2 with its folders mqtt, mqps, usr and mqbridge.

    `mqps` is the topic and whether it is retained; None: the folder is left to the queue manager. `correl_id` is
    that of the MQMD; Correlation Data that it does not hold are written here. `format` and `ccsid` are those of the body,
    None: as the Payload Format Indicator says. Raises Unmappable for what no RFH2 can hold (MQRC_RFH_FORMAT_ERROR).
    """
    try:
        folders = [Folder.build("mqtt", _mqtt_content(publication, properties, original_topic, correl_id))]
        if mqps is not None:
            folders.append(mqps_folder(*mqps, None))
        if properties:
            folders.append(Folder.build("usr", named((*properties.items(),))))
        if hops:
            folders.append(hops_folder(hops))
        return encode_rfh2(
            RFH2(
                Encoding=cmqc.MQENC_NATIVE,
                CodedCharSetId=ccsid,
                Format=body_format(publication.payload_format) if format is None else format,
                NameValueCCSID=CCSID_UTF8,
                folders=tuple(folders),
            )
        )
    except MalformedHeader as error:
        why = f"a property of the publication cannot be written in an RFH2: {error.rule}"
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why) from error


def message_properties(
    publication: Publication,
    properties: Mapping[str, str],
    hops: tuple[str, ...],
    correl_id: bytes,
    *,
    original_topic: str,
) -> dict[str, str | int | bool]:
    """Return the message properties that say what the RFH2 would say."""
    found: dict[str, str | int | bool] = {}
    for name, value in _mqtt_content(publication, properties, original_topic, correl_id).items():
        found[f"mqtt.{name}"] = value.value if isinstance(value, Typed) else value  # type: ignore[assignment]
    for name, text in properties.items():
        found[f"usr.{property_name(name)}"] = text
    if hops:
        found[HOPS_PROPERTY] = hops_text(hops)
    return found


def _mqtt_content(
    publication: Publication, properties: Mapping[str, str], original_topic: str, correl_id: bytes
) -> dict[str, Writable]:
    content = mqtt_content(publication.client_id or None, publication.qos, publication.message_id)
    if original_topic:
        content["topic"] = original_topic
    given = publication.correlation_data
    add_elements(
        content,
        correl_id,
        response_topic=publication.response_topic or None,
        content_type=publication.content_type or None,
        # A CorrelId that is not of Correlation Data, an empty element tells.
        correlation_data=given if given or correl_id != cmqc.MQCI_NONE else None,
        payload_format=publication.payload_format,
        user_property=publication.user_property and publication.user_property_with(properties),
    )
    return content
