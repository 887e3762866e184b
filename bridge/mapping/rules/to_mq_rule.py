"""Rules of mappings to MQ: an MQTT publication becomes an MQ message as the mapping says.

Where the mapping says nothing, it becomes what the integration tables say.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from bridge.config.mapping import STANDARD_PERSISTENCE, MessageAttributes, ToMqMapping
from bridge.mapping.payload import in_ccsid, target
from bridge.mapping.rules.attribute import Attribute, located
from bridge.mapping.rules.errors import RuleError
from bridge.mapping.rules.filter import Filter
from bridge.mapping.rules.rendered import identifier, queue_manager_name, queue_name, topic_string, user_identifier
from bridge.mapping.rules.routes import Routes
from bridge.mapping.rules.rule_cache import PublicationRuleCache
from bridge.mapping.rules.scope import PublicationScope
from bridge.mapping.rules.template import Scope
from bridge.mapping.rules.topic_pattern import TopicPattern
from bridge.telemetry.headers import (
    body_format,
    correl_id_of,
    descriptor,
    expiry_of,
    mark_of,
    message_properties,
    requested,
    rfh2_of,
)
from bridge.telemetry.message import (
    CCSID_UTF8,
    Destination,
    KeptRequest,
    MappedMessage,
    Message,
    Publication,
    Unmappable,
)
from bridge.wire import cmqc

#: Words of the YAML -> MQMD.Persistence.
PERSISTENCE = {
    "not-persistent": cmqc.MQPER_NOT_PERSISTENT,
    "persistent": cmqc.MQPER_PERSISTENT,
    "as-queue": cmqc.MQPER_PERSISTENCE_AS_Q_DEF,
}
_FORMATS = {"none": cmqc.MQFMT_NONE, "string": cmqc.MQFMT_STRING}


class ToMqRule:
    """One mapping to MQ, as a function of publications. Raises RuleError.

    `origin` is the name of the queue manager, for the hop mark. It is cheap to pickle: the other side makes it anew.
    """

    def __init__(self, name: str, config: ToMqMapping, origin: str) -> None:
        self.name, self.config, self.origin = name, config, origin
        self._mark = mark_of(origin, name)
        self._pattern = located("from.mqtt", TopicPattern, config.source.mqtt)
        #: MQTT filter to subscribe to
        self.source_filter = self._pattern.filter
        self._filter = Filter(config.filter, self._pattern.names, of_publication=True)
        self._routes = Routes(config.routes)
        self._read_destination()
        self._read_payload()
        self._read_attributes(config.attributes)
        self._cache = PublicationRuleCache(config)
        self._reads_payload = self._filter.reads_payload or config.payload.type != "bytes"

    def __reduce__(self) -> tuple[type[ToMqRule], tuple[str, ToMqMapping, str]]:
        return ToMqRule, (self.name, self.config, self.origin)

    def _read_destination(self) -> None:
        to = self.config.destination
        attribute = partial(Attribute, captures=self._pattern.names, of_publication=True)
        self._queue = attribute("to.queue", to.queue, queue_name) if to.queue is not None else None
        self._topic = attribute("to.topic", to.topic, topic_string) if to.topic is not None else None
        self._queue_manager = (
            attribute("to.queue_manager", to.queue_manager, queue_manager_name) if to.queue_manager is not None else None
        )
        self._requests_queue = to.requests_queue

    def _read_payload(self) -> None:
        payload = self.config.payload
        self._payload_type = payload.type
        self._ccsid = payload.ccsid or CCSID_UTF8
        if payload.type != "bytes":
            try:
                target(self._ccsid)
            except Unmappable as error:
                raise RuleError.at("payload.ccsid", str(error)) from error

    def _read_attributes(self, attributes: MessageAttributes) -> None:
        words = attributes.persistence
        #: by QoS
        self._persistence = tuple(
            PERSISTENCE[words if isinstance(words, str) else words[qos]] for qos in STANDARD_PERSISTENCE
        )
        priority = attributes.priority
        self._priority = cmqc.MQPRI_PRIORITY_AS_Q_DEF if isinstance(priority, str) else priority
        expiry = attributes.expiry
        self._expiry = None if expiry == "as-published" else expiry_of(None if isinstance(expiry, str) else expiry)
        self._retained = attributes.retained
        format = attributes.format
        #: Format of the body; None, where the mapping does not say it: as the Payload Format Indicator does
        self._format: bytes | None = None
        if "format" in attributes.model_fields_set:
            self._format = _FORMATS[format] if format in _FORMATS else format.rstrip(" ").encode("ascii")
        self._rfh2 = attributes.rfh2
        text = partial(Attribute, captures=self._pattern.names, of_publication=True)
        where = "attributes."
        self._user: Attribute[bytes] | None = None
        if attributes.user_identifier is not None:
            self._user = text(where + "user_identifier", attributes.user_identifier, user_identifier)
        #: fields of the MQMD that differ from message to message
        self._fields: dict[str, Attribute[bytes]] = {}
        for field, written, check in (
            ("MsgId", attributes.msg_id, partial(identifier, field="MsgId", reason=cmqc.MQRC_MSG_ID_ERROR)),
            ("CorrelId", attributes.correl_id, partial(identifier, field="CorrelId", reason=cmqc.MQRC_CORREL_ID_ERROR)),
            ("ReplyToQ", attributes.reply_to_queue, _reply_queue),
            ("ReplyToQMgr", attributes.reply_to_queue_manager, _reply_queue_manager),
        ):
            if written is not None:
                self._fields[field] = text(where + _KEYS[field], written, check)
        self._properties = {
            name: text(f"{where}properties.{name}", template, str) for name, template in attributes.properties.items()
        }

    def map(self, publication: Publication) -> MappedMessage | None:
        """Return the message to put, None where the mapping does not take the publication, or raise Unmappable."""
        key = self._cache.key(publication)
        if key is None:
            return self._map(publication)
        if self._cache.knows(key):
            if self._reads_payload and not self._takes_payload(publication):
                return None
            return self._cache.mapped(key, publication)
        mapped = self._map(publication)
        # If the payload may be the reason for None, the next publication with the same key may still be taken.
        if mapped is not None or not self._reads_payload:
            self._cache.remember(key, publication, mapped)
        return mapped

    def _takes_payload(self, publication: Publication) -> bool:
        """Return whether the filter takes the payload; raise Unmappable if it cannot be converted, as `_map` does."""
        scope = PublicationScope(publication, {})
        if not self._filter.takes_payload(scope):
            return False
        self._body(scope, self._is_retained(publication))
        return True

    def _map(self, publication: Publication) -> MappedMessage | None:
        captures = self._pattern.captures(publication.topic)
        if captures is None:
            return None
        scope = PublicationScope(publication, captures)
        if not self._filter.takes(scope) or (self._routes and self.accepted_elsewhere(publication) is not None):
            return None
        destination = self._destination(scope)
        retained = self._is_retained(publication)
        clear = retained and destination.is_topic and not publication.payload
        body = self._body(scope, retained)
        asks = self._requests_queue is None or bool(publication.response_topic)
        fields = self._fields if asks else {}
        md_fields = {field: attribute.of(scope) for field, attribute in fields.items()} if fields else {}
        if self._requests_queue is None:
            correl_id = md_fields.get("CorrelId") or correl_id_of(publication.correlation_data)
        else:
            # Who answers may take either for the CorrelId of the answer: with none, it is the MsgId for all of them.
            correl_id = cmqc.MQCI_NONE
        expiry = self._expiry
        if expiry is None:
            expiry = expiry_of(publication.expiry)
        user = publication.user if self._user is None else self._user.of(scope)
        format = body_format(publication.payload_format) if self._format is None else self._format
        # Format and CodedCharSetId of the MQMD: of the RFH2, which the integration tables leave to the queue manager, or of
        # the body.
        outer = (cmqc.MQFMT_RF_HEADER_2, cmqc.MQCCSI_Q_MGR) if self._rfh2 else (format, self._ccsid)
        md = descriptor(user, self._persistence[publication.qos], expiry, self._priority, *outer)
        if correl_id != cmqc.MQCI_NONE:
            md_fields["CorrelId"] = correl_id
        if md_fields:
            md = msgspec.structs.replace(md, **requested(md_fields))
        properties = self._all_properties(publication, scope)
        hops = (*publication.hops, self._mark)
        original = publication.topic if destination.is_topic or not self._rfh2 else ""
        beside: dict[str, str | int | bool] = {}
        if self._rfh2:
            header = rfh2_of(
                publication,
                properties,
                hops,
                correl_id,
                mqps=None if destination.is_topic else (publication.topic, retained),
                original_topic=original,
                format=format,
                ccsid=self._ccsid,
            )
            body = header + body
        else:
            beside = message_properties(publication, properties, hops, correl_id, original_topic=original)
        return MappedMessage(
            destination=destination,
            message=Message(md, body),
            properties=beside,
            retain=retained and destination.is_topic,
            clear=clear,
            hops=hops,
            kept=self._kept(publication, hops, expiry) if asks else None,
        )

    def accepted_elsewhere(self, publication: Publication) -> str | None:
        """Return the name of a mapping below `otherwise` that accepts a publication."""
        return self._routes.accepting(publication.topic, lambda captures, _: PublicationScope(publication, captures))

    def _kept(self, publication: Publication, hops: tuple[str, ...], expiry: int) -> KeptRequest | None:
        """Return the part of a request that is to be kept; None where the mapping keeps none."""
        if self._requests_queue is None:
            return None
        md = descriptor(b"", self._persistence[publication.qos], expiry)
        header = rfh2_of(publication, {}, hops, cmqc.MQCI_NONE, mqps=(publication.topic, False))
        return KeptRequest(self._requests_queue, Message(md, header))

    def _destination(self, scope: Scope) -> Destination:
        if self._topic is not None:
            return Destination(self._topic.of(scope), True)
        assert self._queue is not None  # one of them is given
        queue_manager = self._queue_manager.of(scope) if self._queue_manager is not None else ""
        return Destination(self._queue.of(scope), False, queue_manager)

    def _is_retained(self, publication: Publication) -> bool:
        return publication.retain if self._retained == "as-published" else self._retained == "always"

    def _body(self, scope: PublicationScope, retained: bool) -> bytes:
        payload = scope.publication.payload
        if self._payload_type == "bytes" or (retained and not payload):
            return payload  # (an empty retained publication clears a topic, whatever its payload would be)
        if self._payload_type == "json":
            _ = scope.document  # raises Unmappable for what is none
        return in_ccsid(payload, self._ccsid)

    def _all_properties(self, publication: Publication, scope: Scope) -> Mapping[str, str]:
        if not self._properties:
            return publication.properties
        return publication.properties | {name: attribute.of(scope) for name, attribute in self._properties.items()}


#: MQMD field -> its key in the mapping
_KEYS = {
    "MsgId": "msg_id",
    "CorrelId": "correl_id",
    "ReplyToQ": "reply_to_queue",
    "ReplyToQMgr": "reply_to_queue_manager",
}


def _reply_queue(text: str) -> bytes:
    return queue_name(text, "reply queue", cmqc.MQRC_MISSING_REPLY_TO_Q).encode()


def _reply_queue_manager(text: str) -> bytes:
    return queue_name(text, "queue manager to reply to", cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR).encode()
