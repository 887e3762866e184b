"""What a message says beside its body, in whichever headers it stands: read once, each folder when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from bridge.mapping.hops import ELEMENT, FOLDER, hops_of
from bridge.mapping.message import CCSID_UTF8, Message
from bridge.mapping.property_name import user_name
from bridge.mapping.publication import Publication, Unmappable
from bridge.mapping.remembered import remembered
from bridge.mapping.telemetry.folders import HEADER_FORMATS, is_set, qos_in
from bridge.mapping.telemetry.qos import publication_qos
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, MQXQH, RFH2, ByteOrder, Folder, MalformedHeader, Value, decode_chain

#: A folder of text and integers without groups, references or other attributes, in ASCII; and an element of it.
_SIMPLE = re.compile(
    rb"<(\w++)>((?:<(\w++)(?: dt='i4'>[0-9]{1,9}|>[ !-%'-;=-~]*+)</\3>)*+)</\1> *+"
)
_ELEMENT = re.compile(rb"<(\w++)(?: dt='i4'>([0-9]++)|>([^<]*+))<")
#: name -> value as text; or why the folder cannot be read
_Properties = Mapping[str, str] | str
_NONE: Mapping[str, str] = MappingProxyType({})


class Envelope:
    """A message, walked to its body. Raises Unmappable where its headers cannot be read.

    `md` is the MQMD of the message itself: behind an MQXQH the one in it, with the Expiry of the one before. `format`,
    `encoding` and `ccsid` describe the body; a CCSID left to the queue manager is UTF-8, which the bridge writes.
    """

    __slots__ = ("_folders", "_properties", "_request", "body", "ccsid", "encoding", "format", "md")

    def __init__(self, message: Message, request: Message | None = None) -> None:
        """Walk the headers of `message` to its body.

        `request` is what is kept of the request that the message answers: where to answer is then for the request to say.
        """
        md = message.md
        self._request = Envelope(request) if request is not None else None
        self._folders: tuple[Folder, ...] = ()
        self._properties: dict[str, _Properties] | None = None
        if md.Format not in HEADER_FORMATS:
            self._set(md, message.data, md.Format, md.Encoding, md.CodedCharSetId)
            return
        try:
            chain = decode_chain(md.Format, md.Encoding, md.CodedCharSetId, message.data)
        except MalformedHeader as error:
            raise Unmappable(cmqc.MQRC_HEADER_ERROR, f"a header of the message cannot be read: {error}") from error
        for header in chain.headers:
            if isinstance(header, RFH2):
                self._folders += header.folders
            elif isinstance(header, MQXQH):
                md = msgspec.structs.replace(header.MsgDesc, Expiry=md.Expiry)
        self._set(md, chain.body, chain.Format, chain.Encoding, chain.CodedCharSetId)

    def _set(self, md: MQMD, body: bytes, format: bytes, encoding: int, ccsid: int) -> None:
        self.md, self.body = md, body
        self.format, self.encoding, self.ccsid = format, encoding, ccsid or CCSID_UTF8

    def properties(self, folder: str) -> Mapping[str, str]:
        """Return name -> value as text of the properties in the folders of that name; empty without such a folder.

        A property in a group is `group.name`; of one that is there twice the last value counts; one that is nil is
        none. Names in the usr folder are as the bridge reads them (:mod:`bridge.mapping.property_name`).
        """
        if self._properties is None:
            self._properties = _properties_of(self._folders)
        found = self._properties.get(folder, _NONE)
        if isinstance(found, str):
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, found)
        return found

    @property
    def qos(self) -> int | None:
        """Return mqtt.qos, which a message has that an MQTT client published; None where it is missing."""
        try:
            return qos_in(self.properties("mqtt").get("qos"))
        except MalformedHeader as error:
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, error.rule) from error

    @property
    def topic(self) -> str:
        """Return mqps.Top, the topic string that the message was published to; "" for none."""
        return self.properties("mqps").get("Top", "")

    @property
    def retained(self) -> bool:
        """Return whether mqps.Ret is set."""
        return is_set(self.properties("mqps").get("Ret"))

    @property
    def expiry(self) -> float | None:
        """Return the seconds until the message expires; None: never."""
        return self.md.Expiry / 10 if self.md.Expiry >= 0 else None

    @property
    def user(self) -> bytes:
        """Return MQMD.UserIdentifier without the blanks and NULs at its end."""
        return self.md.UserIdentifier.rstrip(b" \0")

    @property
    def hops(self) -> tuple[str, ...]:
        """Return the mappings that the message came through, oldest first."""
        return hops_of(self.properties(FOLDER).get(ELEMENT, ""))

    @property
    def is_answer(self) -> bool:
        """Return whether the request is known that the message answers."""
        return self._request is not None

    @property
    def response_topic(self) -> str:
        """Return mqtt.responseTopic of the message, or for an answer that of its request; "" for none."""
        return (self._request or self).properties("mqtt").get("responseTopic", "")

    @property
    def correlation_data(self) -> bytes:
        """Return mqtt.correlationData where the CorrelId could not hold it, or CorrelId without the NULs at its end.

        For an answer they are those of its request.
        """
        if self._request is not None:
            return self._request.correlation_data
        text = self.properties("mqtt").get("correlationData")
        if text is None:
            return self.md.CorrelId.rstrip(b"\0")
        try:
            return bytes.fromhex(text)
        except ValueError as error:
            why = f"mqtt.correlationData is hexadecimal, not {text[:20]!r}"
            raise Unmappable(cmqc.MQRC_RFH_FORMAT_ERROR, why) from error


def publication_of(
    message: Message, *, topic: str | None = None, retained: bool | None = None
) -> Publication:
    """Return the publication that a message was made of, or would be: the reverse of integration table 2.

    `topic` and `retained` say what is known of them from elsewhere than the RFH2. Raises Unmappable where headers
    cannot be read.
    """
    envelope = Envelope(message)
    mqtt = envelope.properties("mqtt")
    message_id = mqtt.get("msgid", "")
    return Publication(
        topic=topic if topic is not None else envelope.topic,
        payload=envelope.body,
        qos=publication_qos(envelope.md.Persistence, envelope.qos),
        retain=retained if retained is not None else envelope.retained,
        message_id=int(message_id) if message_id.isdecimal() else 0,
        client_id=mqtt.get("clientId", ""),
        user=envelope.user,
        expiry=envelope.expiry,
        response_topic=envelope.response_topic,
        correlation_data=envelope.correlation_data,
        content_type=mqtt.get("contentType", ""),
        properties=dict(envelope.properties("usr")),
        hops=envelope.hops,
    )


def _properties_of(folders: Iterable[Folder]) -> dict[str, _Properties]:
    found: dict[str, _Properties] = {}
    for folder in folders:
        name, properties = _read(folder.NameValueData, folder.NameValueCCSID, folder.byte_order)
        before = found.get(name, properties)
        if before is not properties and not isinstance(before, str) and not isinstance(properties, str):
            properties = {**before, **properties}
        found[name] = before if isinstance(before, str) else properties
    return found


@remembered(4096)
def _read(data: bytes, ccsid: int, byte_order: ByteOrder) -> tuple[str, _Properties]:
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
                found[prefix + name] = _as_text(item)


def _as_text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
