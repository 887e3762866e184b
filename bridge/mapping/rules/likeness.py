"""What a rule maps alike: what it has made of one publication or message serves the next, with another payload.

Devices publish to the same topics all day, and applications put the same kind of message. Whatever a rule looks at
(`bridge.mapping.rules.dependence`) is the same then, and so is all that it makes of it: of a publication destination, MQMD
and RFH2, but for the digits of mqtt.msgid; of a message without headers everything but the payload.
"""

from __future__ import annotations

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.message import Message
from bridge.mapping.publication import MappedMessage, Publication
from bridge.mapping.rules.dependence import dependence_of
from bridge.mapping.telemetry.folders import HEADER_FORMATS

#: Kinds that are remembered; then all are forgotten, for they come again.
MOST = 8192

_MSGID = b"<msgid"

#: What publications of one kind have in common; the length of their message ids decides of the RFH2's padding.
Kind = tuple[object, ...]


class _Pattern(msgspec.Struct, gc=False):
    """A message without its message id and payload."""

    mapped: MappedMessage
    #: the RFH2 up to the digits of mqtt.msgid, and from there on; without a message id all of it
    before: bytes
    behind: bytes


class PublicationLikeness:
    """What the rule of one mapping to MQ has made of publications."""

    def __init__(self, config: ToMqMapping) -> None:
        dependence = dependence_of(config)
        #: whether any two publications are alike to the rule
        self.possible = (
            config.payload.type == "bytes"
            and config.attributes.rfh2
            and config.destination.requests_queue is None
            and not dependence.payload
            and dependence.size is None
            and not dependence.message_id
        )
        self._patterns: dict[Kind, _Pattern | None] = {}

    def kind(self, publication: Publication) -> Kind | None:
        """Return the kind of a publication; None for a publication that is alike to none."""
        if not self.possible or publication.properties or publication.correlation_data or publication.response_topic:
            return None
        return (
            publication.topic,
            publication.client_id,
            publication.user,
            publication.qos,
            publication.retain,
            publication.hops,
            publication.expiry,
            publication.content_type,
            len(str(publication.message_id)) if publication.qos and publication.message_id else 0,
            not publication.payload,
        )

    def knows(self, kind: Kind) -> bool:
        """Return whether a publication of that kind was mapped."""
        return kind in self._patterns

    def remember(self, kind: Kind, publication: Publication, mapped: MappedMessage | None) -> None:
        """Remember the message that a publication of that kind became; None where the mapping does not take it."""
        if len(self._patterns) >= MOST:
            self._patterns.clear()
        if mapped is None:
            self._patterns[kind] = None
            return
        data = mapped.message.data
        header = data[: len(data) - len(publication.payload)]
        before, behind = header, b""
        if publication.qos and publication.message_id:
            # The mqtt folder is the first, and text in it has no "<" but as an entity.
            start = header.index(b">", header.index(_MSGID)) + 1
            before, behind = header[:start], header[header.index(b"<", start) :]
        self._patterns[kind] = _Pattern(mapped, before, behind)

    def mapped(self, kind: Kind, publication: Publication) -> MappedMessage | None:
        """Return the message that a publication of a known kind becomes; None where the mapping does not take it."""
        pattern = self._patterns[kind]
        if pattern is None:
            return None
        if pattern.behind:
            data = b"%b%d%b%b" % (pattern.before, publication.message_id, pattern.behind, publication.payload)
        else:
            data = pattern.before + publication.payload
        like = pattern.mapped
        return MappedMessage(
            destination=like.destination,
            message=Message(like.message.md, data),
            properties=like.properties,
            retain=like.retain,
            clear=like.clear,
            hops=like.hops,
        )


class MessageLikeness:
    """What the rule of one mapping to MQTT has made of messages without headers."""

    def __init__(self, config: ToMqttMapping) -> None:
        dependence = dependence_of(config)
        self.possible = config.payload.type == "bytes" and not dependence.payload and dependence.size is None
        self._fields = sorted(dependence.md)
        self._publications: dict[Kind, Publication | None] = {}

    def kind(self, message: Message, topic: str | None) -> Kind | None:
        """Return the kind of a message; None for a message that is alike to none."""
        md = message.md
        if not self.possible or md.Format in HEADER_FORMATS:
            return None
        return topic, not message.data, *[getattr(md, field) for field in self._fields]

    def knows(self, kind: Kind) -> bool:
        """Return whether a message of that kind was mapped."""
        return kind in self._publications

    def remember(self, kind: Kind, publication: Publication | None) -> None:
        """Remember the publication that a message of that kind became; None where the mapping does not take it."""
        if len(self._publications) >= MOST:
            self._publications.clear()
        # One of its own: whom the other is given to may change it.
        self._publications[kind] = None if publication is None else msgspec.structs.replace(publication, payload=b"")

    def mapped(self, kind: Kind, message: Message) -> Publication | None:
        """Return the publication that a message of a known kind becomes; None where the mapping does not take it."""
        like = self._publications[kind]
        return None if like is None else msgspec.structs.replace(like, payload=message.data)
