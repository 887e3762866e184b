"""MQTT 5 properties in the MQMD and RFH2 of MQ messages: a table, a reader and writers.

`PROPERTIES` lists the properties of an MQTT 5 publication and their positions in a message. The Message Expiry Interval is
MQMD.Expiry. `Headers` is the only reader. Clients, links, YAML mappings, the archive, replays and Spark use it, and handle
malformed headers in the same way:

======================================================== ====================================
malformed                                                effect
======================================================== ====================================
property in the mqtt folder, usr folder                  ignored
mqps or mqtt folder, mqtt.qos                            MQRC_RFH_FORMAT_ERROR
mqbridge folder (needed to detect loops)                 MQRC_RFH_FORMAT_ERROR when it is read
any other folder that a mapping reads                    MQRC_RFH_FORMAT_ERROR when it is read
MQRFH2 (its fixed part, or the lengths of its folders)   MQRC_RFH_ERROR
any other header                                         MQRC_HEADER_ERROR
======================================================== ====================================

Source: IBM MQ documentation, "Integration of MQ Telemetry with queue managers" and "MQRFH2 - Rules and formatting header 2".
"""

from __future__ import annotations

import math
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
    MQDLH,
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
from bridge.wire.mq.headers import OTHER_KINDS, RFH2_FIXED_LENGTH

P = ParamSpec("P")
R = TypeVar("R")

#: The maximum length of a first argument whose result is cached.
MAX_CACHED_LENGTH = 1024


