"""The fields of a message that a rule uses: in all others messages may differ, and still be mapped alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.template import MD_FIELDS, Template

#: Fields of an MQMD that every rule to MQTT looks at.
_MD_ALWAYS = frozenset(
    ("Format", "Encoding", "CodedCharSetId", "Persistence", "Expiry", "UserIdentifier", "CorrelId")
)
#: Bytes of a payload, more than there ever are.
_LONGEST = 2**40
_MESSAGE_ID_NAMES = frozenset(("messageId", "mqtt.msgid"))


class UsedFields(msgspec.Struct, frozen=True):
    """The fields that a mapping uses beside topic, client and the other properties, which it always does."""

    #: the payload itself: what a template or a filter reads
    payload: bool = False
    #: the payload in a template
    text: bool = False
    #: its length: least and most bytes
    size: tuple[int, int] | None = None
    #: the message id, in more than its own place in the mqtt folder
    message_id: bool = False
    #: fields of the MQMD
    md: frozenset[str] = _MD_ALWAYS


def used_fields_of(config: ToMqMapping | ToMqttMapping) -> UsedFields:
    """Return the fields of a message that a mapping uses."""
    templates = _to_mq(config) if isinstance(config, ToMqMapping) else _to_mqtt(config)
    names = set(config.filter.properties).union(*(Template(text).names for text in templates if text is not None))
    least, most = config.filter.min_size, config.filter.max_size
    # Of message properties, which stand beside a message without an MQRFH2, each has its own value.
    without_header = isinstance(config, ToMqMapping) and not config.attributes.rfh2
    return UsedFields(
        payload="text" in names or config.filter.json_path is not None,
        text="text" in names,
        size=None if least is None and most is None else (least or 0, _LONGEST if most is None else most),
        message_id=without_header or not names.isdisjoint(_MESSAGE_ID_NAMES),
        md=_MD_ALWAYS | {field for name in names if (field := name.removeprefix("md.")) != name and field in MD_FIELDS},
    )


def _to_mq(config: ToMqMapping) -> Iterator[str | None]:
    to, attributes = config.destination, config.attributes
    yield from (to.queue, to.queue_manager, to.topic)
    yield from (attributes.msg_id, attributes.correl_id, attributes.reply_to_queue, attributes.reply_to_queue_manager)
    yield attributes.user_identifier
    yield from attributes.properties.values()


def _to_mqtt(config: ToMqttMapping) -> Iterable[str | None]:
    attributes = config.attributes
    yield config.destination.mqtt
    yield from (attributes.response_topic, attributes.correlation_data, attributes.content_type)
    yield from attributes.properties.values()
    yield from config.payload.object.values()
