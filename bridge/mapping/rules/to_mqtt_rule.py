"""Rules of mappings to MQTT: an MQ message becomes a publication as the mapping says.

Where the mapping says nothing, it becomes what the integration tables say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bridge.config.mapping import PublicationAttributes, ToMqttMapping
from bridge.mapping.envelope import Envelope
from bridge.mapping.payload import json_object, utf_8
from bridge.mapping.rules.attribute import Attribute, located
from bridge.mapping.rules.errors import RuleError
from bridge.mapping.rules.filter import Filter
from bridge.mapping.rules.rendered import correlation, mqtt_string, topic_name, topic_string
from bridge.mapping.rules.routes import Routes
from bridge.mapping.rules.rule_cache import MessageRuleCache
from bridge.mapping.rules.scope import MessageScope
from bridge.mapping.rules.topic_pattern import TopicPattern
from bridge.telemetry.headers import mark_of, user_property_in
from bridge.telemetry.message import Message, Publication, Unmappable
from bridge.telemetry.subscription import publication_qos
from bridge.wire import cmqc
from bridge.wire.mq.ccsid import character_set

Result = TypeVar("Result")

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
        self._response_topic = self._optional("response_topic", attributes.response_topic, topic_name)
        self._correlation_data = self._optional("correlation_data", attributes.correlation_data, correlation)
        text = partial(mqtt_string, what="Content Type")
        self._content_type = self._optional("content_type", attributes.content_type, text)
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
        envelope = Envelope(message, None)
        return self._accepted(envelope, topic if topic is not None else envelope.topic)

    def _accepted(self, envelope: Envelope, topic: str | None) -> str | None:
        qos = publication_qos(envelope.md.Persistence, envelope.qos)

        def scope_of(captures: dict[str, str], ccsid: int | None) -> MessageScope:
            return MessageScope(envelope, captures, topic=topic or "", qos=qos, ccsid=ccsid)

        return self._routes.accepting(topic or "", scope_of)

    def _map(self, message: Message, topic: str | None, request: Message | None) -> Publication | None:
        envelope = Envelope(message, request)
        topic = topic if topic is not None else envelope.topic
        captures: dict[str, str] = {}
        if self._pattern is not None:
            if not topic:
                why = f"the message says of no topic that it was published to, and the mapping takes {self._pattern.text}"
                raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, why)
            found = self._pattern.captures(topic)
            if found is None:
                return None
            captures = found
        own_qos, persistence = envelope.qos, envelope.md.Persistence
        source_qos = publication_qos(persistence, own_qos)
        scope = MessageScope(envelope, captures, topic=topic, qos=source_qos, ccsid=self._ccsid)
        if not self._filter.takes(scope) or (self._routes and self._accepted(envelope, topic) is not None):
            return None
        qos = self._qos
        if qos is None:
            qos = own_qos if own_qos is not None else self._qos_by_persistence.get(persistence, source_qos)
        retained = envelope.retained if self._retained == "as-published" else self._retained == "always"
        mqtt = envelope.properties("mqtt")
        properties = dict(envelope.properties("usr"))
        for name, attribute in self._properties.items():
            properties[name] = attribute.of(scope)
        return Publication(
            topic=self._topic.of(scope),
            payload=self._payload(scope, retained),
            qos=qos,
            retain=retained,
            client_id=mqtt.get("clientId", ""),
            user=envelope.user,
            expiry=envelope.expiry if self._expiry_as_published else self._expiry,
            response_topic=self._asks_at(scope),
            correlation_data=(
                envelope.correlation_data if self._correlation_data is None else self._correlation_data.of(scope)
            ),
            content_type=mqtt.get("contentType", "") if self._content_type is None else self._content_type.of(scope),
            # What the mapping has converted is UTF-8, and so is JSON.
            payload_format=envelope.payload_format if self._payload_type == "bytes" else 1,
            properties=properties,
            user_property=user_property_in(mqtt.get("userProperties"), envelope.properties("usr")),
            hops=(*envelope.hops, self._mark),
        )

    def _asks_at(self, scope: MessageScope) -> str:
        """Return the Response Topic; an answer asks for none itself."""
        if self._response_topic is not None:
            return self._response_topic.of(scope)
        return "" if scope.envelope.is_answer else scope.envelope.response_topic

    def _payload(self, scope: MessageScope, retained: bool) -> bytes:
        body = scope.envelope.body
        if self._payload_type == "bytes" or (retained and not body):
            return body  # (an empty retained publication clears a topic, whatever its payload would be)
        if self._object:
            return json_object({member: attribute.of(scope) for member, attribute in self._object.items()})
        if self._payload_type == "json":
            _ = scope.document  # raises Unmappable for what is none
        return utf_8(body, scope.ccsid, scope.envelope.encoding)

    def _attribute(self, where: str, text: str, check: Callable[[str], Result]) -> Attribute[Result]:
        return Attribute(where, text, check, self._captures)

    def _optional(self, key: str, text: str | None, check: Callable[[str], Result]) -> Attribute[Result] | None:
        return None if text is None else self._attribute(f"attributes.{key}", text, check)