def remembered(entries: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Cache the last `entries` results of a function, except for first arguments longer than MAX_CACHED_LENGTH."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        cached = lru_cache(maxsize=entries)(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return (cached if len(args[0]) <= MAX_CACHED_LENGTH else function)(*args, **kwargs)  # type: ignore[arg-type]

        return call

    return decorate


# Names of user properties ---------------------------------------------------------------------------------------------


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_ESCAPE = re.compile(r"_x(?:([0-9A-F]{4})|([0-9A-F]{8}))_")
_TO_ESCAPE = re.compile(r"_(?=x(?:[0-9A-F]{4}|[0-9A-F]{8})_)|^[0-9$]|[^A-Za-z0-9_$]")


@remembered(1024)
def property_name(name: str) -> str:
    """Return the element name in the usr folder for the name of a user property, or `_x0000_` for an empty name."""
    if not name:
        return _EMPTY_NAME
    if _PLAIN.fullmatch(name) and "_x" not in name:
        return name
    return _TO_ESCAPE.sub(_escaped, name)


@remembered(1024)
def user_name(element: str) -> str:
    """Return the name of the user property for an element name in the usr folder."""
    if "_x" not in element:
        return element
    return "" if element == _EMPTY_NAME else _ESCAPE.sub(_character, element)


#: Unambiguous, because no name contains U+0000.
_EMPTY_NAME = "_x0000_"


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"_x{code:04X}_" if code <= 0xFFFF else f"_x{code:08X}_"


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF and code else match[0]


# The table --------------------------------------------------------------------------------------------------------------

#: The maximum length in bytes of an MQTT string or binary data (MQTT 5 sections 1.5.4 and 1.5.6).
MQTT_LENGTH: Final = 65_535


def is_mqtt_string(text: str) -> bool:
    """Return whether text fits a UTF-8 string of MQTT: at most 65,535 bytes, no U+0000 (MQTT 5 section 1.5.4)."""
    if "\0" in text or len(text) > MQTT_LENGTH:
        return False
    try:
        return len(text.encode()) <= MQTT_LENGTH
    except UnicodeEncodeError:  # a surrogate
        return False


class HeaderProperty(NamedTuple):
    """A property of an MQTT 5 publication, and its position in an MQ message."""

    #: its field in PublishProperties
    field: str
    #: its element in the mqtt folder, and its name in templates and JSON
    element: str
    #: its name in the specification
    title: str
    #: decodes an element, or None if MQTT does not allow the value
    read: Callable[[str, Headers], Any]
    #: encodes a value, given the CorrelId of the MQMD, or None if the message contains the value elsewhere
    write: Callable[[Any, bytes], Writable | None]
    #: reads the value from another part of the message if the element is missing or invalid
    elsewhere: Callable[[Headers], Any] | None = None
    #: converts the value to text for templates, or None if templates cannot use the property
    text: Callable[[Any], str] | None = None


def payload_format_of(format: bytes, ccsid: int) -> int | None:
    """Return the Payload Format Indicator of a body: 1 for text in UTF-8, otherwise None.

    Text in another CCSID is None too, because bodies are not converted for clients.
    """
    return 1 if format == cmqc.MQFMT_STRING and ccsid == CCSID_UTF8 else None


def correl_id_of(correlation_data: bytes | None) -> bytes:
    """Return the CorrelId for Correlation Data of 1 to 24 bytes, or MQCI_NONE for other Correlation Data."""
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
    """Encode Correlation Data that cannot be restored from the CorrelId without its trailing zeros."""
    return data.hex().upper() if not data or data != correl_id.rstrip(b"\0") else None


def _read_user_properties(text: str, headers: Headers) -> UserProperty | None:
    """Decode the pairs in order, or return None if an application has changed the usr folder."""
    try:
        pairs = msgspec.json.decode(text, type=UserProperty)
    except (ValueError, RecursionError):
        return None
    return _valid(pairs) if headers.folder("usr").items() <= dict(pairs).items() else None


def _write_user_properties(pairs: UserProperty, correl_id: bytes) -> str | None:
    """Encode the pairs if the usr folder cannot contain all of them because a name is repeated or too long."""
    return msgspec.json.encode(pairs).decode() if len(named(pairs)) < len(pairs) else None


def _valid(pairs: Iterable[tuple[str, str]]) -> UserProperty:
    return tuple([pair for pair in pairs if is_mqtt_string(pair[0]) and is_mqtt_string(pair[1])])


PROPERTIES: Final = (
    HeaderProperty("response_topic", "responseTopic", "Response Topic", read=_read_topic, write=_as_it_is, text=str),
    HeaderProperty(
        "correlation_data", "correlationData", "Correlation Data", read=_read_binary, write=_write_correlation_data,
        elsewhere=lambda headers: headers.md.CorrelId.rstrip(b"\0") or None,
        text=lambda data: data.hex().upper(),
    ),
    HeaderProperty("content_type", "contentType", "Content Type", read=_read_string, write=_as_it_is, text=str),
    HeaderProperty(
        "payload_format_indicator", "payloadFormatIndicator", "Payload Format Indicator",
        read=lambda text, headers: int(text) if text in ("0", "1") else None,
        write=lambda value, correl_id: Typed(0, "i4") if value == 0 else None,
        elsewhere=lambda headers: payload_format_of(headers.format, headers.ccsid),
    ),
    HeaderProperty(
        "user_property", "userProperties", "User Property", read=_read_user_properties, write=_write_user_properties,
        elsewhere=lambda headers: _valid(headers.folder("usr").items()) if headers.has_folder("usr") else (),
    ),
)  # fmt: skip
"""The properties that a message stores. Topic Alias and Subscription Identifier belong to one delivery."""

#: Field, element, title and text of the properties available in templates and Spark columns.
TEXT_PROPERTIES: Final = tuple(
    (header_property.field, header_property.element, header_property.title, header_property.text)
    for header_property in PROPERTIES
    if header_property.text is not None
)
_values_of: Final = attrgetter(*(header_property.field for header_property in PROPERTIES))
_texts_of: Final = attrgetter(
    *(header_property.field for header_property in PROPERTIES if header_property.text is not None)
)


def kept(properties: PublishProperties) -> PublishProperties | None:
    """Return the properties of a PUBLISH that its message stores in the RFH2, or None. The expiry is in the MQMD."""
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


#: Memory overhead in bytes of a message's properties, and of each user property, in addition to the characters.
_PROPERTIES_BYTES: Final = 250
_PAIR_BYTES: Final = 180

# Marks of mappings ------------------------------------------------------------------------------------------------------

#: The RFH2 folder and element.
FOLDER, ELEMENT = "mqbridge", "hops"
#: Name of the message property, and of the user property.
HOPS_PROPERTY = f"{FOLDER}.{ELEMENT}"
#: The element with the user of an MQTT client, for mappings with `as: publisher` on IBM MQ.
USER_ELEMENT: Final = "user"


def mark_of(origin: str, mapping: str) -> str:
    """Return the mark of a mapping: "queue manager/mapping". Neither name contains a comma."""
    return f"{origin}/{mapping}"


def hops_text(hops: tuple[str, ...]) -> str:
    """Join marks, oldest first."""
    return ",".join(hops)


@remembered(1024)
def hops_of(text: str) -> tuple[str, ...]:
    """Return the marks in a text from `hops_text` or an application."""
    return tuple(mark for mark in (mark.strip() for mark in text.split(",")) if mark)


# Reading ----------------------------------------------------------------------------------------------------------------

#: Formats of the headers that may precede the body of a message.
HEADER_FORMATS = frozenset(
    (cmqc.MQFMT_RF_HEADER_2, cmqc.MQFMT_XMIT_Q_HEADER, cmqc.MQFMT_DEAD_LETTER_HEADER, cmqc.MQFMT_MD_EXTENSION)
)
#: Formats of the headers that are removed from messages for MQTT clients (integration tables, "any other headers, are
#: discarded").
DISCARDED_FORMATS = HEADER_FORMATS | OTHER_KINDS.keys()

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class Headers:
    """The parsed headers of a message, and its body. Raises Unmappable (see the table above).

    `md` is the MQMD of the original message. After an MQXQH, it is the embedded MQMD with the Expiry of the outer one.
    `format`, `encoding` and `ccsid` describe the body. MQCCSI_Q_MGR is replaced by UTF-8, which the bridge uses.
    """

    __slots__ = (
        "_folders",
        "_properties",
        "body",
        "ccsid",
        "client_id",
        "dead_letter",
        "encoding",
        "format",
        "md",
        "packet_id",
        "qos",
        "retained",
        "topic",
        "user_data",
    )

    md: MQMD
    body: bytes
    format: bytes
    encoding: int
    ccsid: int
    #: mqtt.qos, or None if no MQTT client published the message
    qos: int | None
    #: mqps.Top, the topic string of the publication, or "" if absent
    topic: str
    #: mqps.Ret: the message is a retained publication
    retained: bool
    #: mqps.Sud, the user data of the subscription, or None if absent
    user_data: str | None
    #: mqtt.clientId, the publisher, or "" if absent
    client_id: str
    #: mqtt.msgid, or 0 if absent
    packet_id: int
    #: the first MQDLH
    dead_letter: MQDLH | None

    def __init__(self, message: Message, *, discard_others: bool = False) -> None:
        """Parse the headers of `message`. `discard_others` skips headers that the bridge does not support."""
        md = message.md
        self._folders: Mapping[str, _Content] = _EMPTY
        self._properties: PublishProperties | None = None
        self.qos, self.retained, self.packet_id = None, False, 0
        self.topic, self.user_data, self.client_id, self.dead_letter = "", None, "", None
        if md.Format not in (DISCARDED_FORMATS if discard_others else HEADER_FORMATS):
            self.md, self.body = md, message.data
            self.format, self.encoding, self.ccsid = md.Format, md.Encoding, md.CodedCharSetId or CCSID_UTF8
            return
        length = _length_of_only_header(md, message.data)
        if length:
            only = _read_only_header(message.data[:length], md.Encoding, md.CodedCharSetId)
            self.md, self.body = md, message.data[length:]
            self.format, self.encoding, self.ccsid = only.format, only.encoding, only.ccsid
            self._use(only.folders)
            return
        try:
            chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data, discard_others=discard_others)
        except MalformedHeader as error:
            reason = cmqc.MQRC_RFH_ERROR if error.structure == "MQRFH2" else cmqc.MQRC_HEADER_ERROR
            raise Unmappable(reason, f"a header of the message cannot be read: {error}") from error
        folders: tuple[Folder, ...] = ()
        for header in chain.headers:
            if isinstance(header, RFH2):
                folders += header.folders
            elif isinstance(header, MQDLH):
                self.dead_letter = self.dead_letter or header
            elif isinstance(header, MQXQH):
                md = msgspec.structs.replace(header.MsgDesc, Expiry=md.Expiry)
        self.md, self.body = md, chain.body
        self.format, self.encoding, self.ccsid = chain.Format, chain.Encoding, chain.CodedCharSetId or CCSID_UTF8
        if folders:
            self._use(_folder_properties(folders))

    def _use(self, folders: Mapping[str, _Content]) -> None:
        self._folders = folders
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
            self.packet_id = int(number) & 0xFFFF
        qos = mqtt.get("qos")
        if qos is not None:
            if qos.strip() not in ("0", "1", "2"):
                why = f"mqtt.qos is 0, 1 or 2 (integration table 2), not {qos.strip()[:20]!r}"
                raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why)
            self.qos = int(qos)

    def has_folder(self, name: str) -> bool:
        return name in self._folders

    def folder(self, name: str) -> Mapping[str, str]:
        """Return the properties in the folders with a name, as text by property name. Return none if the folder is missing.

        A property in a group is `group.name`. The last value of a repeated property wins. Nil properties are omitted. Names
        in the usr folder are unescaped (`user_name`). Raises Unmappable if the folder is malformed, except usr.
        """
        content = self._folders.get(name, _EMPTY)
        if not isinstance(content, str):
            return content
        if name == "usr":
            return _EMPTY
        raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, content)

    @property
    def properties(self) -> PublishProperties:
        """The valid MQTT 5 properties of the message."""
        if self._properties is None:
            mqtt = self.folder("mqtt")
            fields = {}
            for header_property in PROPERTIES:
                element = mqtt.get(header_property.element)
                value = None if element is None else header_property.read(element, self)
                if value is None and header_property.elsewhere is not None:
                    value = header_property.elsewhere(self)
                if value is not None and value != ():
                    fields[header_property.field] = value
            self._properties = PublishProperties(**fields) if fields else NO_PROPERTIES
        return self._properties

    @property
    def expiry(self) -> float | None:
        """Seconds until the message expires, or None if it does not expire."""
        return self.md.Expiry / 10 if self.md.Expiry >= 0 else None

    @property
    def user(self) -> bytes:
        """MQMD.UserIdentifier without trailing blanks and NULs."""
        return self.md.UserIdentifier.rstrip(b" \0")

    @property
    def publisher(self) -> str:
        """The user that the bridge has written into a publication of an MQTT client, or blank."""
        return self.folder(FOLDER).get(USER_ELEMENT, "")

    @property
    def hops(self) -> tuple[str, ...]:
        """The marks of the mappings that the message has passed through, oldest first."""
        return hops_of(self.folder(FOLDER).get(ELEMENT, ""))


