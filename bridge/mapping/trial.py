"""Test of a mapping with one message, without a queue manager."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from bridge.config.link import LOCAL, LinkConfig
from bridge.config.mapping import ToMqMapping
from bridge.config.models import Configuration
from bridge.mapping.attributes import Steps
from bridge.mapping.message_view import MessageView, message_of
from bridge.mapping.rates import LeftOut
from bridge.mapping.rule import Rule, ToMqRule, ToMqttRule, published_qos, received_qos, rule_of
from bridge.mapping.topic_pattern import pattern_of
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.conversion import publication_of
from bridge.telemetry.headers import TEXT_PROPERTIES
from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH, fits_user_identifier
from bridge.telemetry.message import CCSID_UTF8, MappedMessage, Message, Publication, Unmappable
from bridge.wire import cmqc

#: Maximum number of failed samples that are listed.
MAX_FAILURES: Final = 100


_LEFT_OUT: Final[Mapping[LeftOut, str]] = {
    LeftOut.LIMIT: "limit leaves it out: a message with its key passed less than limit.every ago",
    LeftOut.UNCHANGED: "changes leaves it out: its value is that of the last message with its key",
    LeftOut.NO_PARTS: "split makes no message of it: its array has no elements",
}


class NotTaken(Exception):
    """The mapping does not take the message. The text of the exception is the reason."""


class Trial(msgspec.Struct, frozen=True):
    """A mapping of a configuration, ready for a test."""

    rule: Rule
    #: None: the bridge's own clients
    link: LinkConfig | None
    #: client identifier of the publisher. A broker does not report it, so for a link it is the link's name
    publisher: str
    #: the mappings that name this one in `otherwise`
    fallbacks: tuple[Rule, ...] = ()

    def published(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        client_id: str = "",
        user: str = "",
        expiry: float | None = None,
        response_topic: str = "",
        correlation_data: str = "",
        content_type: str = "",
        properties: Mapping[str, str],
    ) -> Publication:
        """Return the publication of a client. Raises ValueError if MQ cannot have a user of that name."""
        if not fits_user_identifier(user):
            raise ValueError(f"the user name is longer than {USER_IDENTIFIER_LENGTH} bytes, the length of an MQ user")
        return Publication(
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            packet_id=1 if qos else 0,
            client_id=client_id or self.publisher,
            user=user.encode(),
            expiry=expiry,
            properties=PublishProperties(
                response_topic=response_topic or None,
                correlation_data=correlation_data.encode() or None,
                content_type=content_type or None,
                user_property=(*properties.items(),),
            ),
        )

    def received(self, message: Message, topic: str | None = None) -> Publication:
        """Return the publication in a message. `topic` overrides its topic. Raises NotTaken or Unmappable."""
        publication = publication_of(message, topic=topic)
        if not publication.topic:
            hint = "(hint: --topic, and --each-line for payloads)"
            raise NotTaken(f"the message is not a publication, because it contains no topic {hint}")
        return publication

    def message(self, body: bytes, format_: str | None, ccsid: int | None, encoding: int | None = None) -> Message:
        """Return the message with a body. If the mapping reads records, a JSON object becomes one. Raises Unmappable."""
        rule = self.rule
        record = rule.record if isinstance(rule, ToMqttRule) else None
        if record is None or not _is_object(body):
            return message_of(body, format_, ccsid, encoding)
        payload = rule.config.payload
        ccsid = payload.ccsid or ccsid or CCSID_UTF8
        encoding = payload.encoding_number or encoding or payload.encoding_for(ccsid)
        return message_of(record.record_of(body, ccsid, encoding), format_ or "", ccsid, encoding)

    @property
    def splits(self) -> bool:
        """Whether a message can become several."""
        return self.rule.config.split is not None

    def messages(self, publication: Publication, steps: Steps | None = None) -> Sequence[MappedMessage]:
        """Return the messages made from a publication. Raises NotTaken, or Unmappable if the mapping rejects it.

        The steps of the mapping are added to `steps`.
        """
        rule = self.rule
        assert isinstance(rule, ToMqRule)
        if self.link is not None:
            publication.qos = received_qos(rule.config.guarantee, publication.qos)
        messages = rule.messages(publication, steps)
        if isinstance(messages, LeftOut):
            raise NotTaken(_LEFT_OUT[messages])
        if messages is None:
            source = rule.config.source.mqtt
            if not pattern_of(source).matches(publication.topic):
                raise NotTaken(f"topic {publication.topic} does not match {source}")
            if (other := rule.accepted_elsewhere(publication)) is not None:
                raise NotTaken(f"mapping {other} in its otherwise accepts it")
            raise NotTaken(
                self._filtered(lambda other: isinstance(other, ToMqRule) and other.messages(publication) is not None)
            )
        return messages

    def publications(
        self,
        message: Message,
        topic: str | None = None,
        request: Message | None = None,
        steps: Steps | None = None,
    ) -> Sequence[Publication]:
        """Return the publications made from a message. Raises NotTaken, or Unmappable if the mapping rejects it.

        `topic` is the topic of a message from a subscription. `request` is the stored request that the message answers. The
        steps of the mapping are added to `steps`.
        """
        rule = self.rule
        assert isinstance(rule, ToMqttRule)
        publications = rule.publications(message, topic=topic, request=request, steps=steps)
        if isinstance(publications, LeftOut):
            raise NotTaken(_LEFT_OUT[publications])
        if publications is None:
            if rule.queue is not None:
                dead_lettered = rule.config.filter.others == "dead-letter"
                fate = "goes to the dead-letter queue" if dead_lettered else "is discarded"
                raise NotTaken(f"its filter does not accept it, and the message {fate} (filter.others)")
            if (other := rule.accepted_elsewhere(message, topic)) is not None:
                raise NotTaken(f"mapping {other} in its otherwise accepts it")
            is_taken = self._filtered(
                lambda other: isinstance(other, ToMqttRule) and other.publications(message, topic=topic) is not None
            )
            raise NotTaken(is_taken.replace("its filter", "its topic or its filter", 1))
        for publication in publications:
            if self.link is not None:
                publication.qos = published_qos(rule.config.guarantee, publication.qos, self.link.maximum_qos)
            else:
                rule.message(publication)  # the publisher may not be allowed to publish to its topic
        return publications

    def _filtered(self, takes: Callable[[Rule], bool]) -> str:
        """Describe what happens to a message that the filter of the mapping rejects."""
        for other in self.fallbacks:
            try:
                is_taken = takes(other)
            except Unmappable:
                is_taken = True  # and dead-letters it
            if is_taken:
                return f"its filter does not accept it; mapping {other.name} does (otherwise)"
        return "its filter does not accept it, and this mapping discards it"


def _is_object(body: bytes) -> bool:
    """Return whether a body is a JSON object."""
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class SampleFailure(msgspec.Struct, frozen=True, rename="camel"):
    """A sample that a mapping rejects or does not take."""

    #: from 1
    number: int
    #: name of the reason code, or "" if the mapping does not take the sample
    reason: str
    why: str


class SampleResults(msgspec.Struct, rename="camel"):
    """The results of a mapping for the messages of a file."""

    samples: int = 0
    mapped: int = 0
    not_taken: int = 0
    rejected: int = 0
    #: destination -> number of messages
    destinations: dict[str, int] = {}
    #: the first failures
    failures: list[SampleFailure] = []

    def add(self, destinations_of: Callable[[], Iterable[str]]) -> None:
        """Count a sample. `destinations_of` maps it, and raises NotTaken or Unmappable."""
        self.samples += 1
        try:
            destinations = destinations_of()
        except NotTaken as error:
            self.not_taken += 1
            self._add_failure("", str(error))
        except Unmappable as error:
            self.rejected += 1
            self._add_failure(cmqc.reason_name(error.reason), str(error))
        else:
            self.mapped += 1
            for destination in destinations:
                self.destinations[destination] = self.destinations.get(destination, 0) + 1

    def _add_failure(self, reason: str, why: str) -> None:
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(SampleFailure(self.samples, reason, why))


def trial_of(name: str, configuration: Configuration) -> Trial:
    """Return the trial of a mapping. Raises KeyError if the mapping does not exist."""
    config = configuration.mappings[name]
    link = (config.source if isinstance(config, ToMqMapping) else config.destination).link
    publisher = "mqbridge-try" if link == LOCAL else link
    origin = configuration.queue_manager.name
    fallbacks = tuple(
        rule_of(other, fallback, origin)
        for other, fallback in configuration.mappings.items()
        if name in fallback.otherwise
    )
    return Trial(rule_of(name, config, origin), configuration.links.get(link), publisher, fallbacks)


def message_json(mapped: MappedMessage) -> dict[str, Any]:
    """Return the message made from a publication, and its destination, as JSON."""
    to = mapped.destination
    where = {"topic": to.name} if to.is_topic else {"queue": to.name, "queueManager": to.queue_manager}
    return {
        "destination": where,
        "retain": mapped.retain,
        "clear": mapped.clear,
        "requestsQueue": mapped.kept.queue if mapped.kept is not None else "",
        "as": mapped.authority,
        "properties": mapped.properties,
        **MessageView(mapped.message.md, mapped.message.data).json(),
    }


def publication_json(link: str, publication: Publication) -> dict[str, Any]:
    """Return the publication made from a message, and its link, as JSON."""
    properties = publication.properties
    view: dict[str, Any] = {
        "topic": publication.topic,
        "link": link,
        "qos": publication.qos,
        "retain": publication.retain,
        "expiry": publication.expiry,
        **{
            element: "" if (value := getattr(properties, field)) is None else text(value)
            for field, element, _, text in TEXT_PROPERTIES
        },
        "payloadFormatIndicator": properties.payload_format_indicator,
        "clientId": publication.client_id,
        "properties": publication.user_properties,
        "hops": ",".join(publication.hops),
    }
    if len(publication.user_properties) < len(properties.user_property):
        view["userProperties"] = properties.user_property
    try:
        return {**view, "body": publication.payload.decode(), "bodyEncoding": "utf-8"}
    except UnicodeDecodeError:
        return {**view, "body": base64.b64encode(publication.payload).decode(), "bodyEncoding": "base64"}
