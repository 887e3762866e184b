"""MQTT 5 properties in MQ messages: one table, and what reads and writes the MQMD and RFH2 of messages by it.

`PROPERTIES` lists the properties of an MQTT 5 publication, each with its place in a message. The Message Expiry Interval is
MQMD.Expiry. `Headers` is the only reader. Clients, links, YAML mappings, the archive, replays and Spark use it, and get
the same answer to a malformed header:

======================================================== ====================================
malformed                                                answer
======================================================== ====================================
property in the mqtt folder, usr folder                  left out, as if it were not there
mqps or mqtt folder, mqtt.qos                            MQRC_RFH_FORMAT_ERROR
mqbridge folder (needed to detect loops)                 MQRC_RFH_FORMAT_ERROR when it is read
any other folder that a mapping names                    MQRC_RFH_FORMAT_ERROR when it is read
MQRFH2 (its fixed part, or the lengths of its folders)   MQRC_RFH_ERROR
any other header                                         MQRC_HEADER_ERROR
======================================================== ====================================

Source: IBM MQ documentation, "Integration of MQ Telemetry with queue managers" and "MQRFH2 - Rules and formatting header 2".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, wraps
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import msgspec

from bridge.mqtt.packets import PublishProperties, UserProperty
from bridge.telemetry.message import CCSID_UTF8, NO_PROPERTIES, Message, Unmappable
from bridge.telemetry.request import CORREL_ID_LENGTH, request_to_keep
from bridge.wire import cmqc
from bridge.wire.mq import (
    MQMD,
    MQXQH,
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


# Names of user properties ---------------------------------------------------------------------------------------------


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
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


# The table --------------------------------------------------------------------------------------------------------------

#: Bytes of a string or of binary data of MQTT (MQTT 5 sections 1.5.4 and 1.5.6).
MQTT_LENGTH: Final = 65_535


def is_mqtt_string(text: str) -> bool:
    """Return whether text fits a UTF-8 string of MQTT: at most 65,535 bytes, no U+0000 (MQTT 5 section 1.5.4)."""
    if "\0" in text or len(text) > MQTT_LENGTH:
        return False
    try:
        return len(text.encode()) <= MQTT_LENGTH
    except UnicodeEncodeError:  # a surrogate
        return False


class Property(NamedTuple):
    """A property of an MQTT 5 publication, and its place in an MQ message."""

    #: its field in PublishProperties
    field: str
    #: its element in the mqtt folder, and its name in templates and JSON
    element: str
    #: its name in the specification
    title: str
    #: the value of an element; None: MQTT does not allow it
    read: Callable[[str, Headers], Any]
    #: the element for a value and the CorrelId of the MQMD; None: the message has the value elsewhere
    write: Callable[[Any, bytes], Writable | None]
    #: the value of a message without a valid element; None: such a message does not have the property
    elsewhere: Callable[[Headers], Any] | None = None
    #: the value as text, for templates; None: templates do not have it
    text: Callable[[Any], str] | None = None


def payload_format_of(format: bytes, ccsid: int) -> int | None:
    """Return the Payload Format Indicator of a body: 1 for text in UTF-8, None for any other.

    None also for text in another CCSID: clients get bodies unconverted.
    """
    return 1 if format == cmqc.MQFMT_STRING and ccsid == CCSID_UTF8 else None


def correl_id_of(correlation_data: bytes | None) -> bytes:
    """Return the CorrelId that holds Correlation Data of 1 to 24 bytes; MQCI_NONE for other Correlation Data."""
    if correlation_data is None or len(correlation_data) > CORREL_ID_LENGTH:
        return cmqc.MQCI_NONE
    return correlation_data.ljust(CORREL_ID_LENGTH, b"\0")


def _as_it_is(value: Any, correl_id: bytes) -> Any:
    return value


def _read_string(text: str, headers: Headers) -> str | None:
    return text if is_mqtt_string(text) else None


def _read_topic(text: str, headers: Headers) -> str | None:
    if not text or "+" in text or "#" in text:  # MQTT-4.7.3-1, MQTT-3.3.2-14
        return None
    return _read_string(text, headers)


def _read_binary(text: str, headers: Headers) -> bytes | None:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    return data if len(data) <= MQTT_LENGTH else None


def _write_correlation_data(data: bytes, correl_id: bytes) -> str | None:
    """Write Correlation Data that the CorrelId does not hold, or not in a way that shows their end."""
    return data.hex().upper() if not data or data != correl_id.rstrip(b"\0") else None


def _read_user_properties(text: str, headers: Headers) -> UserProperty | None:
    """Read the pairs in their order, unless an application has written another usr folder since."""
    try:
        pairs = msgspec.json.decode(text, type=UserProperty)
    except (ValueError, RecursionError):
        return None
    return _valid(pairs) if headers.folder("usr").items() <= dict(pairs).items() else None


def _write_user_properties(pairs: UserProperty, correl_id: bytes) -> str | None:
    """Write the pairs if the usr folder does not hold all of them: a name comes twice or is too long."""
    return msgspec.json.encode(pairs).decode() if len(named(pairs)) < len(pairs) else None


def _valid(pairs: Iterable[tuple[str, str]]) -> UserProperty:
    return tuple([pair for pair in pairs if is_mqtt_string(pair[0]) and is_mqtt_string(pair[1])])


PROPERTIES: Final = (
    Property("response_topic", "responseTopic", "Response Topic", read=_read_topic, write=_as_it_is, text=str),
    Property(
        "correlation_data", "correlationData", "Correlation Data", read=_read_binary, write=_write_correlation_data,
        elsewhere=lambda headers: headers.md.CorrelId.rstrip(b"\0") or None,
        text=lambda data: data.hex().upper(),
    ),
    Property("content_type", "contentType", "Content Type", read=_read_string, write=_as_it_is, text=str),
    Property(
        "payload_format_indicator", "payloadFormatIndicator", "Payload Format Indicator",
        read=lambda text, headers: int(text) if text in ("0", "1") else None,
        write=lambda value, correl_id: Typed(0, "i4") if value == 0 else None,
        elsewhere=lambda headers: payload_format_of(headers.format, headers.ccsid),
    ),
    Property(
        "user_property", "userProperties", "User Property", read=_read_user_properties, write=_write_user_properties,
        elsewhere=lambda headers: _valid(headers.folder("usr").items()) if headers.has_folder("usr") else (),
    ),
)  # fmt: skip
"""The properties that a message keeps. Topic Alias and Subscription Identifier belong to one delivery."""

#: Field, element, title and text of those that templates and columns of Spark have.
TEXT_PROPERTIES: Final = tuple((one.field, one.element, one.title, one.text) for one in PROPERTIES if one.text is not None)
_values_of: Final = attrgetter(*(one.field for one in PROPERTIES))
_texts_of: Final = attrgetter(*(one.field for one in PROPERTIES if one.text is not None))


def kept(properties: PublishProperties) -> PublishProperties | None:
    """Return the properties of a PUBLISH that its message keeps; None for none. The expiry is in the MQMD, and runs down."""
    if properties.message_expiry_interval is not None or properties.topic_alias or properties.subscription_identifier:
        properties = msgspec.structs.replace(
            properties, message_expiry_interval=None, topic_alias=None, subscription_identifier=()
        )
    return None if properties == NO_PROPERTIES else properties


def size_of_properties(properties: PublishProperties) -> int:
    """Return the approximate number of bytes that properties take in memory."""
    size = _PROPERTIES_BYTES
    for text in _texts_of(properties):
        if text:
            size += len(text)
    for name, value in properties.user_property:
        size += _PAIR_BYTES + len(name) + len(value)
    return size


#: What Python takes for the properties of a message, and for each pair among them, beside the characters.
_PROPERTIES_BYTES: Final = 250
_PAIR_BYTES: Final = 180

# Marks of mappings ------------------------------------------------------------------------------------------------------

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


# Reading ----------------------------------------------------------------------------------------------------------------

#: Formats of the headers that stand before the body of a message.
HEADER_FORMATS = frozenset(
    (cmqc.MQFMT_RF_HEADER_2, cmqc.MQFMT_XMIT_Q_HEADER, cmqc.MQFMT_DEAD_LETTER_HEADER, cmqc.MQFMT_MD_EXTENSION)
)
#: Formats of the headers that are removed from messages for MQTT clients (integration tables: "any other headers, are
#: discarded").
DISCARDED_FORMATS = HEADER_FORMATS | OTHER_KINDS.keys()

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class Headers:
    """The headers of a message, read once, and its body. Raises Unmappable (see the table above).

    `md` is the MQMD of the message itself: behind an MQXQH the one in it, with the Expiry of the one before. `format`,
    `encoding` and `ccsid` describe the body. A CCSID left to the queue manager is UTF-8, which the bridge writes.
    """

    __slots__ = (
        "_folders", "_properties", "body", "ccsid", "client_id", "encoding", "format", "md", "message_id", "qos", "retained",
        "topic", "user_data",
    )  # fmt: skip

    md: MQMD
    body: bytes
    format: bytes
    encoding: int
    ccsid: int
    #: mqtt.qos: a message has it that an MQTT client published
    qos: int | None
    #: mqps.Top, the topic string that the message was published to; "" for none
    topic: str
    #: mqps.Ret: the message comes as a retained publication
    retained: bool
    #: mqps.Sud, the user data of the subscription that the message came for
    user_data: str | None
    #: mqtt.clientId, the client that published the message; "" for none
    client_id: str
    #: mqtt.msgid; 0 for none
    message_id: int

    def __init__(self, message: Message, *, discard_others: bool = False) -> None:
        """Walk the headers of `message` to its body; `discard_others`: also those that the bridge cannot read."""
        md = message.md
        self._folders: Mapping[str, _Content] = _EMPTY
        self._properties: PublishProperties | None = None
        self.qos, self.retained, self.message_id = None, False, 0
        self.topic, self.user_data, self.client_id = "", None, ""
        if md.Format not in (DISCARDED_FORMATS if discard_others else HEADER_FORMATS):
            self.md, self.body = md, message.data
            self.format, self.encoding, self.ccsid = md.Format, md.Encoding, md.CodedCharSetId or CCSID_UTF8
            return
        try:
            chain = decode_chain(
                md.Format, md.Encoding, md.CodedCharSetId, message.data, discard_others=discard_others
            )
        except MalformedHeader as error:
            reason = cmqc.MQRC_RFH_ERROR if error.structure == "MQRFH2" else cmqc.MQRC_HEADER_ERROR
            raise Unmappable(reason, f"a header of the message cannot be read: {error}") from error
        folders: tuple[Folder, ...] = ()
        for header in chain.headers:
            if isinstance(header, RFH2):
                folders += header.folders
            elif isinstance(header, MQXQH):
                md = msgspec.structs.replace(header.MsgDesc, Expiry=md.Expiry)
        self.md, self.body = md, chain.body
        self.format, self.encoding, self.ccsid = chain.Format, chain.Encoding, chain.CodedCharSetId or CCSID_UTF8
        if folders:
            self._folders = _folder_properties(folders)
            self._read_mqps(self.folder("mqps"))
            self._read_mqtt(self.folder("mqtt"))

    def _read_mqps(self, mqps: Mapping[str, str]) -> None:
        if mqps:
            self.topic = mqps.get("Top", "")
            self.retained = is_set(mqps.get("Ret"))
            self.user_data = mqps.get("Sud")

    def _read_mqtt(self, mqtt: Mapping[str, str]) -> None:
        if not mqtt:
            return
        self.client_id = mqtt.get("clientId", "")
        number = mqtt.get("msgid", "").strip()
        if number.isascii() and number.isdecimal() and len(number) <= 5:
            self.message_id = int(number) & 0xFFFF
        qos = mqtt.get("qos")
        if qos is not None:
            if qos.strip() not in ("0", "1", "2"):
                why = f"mqtt.qos is 0, 1 or 2 (integration table 2), not {qos.strip()[:20]!r}"
                raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why)
            self.qos = int(qos)

    def has_folder(self, name: str) -> bool:
        """Return whether there is a folder of that name."""
        return name in self._folders

    def folder(self, name: str) -> Mapping[str, str]:
        """Return name -> value as text of the properties in the folders of that name; empty without such a folder.

        A property in a group is `group.name`; of one that is there twice the last value counts; one that is nil is left
        out. Names in the usr folder are unescaped (`user_name`).
        """
        content = self._folders.get(name, _EMPTY)
        if not isinstance(content, str):
            return content
        if name == "usr":
            return _EMPTY
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, content)

    @property
    def properties(self) -> PublishProperties:
        """The properties of MQTT 5 that the message has; invalid ones are left out."""
        if self._properties is None:
            mqtt = self.folder("mqtt")
            found = {}
            for one in PROPERTIES:
                element = mqtt.get(one.element)
                value = None if element is None else one.read(element, self)
                if value is None and one.elsewhere is not None:
                    value = one.elsewhere(self)
                if value is not None and value != ():
                    found[one.field] = value
            self._properties = PublishProperties(**found) if found else NO_PROPERTIES
        return self._properties

    @property
    def expiry(self) -> float | None:
        """The seconds until the message expires; None: never."""
        return self.md.Expiry / 10 if self.md.Expiry >= 0 else None

    @property
    def user(self) -> bytes:
        """MQMD.UserIdentifier without the blanks and NULs at its end."""
        return self.md.UserIdentifier.rstrip(b" \0")

    @property
    def hops(self) -> tuple[str, ...]:
        """The mappings that the message came through, oldest first."""
        return hops_of(self.folder(FOLDER).get(ELEMENT, ""))


def is_set(retained: object) -> bool:
    """Return whether mqps.Ret, typed or as text, says that the message comes as a retained publication; None: no."""
    return str(retained).strip().lower() in ("1", "true")


#: A folder of text and integers without groups, references or other attributes, in ASCII; and an element of it.
_SIMPLE = re.compile(
    rb"<(\w++)>((?:<(\w++)(?: dt='i4'>[0-9]{1,9}|>[ !-%'-;=-~]*+)</\3>)*+)</\1> *+"
)
_ELEMENT = re.compile(rb"<(\w++)(?: dt='i4'>([0-9]++)|>([^<]*+))<")
#: name -> value as text; or why the folder cannot be read
_Content = Mapping[str, str] | str


def _folder_properties(folders: Iterable[Folder]) -> dict[str, _Content]:
    """Return what folders say, by name; of those with one name, what they say together.

    A property in a group is `group.name`; of one that is there twice the last value counts; one that is nil is left
    out. Names in the usr folder are unescaped (`user_name`).
    """
    found: dict[str, _Content] = {}
    for folder in folders:
        name, properties = _read(folder.NameValueData, folder.NameValueCCSID, folder.byte_order)
        before = found.get(name, properties)
        if before is not properties and not isinstance(before, str) and not isinstance(properties, str):
            properties = {**before, **properties}
        found[name] = before if isinstance(before, str) else properties
    return found


@remembered(4096)
def _read(data: bytes, ccsid: int, byte_order: ByteOrder) -> tuple[str, _Content]:
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


# Writing ----------------------------------------------------------------------------------------------------------------

#: Expiry of the MQMD in tenths of a second, at most.
MAX_EXPIRY: Final = 999_999_999


def expiry_of(seconds: float | None) -> int:
    """Return MQMD.Expiry for an expiry in seconds, None being never.

    A publication that expires at once has a tenth of a second left.
    """
    return cmqc.MQEI_UNLIMITED if seconds is None else min(max(round(seconds * 10), 1), MAX_EXPIRY)


def requested(fields: Mapping[str, bytes | int]) -> dict[str, bytes | int]:
    """Return fields of an MQMD, which with a ReplyToQ become those of a request.

    The application that answers keeps the CorrelId of the request where there is one to keep (MQMD.Report).
    """
    if "ReplyToQ" not in fields:
        return dict(fields)
    report = cmqc.MQRO_PASS_CORREL_ID if "CorrelId" in fields else cmqc.MQRO_NONE
    return {**fields, "MsgType": cmqc.MQMT_REQUEST, "Report": report}


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


def descriptor_with(md: MQMD, properties: PublishProperties, client_id: str) -> MQMD:
    """Return the MQMD of a client's message with the fields that properties prescribe; the very same for none.

    With a Response Topic the message is a request: an answer that is put to ReplyToQ, with the client identifier as
    ReplyToQMgr, reaches the client as a direct message with that topic (integration table 4).
    """
    fields: dict[str, int | bytes] = {}
    if properties.message_expiry_interval is not None:
        fields["Expiry"] = expiry_of(properties.message_expiry_interval)
    correl_id = correl_id_of(properties.correlation_data)
    if correl_id != cmqc.MQCI_NONE:
        fields["CorrelId"] = correl_id
    topic = properties.response_topic
    if topic and client_id:
        request = request_to_keep(properties)
        fields["ReplyToQ"] = (topic if request is None else request.queue).encode()
        fields["ReplyToQMgr"] = client_id.encode()
    return msgspec.structs.replace(md, **requested(fields)) if fields else md


def body_format(payload_format: int | None) -> bytes:
    """Return the Format of a body, in CCSID 1208: a Payload Format Indicator of 1 says that it is UTF-8."""
    return cmqc.MQFMT_STRING if payload_format == 1 else cmqc.MQFMT_NONE


def named(user_property: UserProperty) -> dict[str, str]:
    """Return element -> value of the usr folder.

    Of a name that comes twice it has the last value; a name that is too long for a message property is not in it.
    """
    return {
        element: value
        for name, value in user_property
        if len(element := property_name(name)) <= cmqc.MQ_MAX_PROPERTY_NAME_LENGTH
    }


@remembered(4096)
def mqps_folder(topic: str, retained: bool, user_data: str | None) -> Folder:
    """Return the `mqps` folder of a publication: MQTopicString, MQSubUserData and MQIsRetained."""
    content: dict[str, Writable] = {"Top": topic}
    if user_data is not None:
        content["Sud"] = user_data
    if retained:
        content["Ret"] = True
    return Folder.build("mqps", content)


@lru_cache(maxsize=1024)
def hops_folder(hops: tuple[str, ...]) -> Folder:
    """Return the folder of an RFH2 that holds the marks."""
    return Folder.build(FOLDER, {ELEMENT: hops_text(hops)})


def _mqtt_content(
    client_id: str | None, qos: int, message_id: int, properties: PublishProperties | None, correl_id: bytes, topic: str
) -> dict[str, Writable]:
    """Return the content of the mqtt folder. A will has a QoS but no message id; with QoS 0 there is none."""
    content: dict[str, Writable] = {}
    if client_id is not None:
        content["clientId"] = client_id
    content["qos"] = Typed(qos, "i4")
    if qos and message_id:
        content["msgid"] = Typed(message_id, "i4")
    if topic:
        content["topic"] = topic
    if properties is not None and properties is not NO_PROPERTIES:
        for one, value in zip(PROPERTIES, _values_of(properties), strict=True):
            if value is not None and (element := one.write(value, correl_id)) is not None:
                content[one.element] = element
    return content


def rfh2_of(
    client_id: str | None,
    qos: int,
    message_id: int,
    properties: PublishProperties | None,
    correl_id: bytes = cmqc.MQCI_NONE,
    *,
    mqps: tuple[str, bool, str | None] | None = None,
    hops: tuple[str, ...] = (),
    original_topic: str = "",
    format: bytes | None = None,
    ccsid: int = CCSID_UTF8,
) -> bytes:
    """Encode the RFH2 of a publication with its folders mqtt, mqps, usr and mqbridge.

    `mqps` are the topic, whether it is retained, and the user data; None if the queue manager writes that folder. `correl_id`
    is that of the MQMD: Correlation Data that it does not hold are written here. `format` and `ccsid` are those of the body;
    `format` None: as the Payload Format Indicator says.
    Raises Unmappable (MQRC_RFH_FORMAT_ERROR) for a value that no RFH2 can hold.
    """
    try:
        content = _mqtt_content(client_id, qos, message_id, properties, correl_id, original_topic)
        folders = [Folder.build("mqtt", content)]
        if mqps is not None:
            folders.append(mqps_folder(*mqps))
        if properties is not None and properties.user_property and (users := named(properties.user_property)):
            folders.append(Folder.build("usr", users))
        if hops:
            folders.append(hops_folder(hops))
        if format is None:
            format = body_format(None if properties is None else properties.payload_format_indicator)
        return encode_rfh2(
            RFH2(
                Encoding=cmqc.MQENC_NATIVE,
                CodedCharSetId=ccsid,
                Format=format,
                NameValueCCSID=CCSID_UTF8,
                folders=tuple(folders),
            )
        )
    except MalformedHeader as error:
        why = f"a property of the publication cannot be written in an RFH2: {error.rule}"
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why) from error


def message_properties(
    client_id: str | None,
    qos: int,
    message_id: int,
    properties: PublishProperties,
    correl_id: bytes,
    *,
    hops: tuple[str, ...],
    original_topic: str,
) -> dict[str, str | int | bool]:
    """Return the message properties that say what the RFH2 would say."""
    found: dict[str, str | int | bool] = {}
    for name, value in _mqtt_content(client_id, qos, message_id, properties, correl_id, original_topic).items():
        found[f"mqtt.{name}"] = value.value if isinstance(value, Typed) else value  # type: ignore[assignment]
    for name, text in named(properties.user_property).items():
        found[f"usr.{name}"] = text
    if hops:
        found[HOPS_PROPERTY] = hops_text(hops)
    return found