def is_set(retained: object) -> bool:
    """Return whether a value of mqps.Ret, typed or as text, is true. None is false."""
    return str(retained).strip().lower() in ("1", "true")


#: Matches an ASCII folder of text and integers without groups, references or other attributes, and its elements.
_SIMPLE = re.compile(rb"<(\w++)>((?:<(\w++)(?: dt='i4'>[0-9]{1,9}|>[ !-%'-;=-~]*+)</\3>)*+)</\1> *+")
_ELEMENT = re.compile(rb"<(\w++)(?: dt='i4'>([0-9]++)|>([^<]*+))<")
#: name -> value as text, or the reason why the folder cannot be read
_Content = Mapping[str, str] | str


def _folder_properties(folders: Iterable[Folder]) -> dict[str, _Content]:
    """Return the contents of folders by name. Folders with the same name are merged. See `Headers.folder`."""
    contents: dict[str, _Content] = {}
    for folder in folders:
        name, properties = _read(folder.NameValueData, folder.NameValueCCSID, folder.byte_order)
        before = contents.get(name, properties)
        if before is not properties and not isinstance(before, str) and not isinstance(properties, str):
            properties = {**before, **properties}
        contents[name] = before if isinstance(before, str) else properties
    return contents


class _OnlyHeader(NamedTuple):
    """The content of the RFH2 of a message without other headers. The last three describe the body."""

    folders: Mapping[str, _Content]
    format: bytes
    encoding: int
    ccsid: int


