"""Rules of mappings to MQTT: an MQ message becomes a publication as the mapping says.

Where the mapping says nothing, it becomes what the integration tables say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from bridge.config.mapping import PublicationAttributes, ToMqttMapping
from bridge.mapping.payload import json_object, utf_8
from bridge.mapping.rules.attribute import Attribute, located
from bridge.mapping.rules.errors import RuleError
from bridge.mapping.rules.filter import Filter
from bridge.mapping.rules.rendered import correlation, mqtt_string, topic_name, topic_string
from bridge.mapping.rules.routes import Routes
from bridge.mapping.rules.rule_cache import MessageRuleCache
from bridge.mapping.rules.scope import MessageScope
from bridge.mapping.rules.topic_pattern import TopicPattern
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import Headers, mark_of
from bridge.telemetry.message import Message, Publication, Unmappable, with_values
from bridge.telemetry.subscription import publication_qos
from bridge.wire import cmqc
from bridge.wire.mq.ccsid import character_set

Result = TypeVar("Result")

#: Property of MQTT 5 that a mapping may set -> its check.
_CHECKS: dict[str, Callable[[str], object]] = {
    "response_topic": topic_name,
    "correlation_data": correlation,
    "content_type": partial(mqtt_string, what="Content Type"),
}

_PERSISTENCE = {"not-persistent": cmqc.MQPER_NOT_PERSISTENT, "persistent": cmqc.MQPER_PERSISTENT}


class ToMqttRule:
    """One mapping to MQTT, as a function of messages. Raises RuleError.

    A QoS for all is the QoS of all; by persistence it is that of messages of MQ applications, and what an MQTT client
    published (mqtt.qos) keeps its own. `origin` is the name of the queue manager, for the hop mark. It is cheap to
    pickle: the other side makes it anew.
    """

    def __init__(self, name: str, config: ToMqttMapping, origin: str) -> None:
        self.name, self.config, self.origin = name, config, origin
        self._mark = mark_of(origin, name)
        source = config.source
        #: the queue to take messages from; None: they come from a subscription
        self.queue = source.queue
        #: the queue with what is kept of requests that its messages answer; None: they answer none
        self.requests_queue = source.requests_queue
        self._pattern = located("from.topic", TopicPattern, source.topic) if source.topic is not None else None
        #: filter of that subscription
        self.source_filter = self._pattern.filter if self._pattern is not None else None
        self._captures = self._pattern.names if self._pattern is not None else ()
        self._filter = Filter(config.filter, self._captures)
        self._routes = Routes(config.routes)
        # A local client is a subscriber to an MQ topic.
        check = topic_string if config.destination.link == "local" else topic_name
        self._topic = self._attribute("to.mqtt", config.destination.mqtt, check)
        self._read_payload()
        self._read_attributes(config.attributes)
        self._cache = MessageRuleCache(config)

    def __reduce__(self) -> tuple[type[ToMqttRule], tuple[str, ToMqttMapping, str]]:
        return ToMqttRule, (self.name, self.config, self.origin)

    def _read_payload(self) -> None:
        payload = self.config.payload
        if payload.ccsid is not None and character_set(payload.ccsid) is None:
            raise RuleError.at("payload.ccsid", f"CCSID {payload.ccsid} is not known here")
        self._payload_type, self._ccsid = payload.type, payload.ccsid
        self._object = {
            member: self._attribute(f"payload.object.{member}", template, str)
            for member, template in payload.object.items()
        }

    def _read_attributes(self, attributes: PublicationAttributes) -> None:
        qos = attributes.qos
        self._qos = qos if isinstance(qos, int) else None
        self._qos_by_persistence = (
            {} if isinstance(qos, int) else {_PERSISTENCE[persistence]: one for persistence, one in qos.items()}
        )
        self._retained = attributes.retained
        self._expiry_as_published = attributes.expiry == "as-published"
        self._expiry = None if isinstance(attributes.expiry, str) else attributes.expiry
        #: field of PublishProperties -> the template that sets it
        self._mqtt_properties = {
            field: self._attribute(f"attributes.{field}", text, check)
            for field, check in _CHECKS.items()
            if (text := getattr(attributes, field)) is not None
        }
        text = partial(mqtt_string, what="value of a user property")
        self._properties = {
            name: self._attribute(f"attributes.properties.{name}", template, text)
            for name, template in attributes.properties.items()
        }

    def map(
        self, message: Message, *, topic: str | None = None, request: Message | None = None
    ) -> Publication | None:
        """Return the publication, None where the mapping does not take the message, or raise Unmappable.

        `topic` is the topic string that the message was published to, where that is known from elsewhere than its RFH2;
        `request` is what is kept of the request that the message answers.
        """
        key = self._cache.key(message, topic) if request is None else None
        if key is None:
            return self._map(message, topic, request)
        if self._cache.knows(key):
            return self._cache.mapped(key, message)
        publication = self._map(message, topic, None)
        self._cache.remember(key, publication)
        return publication

    def accepted_elsewhere(self, message: Message, topic: str | None = None) -> str | None:
        """Return the name of a mapping below `otherwise` that accepts a message."""
        headers = Headers(message)
        return self._accepted(headers, headers.properties, topic if topic is not None else headers.topic)

    def _accepted(self, headers: Headers, properties: PublishProperties, topic: str | None) -> str | None:
        qos = publication_qos(headers.md.Persistence, headers.qos)

        def scope_of(captures: dict[str, str], ccsid: int | None) -> MessageScope:
            return MessageScope(headers, captures, properties, topic=topic or "", qos=qos, ccsid=ccsid)

        return self._routes.accepting(topic or "", scope_of)

    def _map(self, message: Message, topic: str | None, request: Message | None) -> Publication | None:
        headers = Headers(message)
        properties = headers.properties
        if request is not None:
            asked = Headers(request).properties
            properties = msgspec.structs.replace(
                properties, response_topic=asked.response_topic, correlation_data=asked.correlation_data
            )
        topic = topic if topic is not None else headers.topic
        captures: dict[str, str] = {}
        if self._pattern is not None:
            if not topic:
                why = f"the message says of no topic that it was published to, and the mapping takes {self._pattern.text}"
                raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, why)
            found = self._pattern.captures(topic)
            if found is None:
                return None
            captures = found
        own_qos, persistence = headers.qos, headers.md.Persistence
        source_qos = publication_qos(persistence, own_qos)
        scope = MessageScope(headers, captures, properties, topic=topic, qos=source_qos, ccsid=self._ccsid)
        if not self._filter.takes(scope) or (self._routes and self._accepted(headers, properties, topic) is not None):
            return None
        qos = self._qos
        if qos is None:
            qos = own_qos if own_qos is not None else self._qos_by_persistence.get(persistence, source_qos)
        retained = headers.retained if self._retained == "as-published" else self._retained == "always"
        changes: dict[str, Any] = {field: attribute.of(scope) for field, attribute in self._mqtt_properties.items()}
        if request is not None and "response_topic" not in changes:
            changes["response_topic"] = None  # an answer asks for none itself
        if self._payload_type != "bytes":
            changes["payload_format_indicator"] = 1  # what the mapping has converted is UTF-8, and so is JSON
        if self._properties:
            own = {name: attribute.of(scope) for name, attribute in self._properties.items()}
            changes["user_property"] = with_values(properties.user_property, own)
        return Publication(
            topic=self._topic.of(scope),
            payload=self._payload(scope, retained),
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
            return body  # (an empty retained publication clears a topic, whatever its payload would be)
        if self._object:
            return json_object({member: attribute.of(scope) for member, attribute in self._object.items()})
        if self._payload_type == "json":
            _ = scope.document  # raises Unmappable for what is none
        return utf_8(body, scope.ccsid, scope.headers.encoding)

    def _attribute(self, where: str, text: str, check: Callable[[str], Result]) -> Attribute[Result]:
        return Attribute(where, text, check, self._captures)
