"""Mappings: YAML rules that move messages between MQ queues or topics and MQTT topics.

Both directions have one shape: `from`, `to`, and what happens in between. Which side is MQTT decides which attributes a
mapping has. What is left out is as the standard profile says (seed 004; `mappings/standard.yaml`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from bridge.config import values
from bridge.config.link import LOCAL
from bridge.config.section import ObjectName, Section, Truth

Guarantee = Literal["at-most-once", "at-least-once", "exactly-once"]
Retained = Literal["as-published", "never", "always"]
PayloadType = Literal["bytes", "text", "json"]
PersistenceWord = Literal["not-persistent", "persistent", "as-queue"]

Name = Annotated[
    str, values.text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,27}", "a mapping name of 1 to 28 of the characters A-Z a-z 0-9 . _ -")
]
TemplateText = Annotated[str, values.text(r"[^\x00]{1,10240}", "text, or a template such as PLANT.{line|upper}")]
"""A template; `bridge.mapping.template` reads it, and says what is wrong with it."""


class MqttSource(Section):
    """Where a mapping to MQ takes publications from."""

    mqtt: Annotated[str, values.text(r"[^\x00]{1,10240}", "a topic filter such as plant/{line}/+/{metric...}")]
    """Topic filter; `{name}` is a `+`, `{name...}` a `#` of one or more levels, that can be named in `to`."""
    link: str = LOCAL
    """The link to the broker; `local` are the bridge's own clients (and whoever else publishes to MQ topics)."""


class MqSource(Section):
    """Where a mapping to MQTT, or from MQ to MQ, takes messages from: a queue, or a topic and its subtree."""

    queue: ObjectName | None = None
    """Name of a queue. It is opened for exclusive input: nobody else takes messages from it meanwhile."""
    topic: Annotated[str, values.text(r"[^\x00]{1,10240}", "a topic filter such as prices/{symbol...}")] | None = None
    """Topic filter with captures, as for MQTT."""


class MqDestination(Section):
    """Where a mapping puts messages to."""

    queue: TemplateText | None = None
    """Template of the name of a queue."""
    queue_manager: TemplateText | None = None
    """Template of the name of its queue manager (ObjectQMgrName); None: this one. A client identifier is one, too."""
    topic: TemplateText | None = None
    """Template of a topic string."""


class MqttDestination(Section):
    """Where a mapping publishes to."""

    mqtt: TemplateText
    """Template of a topic name."""
    link: str = LOCAL
    """The link to the broker; `local` are the bridge's own clients."""


class TextPayload(Section):
    """`payload` in its long form: what the body is, and in which coded character set MQ has it."""

    type: Annotated[PayloadType, values.choice(PayloadType)] = "bytes"
    """`bytes` as they are; `text` between UTF-8 (MQTT) and a CCSID (MQ); `json` as text, which has to be JSON."""
    ccsid: Annotated[int, values.integer(1, 65535)] | None = None
    """CCSID of the text on the MQ side. To MQ None is 1208 (UTF-8); from MQ None is what the message itself says."""
    object: dict[str, TemplateText] = Field(default_factory=dict)
    """Only with `json`, to MQTT: the members of the JSON object to publish; `{text}` is the message's text."""


class FilterConfig(Section):
    """Which messages a mapping takes: those of which all that is written here is true. The others pass it by."""

    qos: list[Annotated[int, values.integer(0, 2)]] | None = None
    """The QoS of the publication: one of these. (From MQ: what its persistence or mqtt folder makes of it.)"""
    retained: Truth | None = None
    """Whether it is retained."""
    min_size: Annotated[int, values.size(0, values.GIB)] | None = None
    """Bytes of payload, at least."""
    max_size: Annotated[int, values.size(0, values.GIB)] | None = None
    """Bytes of payload, at most."""
    properties: dict[str, Any] = Field(default_factory=dict)
    """Property or MQMD field -> the value that it has, a list of those that it may have, or null: it is not there."""
    json_path: str | None = Field(default=None, alias="json")
    """A JSON path comparison on the payload (RFC 9535 filter expression), such as `$.temp > 30 && $.unit == 'C'`."""


