"""Publications that a rule maps alike: what it has made of one serves the next, with another payload and message id.

Devices publish to the same topics all day. Whatever a rule looks at (`bridge.mapping.dependence`) is the same then, and so
are destination, MQMD and RFH2, but for the digits of mqtt.msgid.
"""

from __future__ import annotations

import msgspec

from bridge.config.mapping import ToMqMapping
from bridge.mapping.dependence import dependence_of
from bridge.mapping.message import Message
from bridge.mapping.publication import MappedMessage, Publication

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


class Likeness:
    """What the rule of one mapping has made of publications."""

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
        """The kind of a publication; None for one that is alike to none."""
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
        """Whether one of that kind was mapped."""
        return kind in self._patterns

    def remember(self, kind: Kind, publication: Publication, mapped: MappedMessage | None) -> None:
        """What became of a publication of that kind; None where the mapping does not take it."""
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
        """What becomes of a publication of a kind that is known."""
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
