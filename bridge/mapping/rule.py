"""Mapping rules: pure functions from publications to MQ messages, and from messages to publications.

The integration tables apply to everything that the mapping does not specify. A rule is defined by the mapping's name, its
configuration and the name of the queue manager. The bridge and the Spark workers run the same rules.

Devices publish to the same topics all day, and applications put similar messages. The cache of a rule reuses the result for a
publication or message that differs only in its payload. The key contains all inputs of the rule except fields that no filter
or template uses (`bridge.mapping.attributes.UsedFields`). The entry contains everything that the rule produces: destination,
MQMD and RFH2 of a publication (except the digits of mqtt.msgid), or everything except the payload of a message without
headers. JSON filters, and checks that the payload is JSON or text, run for each publication.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from bridge.config.mapping import (
    STANDARD_PERSISTENCE,
    MessageAttributes,
    PublicationAttributes,
    ToMqMapping,
    ToMqttMapping,
    TypedProperty,
)
from bridge.mapping.attributes import (
    MessageScope,
    PublicationScope,
    SomeScope,
    Steps,
    located,
    names_of,
    part_names,
    read_templates,
    record_of,
    schema_of,
    transform_of,
    used_fields_of,
)
from bridge.mapping.filter import Filter, OtherwiseRoutes
from bridge.mapping.json_document import encoded
from bridge.mapping.message_view import body_text, in_ccsid, json_object, target
from bridge.mapping.publisher import publisher_of
from bridge.mapping.rates import LeftOut, MessageRates, rates_of
from bridge.mapping.split import Split
from bridge.mapping.table import CurrentTables, TableError
from bridge.mapping.template import RuleError
from bridge.mapping.topic_pattern import pattern_of
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.conversion import message_of
from bridge.telemetry.headers import (
    HEADER_FORMATS,
    Headers,
    body_format,
    correl_id_of,
    descriptor,
    expiry_of,
    mark_of,
    message_properties,
    requested,
    rfh2_of,
    size_of_properties,
)
from bridge.telemetry.message import (
    CCSID_UTF8,
    NO_PROPERTIES,
    Destination,
    KeptRequest,
    MappedMessage,
    Message,
    Publication,
    Unmappable,
    with_values,
)
from bridge.telemetry.subscription import publication_qos
from bridge.wire import cmqc
from bridge.wire.mq import Typed
from bridge.wire.mq.ccsid import character_set

if TYPE_CHECKING:
    from bridge.mapping.record_payload import RecordPayload

MAX_BYTES = 16 * 1024 * 1024
"""Approximate maximum size of the entries of one rule, in bytes. A full cache is cleared, and refills with the entries in
use."""
_ENTRY_BYTES = 600
"""Size of an entry without its texts, in bytes."""

_MSGID = b"<msgid"
#: StrucLength of the RFH2, which the bridge writes in little-endian byte order.
_STRUC_LENGTH = slice(8, 12)

Kept = TypeVar("Kept")
Made = TypeVar("Made", MappedMessage, Publication)
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
    after: bytes


class _Cache(Generic[Kept]):
    """Results of a rule by key, at most MAX_BYTES. None: the mapping does not take such messages."""

    def __init__(self) -> None:
        self._entries: dict[Key, Kept | None] = {}
        self._bytes = 0

    def knows(self, key: Key) -> bool:
        """Return whether there is an entry for the key."""
        return key in self._entries

    def takes(self, key: Key) -> bool:
        """Return whether the mapping takes messages with a cached key."""
        return self._entries[key] is not None

    def _keep(self, key: Key, entry: Kept | None, size: int) -> None:
        """Add an entry. `size` is the size of its texts in bytes, without the key."""
        size += _ENTRY_BYTES + _size_of(key)
        if self._bytes + size > MAX_BYTES:
            self._entries.clear()
            self._bytes = 0
        if size <= MAX_BYTES:
            self._entries[key] = entry
            self._bytes += size


def _repeats(config: ToMqMapping | ToMqttMapping) -> bool:
    """Return whether a mapping makes one message of each message, and always the same one."""
    return not config.otherwise and config.split is None and config.limit is None and config.changes is None


class PublicationRuleCache(_Cache[_Entry]):
    """The results of a mapping to MQ, by publication."""

    def __init__(self, config: ToMqMapping) -> None:
        super().__init__()
        used = used_fields_of(config)
        #: whether two publications can have the same key
        self.possible = (
            _repeats(config)
            and config.attributes.rfh2
            and config.destination.requests_queue is None
            and not used.text
            and used.size is None
            and not used.packet_id
        )

    def key(self, publication: Publication) -> Key | None:
        """Return the key of a publication, or None if it is not cached."""
        if not self.possible:
            return None
        own_properties, properties = publication.properties, None
        if own_properties is not NO_PROPERTIES:  # hashing properties is slow
            if (
                own_properties.user_property
                or own_properties.correlation_data is not None
                or own_properties.response_topic is not None
            ):
                return None
            properties = own_properties
        return (
            publication.topic,
            publication.client_id,
            publication.user,
            publication.qos,
            publication.retain,
            publication.hops,
            publication.expiry,
            properties,
            len(str(publication.packet_id)) if publication.qos and publication.packet_id else 0,
            not publication.payload,
        )

    def remember(self, key: Key, publication: Publication, mapped: MappedMessage | None) -> None:
        """Store the result for a publication with that key. None: the mapping does not take the publication."""
        if mapped is None:
            self._keep(key, None, 0)
            return
        data = mapped.message.data
        header = data[: int.from_bytes(data[_STRUC_LENGTH], "little")]
        before, after = header, b""
        if publication.qos and publication.packet_id:
            # The mqtt folder is the first one, and "<" in its text is escaped as an entity. The preceding Format is not
            # escaped.
            start = header.index(b">", header.index(_MSGID, cmqc.MQRFH_STRUC_LENGTH_FIXED_2)) + 1
            before, after = header[:start], header[header.index(b"<", start) :]
        cached = msgspec.structs.replace(mapped, message=Message(mapped.message.md, b""))
        size = _size_of((before, after, mapped.destination.name, mapped.destination.queue_manager))
        self._keep(key, _Entry(cached, before, after), size)

    def mapped(self, key: Key, publication: Publication, body: bytes) -> MappedMessage | None:
        """Return the message for a publication with a cached key, or None if the mapping does not take it."""
        entry = self._entries[key]
        if entry is None:
            return None
        if entry.after:
            message_data = b"%b%d%b%b" % (entry.before, publication.packet_id, entry.after, body)
        else:
            message_data = entry.before + body
        like = entry.mapped
        return MappedMessage(
            destination=like.destination,
            message=Message(like.message.md, message_data),
            properties=like.properties,
            retain=like.retain,
            clear=like.clear,
            hops=like.hops,
            authority=like.authority,
        )


class MessageRuleCache(_Cache[Publication]):
    """The results of a mapping to MQTT, by message without headers."""

    def __init__(self, config: ToMqttMapping) -> None:
        super().__init__()
        used = used_fields_of(config)
        self.possible = _repeats(config) and config.payload.type == "bytes" and not used.payload and used.size is None
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
        cached = msgspec.structs.replace(publication, payload=b"")
        self._keep(
            key, cached, _size_of((cached.topic, cached.client_id, cached.user)) + size_of_properties(cached.properties)
        )

    def mapped(self, key: Key, message: Message) -> Publication | None:
        """Return the publication for a message with a cached key, or None if the mapping does not take it."""
        like = self._entries[key]
        return None if like is None else msgspec.structs.replace(like, payload=message.data)


#: Guarantee -> QoS of the mapping's subscription on a link, and minimum QoS of its publications.
GUARANTEED_QOS: Final = {"at-most-once": 0, "at-least-once": 1, "exactly-once": 2}


def published_qos(guarantee: str, qos: int, maximum: int = 2) -> int:
    """Return the QoS of a publication to a broker that accepts at most QoS `maximum`.

    The result is at least the QoS that the guarantee needs, and otherwise limited to `maximum`, so that the broker does not
    reject it. With at-most-once it is 0.
    """
    needed = GUARANTEED_QOS[guarantee]
    return max(needed, min(qos, maximum)) if needed else 0


def received_qos(guarantee: str, qos: int) -> int:
    """Return the QoS with which a broker delivers a publication: at most that of the subscription."""
    return min(qos, GUARANTEED_QOS[guarantee])


#: Words in the YAML file -> MQMD.Persistence.
PERSISTENCE = {
    "not-persistent": cmqc.MQPER_NOT_PERSISTENT,
    "persistent": cmqc.MQPER_PERSISTENT,
    "as-queue": cmqc.MQPER_PERSISTENCE_AS_Q_DEF,
}
_FORMATS = {"none": cmqc.MQFMT_NONE, "string": cmqc.MQFMT_STRING}


class ToMqRule:
    """A mapping to MQ, as a function of publications. Raises RuleError.

    `origin` is the name of the queue manager, for the hop mark. Pickling is cheap: the rule is rebuilt from its arguments.
    """

    def __init__(self, name: str, config: ToMqMapping, origin: str) -> None:
        self.name, self.config, self.origin = name, config, origin
        self._mark = mark_of(origin, name)
        self._pattern = located(("from", "mqtt"), pattern_of, config.source.mqtt)
        #: MQTT topic filter to subscribe to
        self.source_filter = self._pattern.filter
        self._names = names_of(config, self._pattern.names)
        self._current_tables = _current_tables(config)
        self._tables = self._current_tables.get()
        self._filter = Filter(config.filter, self._pattern.names, of_publication=True, tables=self._tables)
        self._split = None if config.split is None else Split(config.split)
        #: decides which messages to leave out, or None
        self.rates = rates_of(config, self._pattern.names)
        self._routes = OtherwiseRoutes(config.routes)
        self._read_templates(config)
        self._read_payload()
        self._read_attributes(config.attributes)
        self._publisher = publisher_of(config)
        self._cache = PublicationRuleCache(config)
        #: whether publications with the same cached result have different destinations
        self._has_own_destinations = used_fields_of(config).destination
        self._reads_payload = self._filter.reads_payload or config.payload.type != "bytes"

    def __reduce__(self) -> tuple[type[ToMqRule], tuple[str, ToMqMapping, str]]:
        return ToMqRule, (self.name, self.config, self.origin)

    def _read_templates(self, config: ToMqMapping) -> None:
        templates = read_templates(config, self._names, self.origin)
        self._object = templates["object"]
        #: templates of MQMD fields
        self._fields = templates["MQMD"]
        self._user = self._fields.pop("UserIdentifier", None)
        self._properties = templates["usr"]
        #: templates of properties with a type
        self._typed = {
            name: self._properties.pop(name)
            for name, value in config.attributes.properties.items()
            if isinstance(value, TypedProperty)
        }
        self._requests_queue = config.destination.requests_queue

    def _read_payload(self) -> None:
        payload = self.config.payload
        self._payload_type = payload.type
        self._transform = transform_of(self.config, self._names)
        self._validate = schema_of(self.config)
        self._record = record_of(self.config)
        self._ccsid = payload.ccsid or CCSID_UTF8
        #: Encoding of the body
        self._encoding = cmqc.MQENC_NATIVE if self._record is None else payload.encoding_for(self._ccsid)
        if payload.type in ("text", "json"):
            try:
                target(self._ccsid)
            except Unmappable as error:
                raise RuleError.at(("payload", "ccsid"), str(error)) from error

    def _read_attributes(self, attributes: MessageAttributes) -> None:
        words = attributes.persistence
        #: MQMD.Persistence by QoS
        self._persistence = tuple(
            PERSISTENCE[words if isinstance(words, str) else words[qos]] for qos in STANDARD_PERSISTENCE
        )
        priority = attributes.priority
        self._priority = cmqc.MQPRI_PRIORITY_AS_Q_DEF if isinstance(priority, str) else priority
        expiry = attributes.expiry
        self._expiry = None if expiry == "as-published" else expiry_of(None if isinstance(expiry, str) else expiry)
        self._retained = attributes.retained
        format = attributes.format
        #: Format of the body. None: determined by the Payload Format Indicator
        self._format: bytes | None = None
        if "format" in attributes.model_fields_set:
            self._format = _FORMATS[format] if format in _FORMATS else format.rstrip(" ").encode("ascii")
        elif self._record is not None:
            self._format = cmqc.MQFMT_NONE  # whatever the Format of the JSON document
        self._rfh2 = attributes.rfh2

    def messages(
        self, publication: Publication, steps: Steps | None = None
    ) -> Sequence[MappedMessage] | LeftOut | None:
        """Return the messages to put: one or, with `split`, one for each part.

        None if the mapping does not take the publication. Raises Unmappable. The steps of the mapping are added to `steps`,
        up to the one that fails.
        """
        if self._split is None and self.rates is None:
            mapped = self.map(publication, steps)
            return None if mapped is None else (mapped,)
        scope = self._taken(publication, steps)
        if scope is None:
            return None
        clears = self._is_retained(publication) and not publication.payload
        return _results(scope, self.rates, self._split, self._message, clears=clears)

    def map(self, publication: Publication, steps: Steps | None = None) -> MappedMessage | None:
        """Return the message of a mapping without `split`, `limit` and `changes`. Otherwise like `messages`."""
        if steps is not None:
            return self._map(publication, steps)
        if self._tables:
            self._use_tables()
        key = self._cache.key(publication)
        if key is None:
            return self._map(publication)
        if self._cache.knows(key):
            return self._cached(key, publication)
        mapped = self._map(publication)
        # If the payload caused the None, another publication with the same key may be accepted.
        if mapped is not None or not self._reads_payload:
            self._cache.remember(key, publication, mapped)
        return mapped

    def _cached(self, key: Key, publication: Publication) -> MappedMessage | None:
        """Return the result for a publication with a cached key. Everything that depends on the payload is computed again."""
        if not (self._reads_payload or self._has_own_destinations):
            return self._cache.mapped(key, publication, publication.payload)
        if not self._cache.takes(key):
            return None
        captures = self._pattern.captures(publication.topic) or {}
        scope = PublicationScope(publication, captures, tables=self._tables)
        if not self._filter.takes_payload(scope):
            return None
        retained = self._is_retained(publication)
        if self._validate is not None:
            self._validate(scope, retained)
        destination = self._destination(scope) if self._has_own_destinations else None
        mapped = self._cache.mapped(key, publication, self._body(scope, retained))
        if mapped is not None and destination is not None:
            mapped.destination = destination
            if self._publisher is not None:
                mapped.authority = self._publisher.authority(publication, mapped.destination)
        return mapped

    def _use_tables(self) -> None:
        """Use the current rows of tables, and forget results that depend on former rows."""
        tables = self._current_tables.get()
        if tables != self._tables:
            self._tables, self._cache = tables, PublicationRuleCache(self.config)

    def _map(self, publication: Publication, steps: Steps | None = None) -> MappedMessage | None:
        scope = self._taken(publication, steps)
        return None if scope is None else self._message(scope)

    def _taken(self, publication: Publication, steps: Steps | None) -> PublicationScope | None:
        """Return the values of a publication, or None if the mapping does not take it. Raises Unmappable."""
        captures = self._pattern.captures(publication.topic)
        if captures is None:
            return None
        _add_captures(captures, steps)
        if self._tables:
            self._use_tables()
        scope = PublicationScope(publication, captures, steps, self._tables)
        if not _takes(self._filter, scope) or (self._routes and self.accepted_elsewhere(publication) is not None):
            return None
        if self._validate is not None:
            self._validate(scope, self._is_retained(publication))
        return scope

    def _message(self, scope: PublicationScope) -> MappedMessage:
        """Return the message of a publication, or of a part of it. Raises Unmappable."""
        publication, steps = scope.publication, scope.steps
        retained = self._is_retained(publication)
        destination = self._destination(scope)
        authority = self._publisher.authority(publication, destination) if self._publisher is not None else ""
        clear = retained and destination.is_topic and not publication.payload
        body = self._body(scope, retained)
        if steps is not None:
            steps.append(("payload", body_text(body)))
        mqtt_properties = publication.properties
        asks = self._requests_queue is None or bool(mqtt_properties.response_topic)
        fields = self._fields if asks else {}
        md_fields = {field: attribute.of(scope) for field, attribute in fields.items()} if fields else {}
        if self._requests_queue is None:
            correl_id = md_fields.get("CorrelId") or correl_id_of(mqtt_properties.correlation_data)
        else:
            # An application may copy MsgId or CorrelId to the CorrelId of its answer. Without a CorrelId, both are the MsgId.
            correl_id = cmqc.MQCI_NONE
        expiry = self._expiry
        if expiry is None:
            expiry = expiry_of(publication.expiry)
        user = publication.user if self._user is None else self._user.of(scope)
        format = body_format(mqtt_properties.payload_format_indicator) if self._format is None else self._format
        # Format and CodedCharSetId of the MQMD describe the RFH2 (the integration tables leave its CCSID to the queue
        # manager) or, without an RFH2, the body.
        outer = (cmqc.MQFMT_RF_HEADER_2, cmqc.MQCCSI_Q_MGR) if self._rfh2 else (format, self._ccsid)
        md = descriptor(user, self._persistence[publication.qos], expiry, self._priority, *outer)
        if correl_id != cmqc.MQCI_NONE:
            md_fields["CorrelId"] = correl_id
        if self._encoding != cmqc.MQENC_NATIVE and not self._rfh2:
            md_fields["Encoding"] = self._encoding
        if md_fields:
            md = msgspec.structs.replace(md, **requested(md_fields))
        properties = self._with_own(mqtt_properties, scope)
        if correl_id != cmqc.MQCI_NONE and properties.correlation_data is None:
            # An empty element shows that the CorrelId does not come from Correlation Data.
            properties = msgspec.structs.replace(properties, correlation_data=b"")
        hops = (*publication.hops, self._mark)
        original = publication.topic if destination.is_topic or not self._rfh2 else ""
        beside: dict[str, str | int | bool | Typed] = {}
        typed = {name: template.of(scope) for name, template in self._typed.items()} if self._typed else None
        arguments = (publication.client_id or None, publication.qos, publication.packet_id, properties, correl_id)
        if self._rfh2:
            header = rfh2_of(
                *arguments,
                mqps=None if destination.is_topic else (publication.topic, retained, None),
                hops=hops,
                original_topic=original,
                format=format,
                ccsid=self._ccsid,
                encoding=self._encoding,
                typed=typed,
            )
            body = header + body
        else:
            beside = message_properties(*arguments, hops=hops, original_topic=original, typed=typed)
        return MappedMessage(
            destination=destination,
            message=Message(md, body),
            properties=beside,
            retain=retained and destination.is_topic,
            clear=clear,
            hops=hops,
            kept=self._kept(publication, hops, expiry) if asks else None,
            authority=authority,
        )

    def accepted_elsewhere(self, publication: Publication) -> str | None:
        """Return the name of a mapping in `otherwise` that accepts a publication, or None."""
        return self._routes.accepting(
            publication.topic, lambda captures, *_: PublicationScope(publication, captures, tables=self._tables)
        )

    def _kept(self, publication: Publication, hops: tuple[str, ...], expiry: int) -> KeptRequest | None:
        """Return the part of a request to store. None if the mapping has no `requests_queue`."""
        if self._requests_queue is None:
            return None
        md = descriptor(b"", self._persistence[publication.qos], expiry)
        header = rfh2_of(
            publication.client_id or None,
            publication.qos,
            publication.packet_id,
            msgspec.structs.replace(publication.properties, user_property=()),
            mqps=(publication.topic, False, None),
            hops=hops,
        )
        return KeptRequest(self._requests_queue, Message(md, header))

    def _destination(self, scope: PublicationScope) -> Destination:
        names = {field: template.of(scope) for field, template in self._object.items()}
        if "ObjectString" in names:
            return Destination(names["ObjectString"], True)
        return Destination(names["ObjectName"], False, names.get("ObjectQMgrName", ""))

    def _is_retained(self, publication: Publication) -> bool:
        return publication.retain if self._retained == "as-published" else self._retained == "always"

    def _body(self, scope: PublicationScope, retained: bool) -> bytes:
        payload = scope.publication.payload
        if self._payload_type == "bytes" or (retained and not payload):
            return payload  # an empty retained publication clears the topic, whatever the payload type
        if self._transform is not None:
            payload = self._transform.apply(scope)
        elif self._split is not None:
            payload = encoded(scope.part)
        elif self._payload_type == "json":
            _ = scope.document  # raises Unmappable for invalid JSON
        if self._record is not None:
            if scope.steps is not None:
                scope.steps.append(("document for the record", body_text(payload)))
            return self._record.record_of(payload, self._ccsid, self._encoding)
        return in_ccsid(payload, self._ccsid)

    def _with_own(self, properties: PublishProperties, scope: PublicationScope) -> PublishProperties:
        """Return the properties with the User Properties that the mapping sets."""
        if not self._properties and self._split is None:
            return properties
        own = part_names(scope) if self._split is not None else {}
        own |= {name: template.of(scope) for name, template in self._properties.items()}
        return msgspec.structs.replace(properties, user_property=with_values(properties.user_property, own))


class ToMqttRule:
    """A mapping to MQTT, as a function of messages. Raises RuleError.

    A single `qos` applies to all messages. If `qos` is specified by persistence, messages published by an MQTT client keep
    their own QoS (mqtt.qos). `origin` is the name of the queue manager, for the hop mark. Pickling is cheap: the rule is
    rebuilt from its arguments.
    """

    def __init__(self, name: str, config: ToMqttMapping, origin: str) -> None:
        self.name, self.config, self.origin = name, config, origin
        self._mark = mark_of(origin, name)
        source = config.source
        #: source queue. None: the source is a subscription
        self.queue = source.queue
        #: queue with the stored requests that the messages answer. None: they are not answers
        self.requests_queue = source.requests_queue
        self._pattern = located(("from", "topic"), pattern_of, source.topic) if source.topic is not None else None
        #: topic filter of the subscription
        self.source_filter = self._pattern.filter if self._pattern is not None else None
        captures = self._pattern.names if self._pattern is not None else ()
        self._names = names_of(config, captures)
        self._current_tables = _current_tables(config)
        self._tables = self._current_tables.get()
        self._filter = Filter(config.filter, captures, tables=self._tables)
        self._split = None if config.split is None else Split(config.split)
        #: decides which messages to leave out, or None
        self.rates = rates_of(config, captures)
        self._routes = OtherwiseRoutes(config.routes)
        templates = read_templates(config, self._names, origin)
        #: templates of publication properties. The integration tables apply to all others
        self._fields = templates["publication"]
        self._topic = self._fields.pop("topic")
        self._properties, self._object = templates["usr"], templates["payload"]
        self._read_payload()
        self._read_attributes(config.attributes)
        self._publisher = publisher_of(config)
        self._cache = MessageRuleCache(config)

    def __reduce__(self) -> tuple[type[ToMqttRule], tuple[str, ToMqttMapping, str]]:
        return ToMqttRule, (self.name, self.config, self.origin)

    def _read_payload(self) -> None:
        payload = self.config.payload
        if payload.ccsid is not None and character_set(payload.ccsid) is None:
            raise RuleError.at(("payload", "ccsid"), f"CCSID {payload.ccsid} is not known here")
        self._payload_type, self._ccsid, self._encoding = payload.type, payload.ccsid, payload.encoding_number
        #: None: messages are not records
        self.record = record_of(self.config)
        self._transform = transform_of(self.config, self._names)
        self._validate = schema_of(self.config)

    def _read_attributes(self, attributes: PublicationAttributes) -> None:
        qos = attributes.qos
        self._qos = qos if isinstance(qos, int) else None
        self._qos_by_persistence = (
            {} if isinstance(qos, int) else {PERSISTENCE[persistence]: level for persistence, level in qos.items()}
        )
        self._retained = attributes.retained
        self._expiry_as_published = attributes.expiry == "as-published"
        self._expiry = None if isinstance(attributes.expiry, str) else attributes.expiry

    def publications(
        self,
        message: Message,
        *,
        topic: str | None = None,
        request: Message | None = None,
        steps: Steps | None = None,
    ) -> Sequence[Publication] | LeftOut | None:
        """Return the publications: one or, with `split`, one for each part.

        None if the mapping does not take the message. Raises Unmappable. `topic` is the topic string of the publication, if
        known from another source than its RFH2. `request` is the stored part of the request that the message answers. The
        steps of the mapping are added to `steps`, up to the one that fails.
        """
        if self._split is None and self.rates is None:
            publication = self.map(message, topic=topic, request=request, steps=steps)
            return None if publication is None else (publication,)
        scope = self._taken(message, topic, request, steps)
        if scope is None:
            return None
        clears = self._is_retained(scope) and not scope.headers.body
        make = partial(self._publication, is_answer=request is not None)
        return _results(scope, self.rates, self._split, make, clears=clears)

    def map(
        self,
        message: Message,
        *,
        topic: str | None = None,
        request: Message | None = None,
        steps: Steps | None = None,
    ) -> Publication | None:
        """Return the publication of a mapping without `split`, `limit` and `changes`. Otherwise like `publications`."""
        if steps is not None:
            return self._map(message, topic, request, steps)
        if self._tables:
            self._use_tables()
        key = self._cache.key(message, topic) if request is None else None
        if key is None:
            return self._map(message, topic, request)
        if self._cache.knows(key):
            return self._cache.mapped(key, message)
        publication = self._map(message, topic, None)
        self._cache.remember(key, publication)
        return publication

    def message(self, publication: Publication) -> MappedMessage:
        """Return the message to put for a publication of this mapping to local clients. Raises Unmappable."""
        mapped = message_of(publication)
        if self._publisher is not None:
            mapped.authority = self._publisher.authority(publication, mapped.destination)
        return mapped

    def accepted_elsewhere(self, message: Message, topic: str | None = None) -> str | None:
        """Return the name of a mapping in `otherwise` that accepts a message, or None."""
        headers = Headers(message)
        return self._accepted(headers, headers.properties, topic if topic is not None else headers.topic)

    def _accepted(self, headers: Headers, properties: PublishProperties, topic: str | None) -> str | None:
        qos = publication_qos(headers.md.Persistence, headers.qos)

        def scope_of(
            captures: dict[str, str], ccsid: int | None, encoding: int | None, record: RecordPayload | None
        ) -> MessageScope:
            return MessageScope(
                headers,
                captures,
                properties,
                topic=topic or "",
                qos=qos,
                ccsid=ccsid,
                encoding=encoding,
                record=record,
                tables=self._tables,
            )

        return self._routes.accepting(topic or "", scope_of)

    def _use_tables(self) -> None:
        """Use the current rows of tables, and forget results that depend on former rows."""
        tables = self._current_tables.get()
        if tables != self._tables:
            self._tables, self._cache = tables, MessageRuleCache(self.config)

    def _map(
        self, message: Message, topic: str | None, request: Message | None, steps: Steps | None = None
    ) -> Publication | None:
        scope = self._taken(message, topic, request, steps)
        return None if scope is None else self._publication(scope, is_answer=request is not None)

    def _taken(
        self, message: Message, topic: str | None, request: Message | None, steps: Steps | None
    ) -> MessageScope | None:
        """Return the values of a message, or None if the mapping does not take it. Raises Unmappable."""
        headers = Headers(message)
        properties = headers.properties
        if request is not None:
            request_properties = Headers(request).properties
            properties = msgspec.structs.replace(
                properties,
                response_topic=request_properties.response_topic,
                correlation_data=request_properties.correlation_data,
            )
        topic = topic if topic is not None else headers.topic
        captures: dict[str, str] = {}
        if self._pattern is not None:
            if not topic:
                why = f"the message contains no topic, but the mapping reads {self._pattern.text}"
                raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, why)
            topic_captures = self._pattern.captures(topic)
            if topic_captures is None:
                return None
            captures = topic_captures
        qos = publication_qos(headers.md.Persistence, headers.qos)
        _add_captures(captures, steps)
        if self._tables:
            self._use_tables()
        scope = MessageScope(
            headers,
            captures,
            properties,
            topic=topic,
            qos=qos,
            ccsid=self._ccsid,
            encoding=self._encoding,
            record=self.record,
            steps=steps,
            tables=self._tables,
        )
        if not _takes(self._filter, scope) or (self._routes and self._accepted(headers, properties, topic) is not None):
            return None
        if self._validate is not None:
            self._validate(scope, self._is_retained(scope))
        return scope

    def _is_retained(self, scope: MessageScope) -> bool:
        return scope.headers.retained if self._retained == "as-published" else self._retained == "always"

    def _publication(self, scope: MessageScope, *, is_answer: bool) -> Publication:
        """Return the publication of a message, or of a part of it. Raises Unmappable."""
        headers, properties, steps = scope.headers, scope.properties, scope.steps
        retained = self._is_retained(scope)
        qos = self._qos
        if qos is None:
            qos = headers.qos
        if qos is None:
            qos = self._qos_by_persistence.get(headers.md.Persistence, scope.qos)
        changes: dict[str, Any] = {field: template.of(scope) for field, template in self._fields.items()}
        if is_answer and "response_topic" not in changes:
            changes["response_topic"] = None  # an answer does not request another answer
        if self._payload_type != "bytes":
            changes["payload_format_indicator"] = 1  # converted text is UTF-8, and so is JSON
        if self._properties or self._split is not None:
            own = part_names(scope) if self._split is not None else {}
            own |= {name: template.of(scope) for name, template in self._properties.items()}
            changes["user_property"] = with_values(properties.user_property, own)
        name, payload = self._topic.of(scope), self._payload(scope, retained)
        if steps is not None:
            steps.append(("payload", body_text(payload)))
        return Publication(
            topic=name,
            payload=payload,
            qos=qos,
            retain=retained,
            client_id=headers.client_id,
            user=headers.user,
            expiry=headers.expiry if self._expiry_as_published else self._expiry,
            properties=msgspec.structs.replace(properties, **changes) if changes else properties,
            hops=(*headers.hops, self._mark),
        )

    def _payload(self, scope: MessageScope, retained: bool) -> bytes:
        body = scope.headers.body
        if self._payload_type == "bytes" or (retained and not body):
            return body  # an empty retained publication clears the topic, whatever the payload type
        if self._transform is not None:
            return self._transform.apply(scope)
        if self._split is not None:
            return encoded(scope.part)
        if self._object:
            return json_object({member: attribute.of(scope) for member, attribute in self._object.items()})
        if self._payload_type == "json":
            _ = scope.document  # raises Unmappable for invalid JSON
        return scope.json


def _current_tables(config: ToMqMapping | ToMqttMapping) -> CurrentTables:
    """Return the tables of a mapping. Raises RuleError."""
    try:
        return CurrentTables(config.tables)
    except TableError as error:
        raise RuleError(str(error)) from error


def _takes(filter_: Filter, scope: PublicationScope | MessageScope) -> bool:
    """Return whether a filter accepts a message. Raises Unmappable."""
    accepts = filter_.takes(scope)
    if scope.steps is not None and filter_:
        scope.steps.append(("filter", "accepts the message" if accepts else "does not accept the message"))
    return accepts


def _results(
    scope: SomeScope,
    rates: MessageRates | None,
    split: Split | None,
    make: Callable[[SomeScope], Made],
    *,
    clears: bool,
) -> Sequence[Made] | LeftOut:
    """Return the results of `make` for a message that the mapping takes, or for each of its parts. Raises Unmappable.

    `clears`: the message is an empty retained publication, which has no parts and always passes.
    """
    if rates is not None and (left_out := rates.left_out(scope, passes=clears)) is not None:
        return left_out
    results: Sequence[Made] = (make(scope),) if split is None else () if clears else split.messages(scope, make)
    if rates is not None and results:  # a message that is rejected or has no parts is not the last one that passed
        rates.passed()
    return results or LeftOut.NO_PARTS


def _add_captures(captures: Mapping[str, str], steps: Steps | None) -> None:
    """Add the captures to the steps."""
    if steps is not None:
        steps += [(f"{{{name}}}", value) for name, value in captures.items()]


Rule = ToMqRule | ToMqttRule


def rule_of(name: str, config: ToMqMapping | ToMqttMapping, origin: str) -> Rule:
    """Return the rule of a mapping. `origin` is the name of the queue manager. Raises RuleError."""
    return ToMqRule(name, config, origin) if isinstance(config, ToMqMapping) else ToMqttRule(name, config, origin)