class MessageAttributes(Section):
    """What the MQ message of a publication is like."""

    persistence: Annotated[PersistenceWord, values.choice(PersistenceWord)] | dict[
        Literal["0", "1", "2"], Annotated[PersistenceWord, values.choice(PersistenceWord)]
    ] = {"0": "not-persistent", "1": "persistent", "2": "persistent"}  # noqa: RUF012 - the model is frozen
    """MQMD.Persistence: one for all, or by QoS."""
    priority: Annotated[int, values.integer(0, 9)] | Literal["as-queue"] = "as-queue"
    """MQMD.Priority."""
    expiry: Annotated[float, values.duration(0.1, 100_000_000)] | Literal["unlimited", "as-published"] = "as-published"
    """MQMD.Expiry in seconds; `as-published` is the Message Expiry Interval of MQTT 5, and unlimited without one."""
    retained: Annotated[Retained, values.choice(Retained)] = "as-published"
    """Whether the message is put as a retained publication (MQPMO_RETAIN; for a queue, mqps.Ret)."""
    format: Annotated[str, values.text(r"[ -~]{1,8}", "none, string or an MQ format of 1 to 8 characters")] = "none"
    """Format of the body: `none` (MQFMT_NONE), `string` (MQFMT_STRING), or a format's own name."""
    rfh2: Truth = True
    """Whether an RFH2 stands before the body. Without, the same travels as message properties."""
    msg_id: TemplateText | None = None
    """Template of MQMD.MsgId: 48 hexadecimal digits, or text of at most 24 bytes; None: the queue manager makes one."""
    correl_id: TemplateText | None = None
    """Template of MQMD.CorrelId, as MsgId; None: the Correlation Data of MQTT 5 where there are any."""
    reply_to_queue: TemplateText | None = None
    """Template of MQMD.ReplyToQ; with one the message is a request (MQMT_REQUEST)."""
    reply_to_queue_manager: TemplateText | None = None
    """Template of MQMD.ReplyToQMgr."""
    user_identifier: TemplateText | None = None
    """Template of MQMD.UserIdentifier; None: the client's identity (from a link: the bridge's own)."""
    properties: dict[str, TemplateText] = Field(default_factory=dict)
    """More message properties: name in the usr folder -> template."""


class PublicationAttributes(Section):
    """What the MQTT publication of a message is like."""

    qos: Annotated[int, values.integer(0, 2)] | dict[
        Literal["persistent", "not-persistent"], Annotated[int, values.integer(0, 2)]
    ] = {"persistent": 2, "not-persistent": 0}  # noqa: RUF012 - the model is frozen
    """QoS: one for all, or by MQMD.Persistence. A message that a client published keeps its own (mqtt.qos)."""
    retained: Annotated[Retained, values.choice(Retained)] = "as-published"
    """Whether it is published with RETAIN."""
    expiry: Annotated[float, values.duration(1, 100_000_000)] | Literal["unlimited", "as-published"] = "as-published"
    """Message Expiry Interval (MQTT 5) in seconds; `as-published` is what is left of MQMD.Expiry."""
    response_topic: TemplateText | None = None
    """Template of the Response Topic (MQTT 5)."""
    correlation_data: TemplateText | None = None
    """Template of the Correlation Data (MQTT 5); None: MQMD.CorrelId where it is not zeros."""
    content_type: TemplateText | None = None
    """Template of the Content Type (MQTT 5)."""
    properties: dict[str, TemplateText] = Field(default_factory=dict)
    """More user properties (MQTT 5; usr folder for local clients): name -> template."""


class MappingBatchConfig(Section):
    """What one unit of work of a mapping holds at most."""

    messages: Annotated[int, values.integer(1, 5000)] = 200
    """Messages."""
    size: Annotated[int, values.size(1, 100 * values.MIB)] = 5 * values.MIB
    """Bytes of their payloads."""
    time: Annotated[float, values.duration(0, 10)] = 0.01
    """Seconds from the first message on until it is committed at the latest, while more could come."""


class MappingConfig(Section):
    """What mappings of both directions have in common."""

    enabled: Truth = True
    """false: it takes nothing; what comes for it waits (on its queue, its subscription, in its session at the broker)."""
    guarantee: Annotated[Guarantee, values.choice(Guarantee)] = "at-least-once"
    """How often a message arrives, whatever breaks."""
    filter: FilterConfig = Field(default_factory=FilterConfig)
    payload: TextPayload = Field(default_factory=TextPayload)
    batch: MappingBatchConfig = Field(default_factory=MappingBatchConfig)
    backouts: Annotated[int, values.integer(0, 1000)] = 3
    """How often a message that its destination does not take is backed out before it goes to the dead-letter queue."""


class ToMqMapping(MappingConfig):
    """Publications of MQTT clients, or of a broker, to a queue or topic."""

    source: MqttSource = Field(alias="from")
    destination: MqDestination = Field(alias="to")
    attributes: MessageAttributes = Field(default_factory=MessageAttributes)


class ToMqttMapping(MappingConfig):
    """Messages of a queue or topic to MQTT topics."""

    source: MqSource = Field(alias="from")
    destination: MqttDestination = Field(alias="to")
    attributes: PublicationAttributes = Field(default_factory=PublicationAttributes)


def _direction(data: Any) -> str | None:
    if isinstance(data, ToMqMapping):
        return "to-mq"
    if isinstance(data, ToMqttMapping):
        return "to-mqtt"
    source, destination = (data.get("from"), data.get("to")) if isinstance(data, Mapping) else (None, None)
    if isinstance(source, Mapping) and "mqtt" in source:
        return "to-mq"
    return "to-mqtt" if isinstance(destination, Mapping) and "mqtt" in destination else None


AnyMapping = Annotated[
    Annotated[ToMqMapping, Tag("to-mq")] | Annotated[ToMqttMapping, Tag("to-mqtt")],
    Discriminator(
        _direction,
        custom_error_type="unknown_type",
        custom_error_message="expected {expected}",
        custom_error_context={"expected": "a mapping with mqtt: in from or in to"},
    ),
]
"""A mapping; which side has `mqtt` says in which direction."""
