"""The cache of a rule: what it has made of one publication or message serves the next, with another payload.

Devices publish to the same topics all day, and applications put the same kind of message. Whatever a rule looks at
(`bridge.mapping.rules.used_fields`) is the same then: it is the key. So is all that the rule makes of it: of a publication
destination, MQMD and RFH2, but for the digits of mqtt.msgid; of a message without headers everything but the payload.
"""

from __future__ import annotations

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.message import Message
from bridge.mapping.publication import MappedMessage, Publication
from bridge.mapping.rules.used_fields import used_fields_of
from bridge.mapping.telemetry.folders import HEADER_FORMATS

#: Entries; then all are forgotten, for they come again.
MOST = 8192

_MSGID = b"<msgid"

#: What an entry is found by. The length of a message id is in it: that decides of the RFH2's padding.
Key = tuple[object, ...]


class _Entry(msgspec.Struct, gc=False):
    """A message without its message id and payload."""

    mapped: MappedMessage
    #: the RFH2 up to the digits of mqtt.msgid, and from there on; without a message id all of it
    before: bytes
    behind: bytes


class PublicationRuleCache:
    """What the rule of one mapping to MQ has made of publications."""

    def __init__(self, config: ToMqMapping) -> None:
        used = used_fields_of(config)
        #: whether any two publications have the same key
        self.possible = (
            config.payload.type == "bytes"
            and config.attributes.rfh2
            and config.destination.requests_queue is None
            and not used.payload
            and used.size is None
            and not used.message_id
        )
        self._entries: dict[Key, _Entry | None] = {}

    def key(self, publication: Publication) -> Key | None:
        """Return the key of a publication; None for one that is not cached."""
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
            publication.payload_format,
            len(str(publication.message_id)) if publication.qos and publication.message_id else 0,
            not publication.payload,
        )

    def knows(self, key: Key) -> bool:
        """Return whether a publication with that key was mapped."""
        return key in self._entries

    def remember(self, key: Key, publication: Publication, mapped: MappedMessage | None) -> None:
        """Remember the message that a publication with that key became; None where the mapping does not take it."""
        if len(self._entries) >= MOST:
            self._entries.clear()
        if mapped is None:
            self._entries[key] = None
            return
        data = mapped.message.data
        header = data[: len(data) - len(publication.payload)]
        before, behind = header, b""
        if publication.qos and publication.message_id:
            # The mqtt folder is the first, and text in it has no "<" but as an entity.
            start = header.index(b">", header.index(_MSGID)) + 1
            before, behind = header[:start], header[header.index(b"<", start) :]
        self._entries[key] = _Entry(mapped, before, behind)

    def mapped(self, key: Key, publication: Publication) -> MappedMessage | None:
        """Return the message that a publication with a known key becomes; None where the mapping does not take it."""
        entry = self._entries[key]
        if entry is None:
            return None
        if entry.behind:
            data = b"%b%d%b%b" % (entry.before, publication.message_id, entry.behind, publication.payload)
        else:
            data = entry.before + publication.payload
        like = entry.mapped
        return MappedMessage(
            destination=like.destination,
            message=Message(like.message.md, data),
            properties=like.properties,
            retain=like.retain,
            clear=like.clear,
            hops=like.hops,
        )


class MessageRuleCache:
    """What the rule of one mapping to MQTT has made of messages without headers."""

    def __init__(self, config: ToMqttMapping) -> None:
        used = used_fields_of(config)
        self.possible = config.payload.type == "bytes" and not used.payload and used.size is None
        self._fields = sorted(used.md)
        self._publications: dict[Key, Publication | None] = {}

    def key(self, message: Message, topic: str | None) -> Key | None:
        """Return the key of a message; None for one that is not cached."""
        md = message.md
        if not self.possible or md.Format in HEADER_FORMATS:
            return None
        return topic, not message.data, *[getattr(md, field) for field in self._fields]

    def knows(self, key: Key) -> bool:
        """Return whether a message with that key was mapped."""
        return key in self._publications

    def remember(self, key: Key, publication: Publication | None) -> None:
        """Remember the publication that a message with that key became; None where the mapping does not take it."""
        if len(self._publications) >= MOST:
            self._publications.clear()
        # One of its own: whom the other is given to may change it.
        self._publications[key] = None if publication is None else msgspec.structs.replace(publication, payload=b"")

    def mapped(self, key: Key, message: Message) -> Publication | None:
        """Return the publication that a message with a known key becomes; None where the mapping does not take it."""
        like = self._publications[key]
        return None if like is None else msgspec.structs.replace(like, payload=message.data)
