"""The cache of a rule: reuses the result for a publication or message that differs only in its payload.

Devices publish to the same topics all day, and applications put similar messages. The key contains all inputs of the rule
except fields that no filter or template uses (`bridge.mapping.rules.attributes.UsedFields`). The entry contains everything
that the rule produces: destination, MQMD and RFH2 of a publication (except the digits of mqtt.msgid), or everything except
the payload of a message without headers. JSON filters, and checks that the payload is JSON or text, run for each publication.

The cache maps a publication in 1 to 2 µs (10 µs with a JSON filter) instead of 14 to 25, and a message in 2 µs instead of 8
to 11.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.attributes import used_fields_of
from bridge.telemetry.headers import HEADER_FORMATS, size_of_properties
from bridge.telemetry.message import CCSID_UTF8, NO_PROPERTIES, MappedMessage, Message, Publication
from bridge.wire import cmqc

MAX_BYTES = 16 * 1024 * 1024
"""Approximate maximum size of the entries of one rule, in bytes. A full cache is cleared, and refills with the entries in
use."""
_ENTRY_BYTES = 600
"""Size of an entry without its texts, in bytes."""

_MSGID = b"<msgid"

Kept = TypeVar("Kept")
#: Key of an entry. Contains the length of the message id, which determines the padding of the RFH2.
Key = tuple[object, ...]


def _size_of(parts: Iterable[object]) -> int:
    """Return the memory used by texts, including those in tuples, in bytes."""
    return sum(
        _size_of(part) if isinstance(part, tuple) else sys.getsizeof(part) if isinstance(part, str | bytes) else 0
        for part in parts
    )


class _Entry(msgspec.Struct, gc=False):
    """A message without its message id and payload."""

    #: the message has no data
    mapped: MappedMessage
    #: the RFH2 before and after the digits of mqtt.msgid. Without a message id, `before` is all of it
    before: bytes
    behind: bytes


class _Cache(Generic[Kept]):
    """Results of a rule by key, at most MAX_BYTES. None: the mapping does not take such messages."""

    def __init__(self) -> None:
        self._entries: dict[Key, Kept | None] = {}
        self._bytes = 0

    def knows(self, key: Key) -> bool:
        """Return whether there is an entry for the key."""
        return key in self._entries

    def _keep(self, key: Key, entry: Kept | None, size: int) -> None:
        """Add an entry. `size` is the size of its texts in bytes, without the key."""
        size += _ENTRY_BYTES + _size_of(key)
        if self._bytes + size > MAX_BYTES:
            self._entries.clear()
            self._bytes = 0
        if size <= MAX_BYTES:
            self._entries[key] = entry
            self._bytes += size


class PublicationRuleCache(_Cache[_Entry]):
    """The results of a mapping to MQ, by publication."""

    def __init__(self, config: ToMqMapping) -> None:
        super().__init__()
        used = used_fields_of(config)
        #: whether two publications can have the same key
        self.possible = (
            (config.payload.type == "bytes" or config.payload.ccsid in (None, CCSID_UTF8))  # the body is the payload
            and not config.otherwise
            and config.attributes.rfh2
            and config.destination.requests_queue is None
            and not used.text
            and used.size is None
            and not used.message_id
        )

    def key(self, publication: Publication) -> Key | None:
        """Return the key of a publication, or None if it is not cached."""
        if not self.possible:
            return None
        given, properties = publication.properties, None
        if given is not NO_PROPERTIES:  # hashing properties is slow
            if given.user_property or given.correlation_data is not None or given.response_topic is not None:
                return None
            properties = given
        return (
            publication.topic,
            publication.client_id,
            publication.user,
            publication.qos,
            publication.retain,
            publication.hops,
            publication.expiry,
            properties,
            len(str(publication.message_id)) if publication.qos and publication.message_id else 0,
            not publication.payload,
        )

    def remember(self, key: Key, publication: Publication, mapped: MappedMessage | None) -> None:
        """Store the result for a publication with that key. None: the mapping does not take the publication."""
        if mapped is None:
            self._keep(key, None, 0)
            return
        data = mapped.message.data
        header = data[: len(data) - len(publication.payload)]
        before, behind = header, b""
        if publication.qos and publication.message_id:
            # The mqtt folder is the first one, and "<" in its text is escaped as an entity. The preceding Format is not
            # escaped.
            start = header.index(b">", header.index(_MSGID, cmqc.MQRFH_STRUC_LENGTH_FIXED_2)) + 1
            before, behind = header[:start], header[header.index(b"<", start) :]
        kept = msgspec.structs.replace(mapped, message=Message(mapped.message.md, b""))
        size = _size_of((before, behind, mapped.destination.name, mapped.destination.queue_manager))
        self._keep(key, _Entry(kept, before, behind), size)

    def mapped(self, key: Key, publication: Publication) -> MappedMessage | None:
        """Return the message for a publication with a cached key, or None if the mapping does not take it."""
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


class MessageRuleCache(_Cache[Publication]):
    """The results of a mapping to MQTT, by message without headers."""

    def __init__(self, config: ToMqttMapping) -> None:
        super().__init__()
        used = used_fields_of(config)
        self.possible = (
            config.payload.type == "bytes" and not config.otherwise and not used.payload and used.size is None
        )
        self._fields = sorted(used.md)

    def key(self, message: Message, topic: str | None) -> Key | None:
        """Return the key of a message, or None if it is not cached."""
        md = message.md
        if not self.possible or md.Format in HEADER_FORMATS:
            return None
        return topic, not message.data, *[getattr(md, field) for field in self._fields]

    def remember(self, key: Key, publication: Publication | None) -> None:
        """Store the result for a message with that key. None: the mapping does not take the message."""
        if publication is None:
            self._keep(key, None, 0)
            return
        # A copy, because the caller may change the original.
        kept = msgspec.structs.replace(publication, payload=b"")
        self._keep(key, kept, _size_of((kept.topic, kept.client_id, kept.user)) + size_of_properties(kept.properties))

    def mapped(self, key: Key, message: Message) -> Publication | None:
        """Return the publication for a message with a cached key, or None if the mapping does not take it."""
        like = self._entries[key]
        return None if like is None else msgspec.structs.replace(like, payload=message.data)