def _length_of_only_header(md: MQMD, data: bytes) -> int:
    """Return the length of the RFH2 of a message if it is short and the only header, otherwise 0."""
    if md.Format != cmqc.MQFMT_RF_HEADER_2 or len(data) < RFH2_FIXED_LENGTH:
        return 0
    follower = data[20:28]
    if (
        follower.startswith(b"MQ") and follower.rstrip() != cmqc.MQFMT_STRING
    ):  # the formats of all headers begin with MQ
        return 0
    little = md.Encoding & cmqc.MQENC_INTEGER_MASK == cmqc.MQENC_INTEGER_REVERSED
    length = int.from_bytes(data[8:12], "little" if little else "big")
    return length if RFH2_FIXED_LENGTH <= length <= min(len(data), MAX_CACHED_LENGTH) else 0


@lru_cache(maxsize=1024)
def _read_only_header(header: bytes, encoding: int, ccsid: int) -> _OnlyHeader:
    """Parse an RFH2. The result is cached, because messages of one subscription often have equal RFH2s. Raises Unmappable."""
    try:
        chain = decode_chain(cmqc.MQFMT_RF_HEADER_2, encoding, ccsid, header)
    except MalformedHeader as error:
        raise Unmappable(cmqc.MQRC_RFH_ERROR, f"a header of the message cannot be read: {error}") from error
    folders: tuple[Folder, ...] = ()
    for part in chain.headers:
        if isinstance(part, RFH2):
            folders += part.folders
    return _OnlyHeader(_folder_properties(folders), chain.Format, chain.Encoding, chain.CodedCharSetId or CCSID_UTF8)


