"""The values of names in templates and filters, for one message.

Captures take precedence over `topic`, `clientId`, `qos`, `messageId`, `retained`, `user`, `text` (the payload) and the MQTT 5
properties with a text value (`bridge.telemetry.headers.TEXT_PROPERTIES`). `folder.name` is a message property, `md.CorrelId`
a field of the MQMD, and any other word a property in the usr folder. An empty word or MQMD field counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bridge.mapping.payload import document_of, text_of, utf_8
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import ELEMENT, FOLDER, TEXT_PROPERTIES, Headers, hops_text
from bridge.telemetry.message import CCSID_UTF8, Publication
from bridge.wire.mq import MQMD

#: MQBYTEn fields. The other fields of type bytes are MQCHARn.
BYTE_FIELDS = frozenset(("MsgId", "CorrelId", "AccountingToken", "GroupId"))


class PublicationScope:
    """The names available in a mapping to MQ."""

    __slots__ = ("_captures", "_document", "_user_properties", "publication")

    def __init__(self, publication: Publication, captures: Mapping[str, str]) -> None:
        self.publication = publication
        self._captures = captures
        self._document: Any = _UNREAD
        self._user_properties: dict[str, str] | None = None

    def __call__(self, name: str) -> str | None:
        if name in self._captures:
            return self._captures[name]
        word = _OF_PUBLICATION.get(name)
        if word is not None:
            return word(self.publication) or None
        folder, dot, rest = name.partition(".")
        if dot and folder != "usr":
            return None
        if self._user_properties is None:
            self._user_properties = self.publication.user_properties
        return self._user_properties.get(rest if dot else name)

    @property
    def qos(self) -> int:
        """The QoS of the publication."""
        return self.publication.qos

    @property
    def retained(self) -> bool:
        """Whether the publication has the RETAIN flag."""
        return self.publication.retain

    @property
    def size(self) -> int:
        """The size of the payload in bytes."""
        return len(self.publication.payload)

    @property
    def document(self) -> Any:
        """The payload parsed as JSON, cached. Raises Unmappable."""
        if self._document is _UNREAD:
            self._document = document_of(self.publication.payload)
        return self._document


class MessageScope:
    """The names available in a mapping to MQTT."""

    __slots__ = ("_captures", "_document", "_text", "ccsid", "headers", "properties", "qos", "topic")

    def __init__(
        self, headers: Headers, captures: Mapping[str, str], properties: PublishProperties, *,
        topic: str, qos: int, ccsid: int | None,
    ) -> None:  # fmt: skip
        self.headers = headers
        #: MQTT 5 properties: of the message, or for an answer those that its request specifies
        self.properties = properties
        self._captures = captures
        self.topic = topic
        #: that of the MQTT client that published the message, otherwise derived from its persistence
        self.qos = qos
        #: of the body, as specified by the mapping, otherwise by the message
        self.ccsid = ccsid or headers.ccsid
        self._text: str | None = None
        self._document: Any = _UNREAD

    def __call__(self, name: str) -> str | None:
        if name in self._captures:
            return self._captures[name]
        word = _OF_MESSAGE.get(name)
        if word is not None:
            return word(self) or None
        folder, dot, rest = name.partition(".")
        if not dot:
            return self.headers.folder("usr").get(name)
        if folder == "md":
            return field_text(self.headers.md, rest) or None
        return self.headers.folder(folder).get(rest)

    @property
    def retained(self) -> bool:
        """Whether the message is a retained publication."""
        return self.headers.retained

    @property
    def size(self) -> int:
        """The size of the body in bytes."""
        return len(self.headers.body)

    @property
    def text(self) -> str:
        """The decoded body, cached. Raises Unmappable."""
        if self._text is None:
            self._text = text_of(self.headers.body, self.ccsid, self.headers.encoding)
        return self._text

    @property
    def document(self) -> Any:
        """The body parsed as JSON, cached. Raises Unmappable."""
        if self._document is _UNREAD:
            self._document = document_of(utf_8(self.headers.body, self.ccsid, self.headers.encoding))
        return self._document


def field_text(md: MQMD, field: str) -> str:
    """Return a field of an MQMD as text.

    Bytes become hexadecimal, numbers decimal. Characters lose trailing blanks and NULs.
    """
    value = getattr(md, field)
    if field in BYTE_FIELDS:
        return str(value.hex().upper())
    return value.rstrip(b" \0").decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_UNREAD = object()

_OF_PUBLICATION: dict[str, Callable[[Publication], str]] = {
    "topic": lambda publication: publication.topic,
    "clientId": lambda publication: publication.client_id,
    "qos": lambda publication: str(publication.qos),
    "messageId": lambda publication: str(publication.message_id or ""),
    "retained": lambda publication: "true" if publication.retain else "false",
    "user": lambda publication: publication.user.decode("utf-8", "replace"),
    "text": lambda publication: text_of(publication.payload, CCSID_UTF8),
    # the same values, under their names as message properties
    "mqtt.clientId": lambda publication: publication.client_id,
    "mqtt.qos": lambda publication: str(publication.qos),
    "mqtt.msgid": lambda publication: str(publication.message_id or ""),
    "mqps.Top": lambda publication: publication.topic,
    "mqps.Ret": lambda publication: "true" if publication.retain else "",
    f"{FOLDER}.{ELEMENT}": lambda publication: hops_text(publication.hops),
}



def _property(field: str, text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that returns a property of a publication or a MessageScope as text."""

    def value_of(source: Any) -> str:
        value = getattr(source.properties, field)
        return "" if value is None else text(value)

    return value_of


for _field, _element, _title, _text in TEXT_PROPERTIES:
    _OF_PUBLICATION[_element] = _OF_PUBLICATION[f"mqtt.{_element}"] = _property(_field, _text)

#: The names of a publication, except captures and User Properties.
PUBLICATION_NAMES = frozenset(_OF_PUBLICATION)

_OF_MESSAGE: dict[str, Callable[[MessageScope], str]] = {
    "topic": lambda scope: scope.topic,
    "clientId": lambda scope: scope.headers.client_id,
    "qos": lambda scope: str(scope.qos),
    "messageId": lambda scope: str(scope.headers.message_id or ""),
    "retained": lambda scope: "true" if scope.headers.retained else "false",
    "user": lambda scope: scope.headers.user.decode("utf-8", "replace"),
    "text": lambda scope: scope.text,
}
for _field, _element, _title, _text in TEXT_PROPERTIES:
    _OF_MESSAGE[_element] = _property(_field, _text)