@remembered(4096)
def _read(data: bytes, ccsid: int, byte_order: ByteOrder) -> tuple[str, _Content]:
    """Return (name, properties) of a folder, or (name, reason) if it is malformed, for callers that need the folder."""
    simple = _SIMPLE.fullmatch(data) if ccsid == CCSID_UTF8 else None
    texts: dict[str, str] = {}
    if simple is not None:
        # A fast path, because the bridge writes simple folders, and caching is useless for the mqtt folder with its msgid.
        name = simple[1].decode()
        for element, integer, text in _ELEMENT.findall(simple[2]):
            texts[element.decode()] = str(int(integer)) if integer else text.decode()
    else:
        folder = Folder(data, ccsid, byte_order)
        name = folder.name
        try:
            _flatten(folder.content, "", texts)
        except MalformedHeader as error:
            return name, f"folder {name} of the RFH2 cannot be read: {error}"
    if name == "usr":
        texts = {user_name(element): value for element, value in texts.items()}
    return name, texts


def _flatten(content: Mapping[str, Value], prefix: str, texts: dict[str, str]) -> None:
    for name, value in content.items():
        for element in value if isinstance(value, list) else (value,):
            if isinstance(element, dict):
                _flatten(element, f"{prefix}{name}.", texts)
            elif element is not None:
                texts[prefix + name] = as_text(element)


def as_text(value: Value) -> str:
    """Return the value of a property as text. Bytes are hexadecimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


# Writing ----------------------------------------------------------------------------------------------------------------

#: The maximum MQMD.Expiry, in tenths of a second.
MAX_EXPIRY: Final = 999_999_999


def whole_seconds(expiry: float) -> int:
    """Return a remaining time as a Message Expiry Interval: seconds, rounded up.

    A tenth of a second or less counts as 0, because MQMD.Expiry cannot express 0. `expiry_of` stores it as the minimum of 1.
    """
    return math.ceil(expiry) if expiry > 0.1 else 0


def expiry_of(seconds: float | None) -> int:
    """Return MQMD.Expiry for an expiry in seconds, or for None (unlimited). The minimum is a tenth of a second."""
    return cmqc.MQEI_UNLIMITED if seconds is None else min(max(round(seconds * 10), 1), MAX_EXPIRY)


def requested(fields: Mapping[str, bytes | int]) -> dict[str, bytes | int]:
    """Return MQMD fields. If ReplyToQ is present, add the other fields of a request.

    If the request has a CorrelId, MQMD.Report asks the replying application to copy it.
    """
    if "ReplyToQ" not in fields:
        return dict(fields)
    report = cmqc.MQRO_PASS_CORREL_ID if "CorrelId" in fields else cmqc.MQRO_NONE
    return {**fields, "MsgType": cmqc.MQMT_REQUEST, "Report": report}


@lru_cache(maxsize=4096)
def descriptor(
    user: bytes,
    persistence: int,
    expiry: int,
    priority: int = cmqc.MQPRI_PRIORITY_AS_Q_DEF,
    format: bytes = cmqc.MQFMT_RF_HEADER_2,
    ccsid: int = cmqc.MQCCSI_Q_MGR,
) -> MQMD:
    """Return a cached MQMD, shared by messages with the same arguments."""
    return MQMD(
        Format=format,
        CodedCharSetId=ccsid,
        UserIdentifier=user,
        Priority=priority,
        Persistence=persistence,
        Expiry=expiry,
    )


def descriptor_with(md: MQMD, properties: PublishProperties, client_id: str) -> MQMD:
    """Return the MQMD of a client's message, with the fields that the properties determine. Return `md` itself without them.

    A message with a Response Topic is a request. The reply that is put to ReplyToQ at ReplyToQMgr, the client identifier,
    reaches the client as a direct message with that topic (integration table 4).
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
    """Return the Format of a body in CCSID 1208: MQFMT_STRING if the Payload Format Indicator is 1, otherwise MQFMT_NONE."""
    return cmqc.MQFMT_STRING if payload_format == 1 else cmqc.MQFMT_NONE


def named(user_property: UserProperty) -> dict[str, str]:
    """Return the elements of the usr folder and their values.

    The last value of a repeated name wins. Names that are too long for a message property are omitted.
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
def bridge_folder(hops: tuple[str, ...], user: str = "") -> Folder:
    """Return the mqbridge folder of an RFH2, which contains the marks or the user of an MQTT client."""
    return Folder.build(FOLDER, {USER_ELEMENT: user} if user else {ELEMENT: hops_text(hops)})


def _mqtt_content(
    client_id: str | None, qos: int, packet_id: int, properties: PublishProperties | None, correl_id: bytes, topic: str
) -> dict[str, Writable]:
    """Return the content of the mqtt folder. Wills and messages with QoS 0 have no packet identifier."""
    content: dict[str, Writable] = {}
    if client_id is not None:
        content["clientId"] = client_id
    content["qos"] = Typed(qos, "i4")
    if qos and packet_id:
        content["msgid"] = Typed(packet_id, "i4")
    if topic:
        content["topic"] = topic
    if properties is not None and properties is not NO_PROPERTIES:
        for header_property, value in zip(PROPERTIES, _values_of(properties), strict=True):
            if value is not None and (element := header_property.write(value, correl_id)) is not None:
                content[header_property.element] = element
    return content


def rfh2_of(
    client_id: str | None,
    qos: int,
    packet_id: int,
    properties: PublishProperties | None,
    correl_id: bytes = cmqc.MQCI_NONE,
    *,
    mqps: tuple[str, bool, str | None] | None = None,
    hops: tuple[str, ...] = (),
    user: str = "",
    original_topic: str = "",
    format: bytes | None = None,
    ccsid: int = CCSID_UTF8,
    encoding: int = cmqc.MQENC_NATIVE,
    typed: Mapping[str, Typed] | None = None,
) -> bytes:
    """Encode the RFH2 of a publication with its folders mqtt, mqps, usr and mqbridge.

    `mqps` contains topic, retained flag and user data, or None if the queue manager writes that folder. A publication of a
    client, which has no `hops`, may contain its `user`. Correlation Data that does not fit `correl_id`, the CorrelId of the
    MQMD, is stored in the RFH2. `format`, `ccsid` and `encoding` describe the body. A `format` of None is derived from the
    Payload Format Indicator. `typed` contains properties of the usr folder with types of their own, which replace User
    Properties. Raises Unmappable (MQRC_RFH_FORMAT_ERROR) for a value that an RFH2 cannot contain.
    """
    try:
        content = _mqtt_content(client_id, qos, packet_id, properties, correl_id, original_topic)
        folders = [Folder.build("mqtt", content)]
        if mqps is not None:
            folders.append(mqps_folder(*mqps))
        users: dict[str, Writable] = {}
        if properties is not None and properties.user_property:
            users.update(named(properties.user_property))
        if typed:
            users.update((property_name(name), value) for name, value in typed.items())
        if users:
            folders.append(Folder.build("usr", users))
        if hops or user:
            folders.append(bridge_folder(hops, user))
        if format is None:
            format = body_format(None if properties is None else properties.payload_format_indicator)
        return encode_rfh2(
            RFH2(
                Encoding=encoding,
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
    packet_id: int,
    properties: PublishProperties,
    correl_id: bytes,
    *,
    hops: tuple[str, ...],
    original_topic: str,
    typed: Mapping[str, Typed] | None = None,
) -> dict[str, str | int | bool | Typed]:
    """Return the message properties equivalent to the RFH2.

    Raises Unmappable for a text with U+0000, which MQSETMP rejects.
    """
    values: dict[str, str | int | bool | Typed] = {}
    for name, value in _mqtt_content(client_id, qos, packet_id, properties, correl_id, original_topic).items():
        values[f"mqtt.{name}"] = value.value if isinstance(value, Typed) else value  # type: ignore[assignment]
    for name, text in named(properties.user_property).items():
        values[f"usr.{name}"] = text
    for name, value in (typed or {}).items():
        values[f"usr.{property_name(name)}"] = value
    for name, property_ in values.items():
        content = property_.value if isinstance(property_, Typed) else property_
        if isinstance(content, str) and "\0" in content:
            raise Unmappable(cmqc.MQRC_PROP_VALUE_NOT_CONVERTED, f"property {name}: U+0000 cannot be written")
    if hops:
        values[HOPS_PROPERTY] = hops_text(hops)
    return values
