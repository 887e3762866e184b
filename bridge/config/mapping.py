"""Mappings: YAML rules that move messages between MQ queues or topics and MQTT topics.

A mapping has `from`, `to` and attributes. Its attributes depend on which side is MQTT. Missing keys have the values of the
standard profile (docs/reference/standard-profile.md).
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    model_validator,
)

from bridge.config import values
from bridge.config.link import LOCAL, LinkReference
from bridge.config.problems import suggestion
from bridge.config.record import RecordOptions
from bridge.config.table import TableConfig
from bridge.config.values import ObjectName, Section, Truth
from bridge.files import regular_content

Retained = Literal["as-published", "never", "always"]
PersistenceWord = Literal["not-persistent", "persistent", "as-queue"]
ExpiryWord = Literal["unlimited", "as-published"]

_TEMPLATE = values.text(r"[^\x00]{1,10240}", "text, or a template such as PLANT.{line|upper}")
TemplateText = Annotated[str, _TEMPLATE]
"""A template, parsed and validated by `bridge.mapping.template`."""
Check = Literal[
    "queue",
    "queue manager",
    "reply queue",
    "reply queue manager",
    "topic string",
    "topic name",
    "MsgId",
    "CorrelId",
    "UserIdentifier",
    "Correlation Data",
    "Content Type",
    "User Property",
    "text",
]
"""The required type of a template's result. `bridge.mapping.attributes` implements the checks."""
_NAMES = frozenset(
    ("queue", "queue manager", "reply queue", "reply queue manager", "topic string", "topic name", "UserIdentifier")
)
"""Checks of names that `allow` lists."""


@dataclass(frozen=True)
class Target:
    """The field that a mapping attribute sets, and the check for its templates.

    Each attribute below has a target. Several things are derived from this table: parsing and checks of rules, the fields
    that a rule uses (for the rule cache), the JSON Schema and the reference page.
    """

    part: Literal["object", "MQMD", "options", "RFH2", "usr", "publication", "payload"]
    """Part of the message: `object` is the MQOD, `options` the MQPMO, and `usr` message properties or User Properties."""
    field: str = ""
    """Field of the part. "" for the whole part."""
    check: Check | None = None
    """None: the attribute is a literal, validated by its model."""


_PropertyName = Annotated[str, values.text(r"[^\x00-\x1f]{1,4095}", "the name of a property")]
Properties = dict[_PropertyName, TemplateText]
"""Property name -> template of its value."""

PropertyType = Literal[
    "string", "boolean", "int8", "int16", "int32", "int64", "float", "double", "bytes"
]  # fmt: skip


class TypedProperty(Section):
    """A message property with its own type."""

    value: TemplateText
    """Template of the value, such as `{$.temp}`."""
    type: Annotated[PropertyType, values.choice(PropertyType)]
    """Type of the property: `string`, `boolean` (true, false, 1 or 0), an integer, a floating-point number, or `bytes`
    (hexadecimal digits). A value of another type is an error of the message."""

    def __str__(self) -> str:
        return f"{self.value} ({self.type})"


def _text_or_typed(data: Any) -> str:
    return "typed" if isinstance(data, Mapping | TypedProperty) else "text"


MessageProperties = dict[
    _PropertyName,
    Annotated[
        Annotated[TemplateText, Tag("text")] | Annotated[TypedProperty, Tag("typed")], Discriminator(_text_or_typed)
    ],
]
"""Property name -> template of its value, or its value and type."""

STANDARD_PERSISTENCE: dict[Literal["0", "1", "2"], PersistenceWord] = {
    "0": "not-persistent",
    "1": "persistent",
    "2": "persistent",
}
"""MQMD.Persistence by QoS of the publication (integration tables, "Persistence")."""
STANDARD_QOS: dict[Literal["persistent", "not-persistent"], int] = {"persistent": 2, "not-persistent": 0}
"""QoS by MQMD.Persistence of the message (integration tables, "QoS")."""

_QOS = values.integer(0, 2)
_PERSISTENCE = values.choice(PersistenceWord)


def _one_or_each(data: Any) -> str:
    return "each" if isinstance(data, Mapping) else "one"


class MessageAttributes(Section):
    """Attributes of the MQ message made from a publication."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "qos": "no qos, because the message of a publication has none (write persistence:, which may say it for each QoS)",
        "response_topic": "no Response Topic in a mapping to MQ (write reply_to_queue:)",
        "correlation_data": "no Correlation Data in a mapping to MQ (write correl_id:)",
        "content_type": "no Content Type in a mapping to MQ (write format:, or a property of your own in properties:)",
    }

    persistence: Annotated[
        Annotated[
            PersistenceWord,
            values.choice(PersistenceWord, " (or a mapping from QoS to one of these, such as {0: not-persistent})"),
            Tag("one"),
        ]
        | Annotated[
            dict[
                Annotated[Literal["0", "1", "2"], values.choice(Literal["0", "1", "2"])],
                Annotated[PersistenceWord, _PERSISTENCE],
            ],
            AfterValidator(lambda overrides: STANDARD_PERSISTENCE | overrides),
            Tag("each"),
        ],
        Discriminator(_one_or_each),
        Target("MQMD", "Persistence"),
    ] = Field(default_factory=STANDARD_PERSISTENCE.copy)
    """MQMD.Persistence: one value, or values by QoS. A missing QoS has the value of the standard profile."""
    priority: Annotated[
        int | Literal["as-queue"],
        values.one_of(values.integer(0, 9), values.choice(Literal["as-queue"])),
        Target("MQMD", "Priority"),
    ] = "as-queue"
    """MQMD.Priority."""
    expiry: Annotated[
        float | ExpiryWord,
        values.one_of(values.duration(0.1, 100_000_000), values.choice(ExpiryWord)),
        Target("MQMD", "Expiry"),
    ] = "as-published"
    """MQMD.Expiry in seconds. `as-published`: the Message Expiry Interval of MQTT 5, or unlimited if there is none."""
    retained: Annotated[Retained, values.choice(Retained), Target("options", "MQPMO_RETAIN")] = "as-published"
    """Whether the message is put as a retained publication (MQPMO_RETAIN, or mqps.Ret for a queue)."""
    format: Annotated[
        str, values.text(r"[ -~]{1,8}", "none, string or an MQ format of 1 to 8 characters"), Target("RFH2", "Format")
    ] = "none"
    """Format of the body: `none` (MQFMT_NONE), `string` (MQFMT_STRING), or the name of another format."""
    rfh2: Annotated[Truth, Target("RFH2")] = True
    """Whether an RFH2 header precedes the body. If false, message properties carry the same information."""
    msg_id: Annotated[TemplateText | None, Target("MQMD", "MsgId", "MsgId")] = None
    """Template of MQMD.MsgId: 48 hexadecimal digits, or text of at most 24 bytes. None: generated by the queue manager."""
    correl_id: Annotated[TemplateText | None, Target("MQMD", "CorrelId", "CorrelId")] = None
    """Template of MQMD.CorrelId, in the format of `msg_id`. None: the Correlation Data of MQTT 5, if any."""
    reply_to_queue: Annotated[TemplateText | None, Target("MQMD", "ReplyToQ", "reply queue")] = None
    """Template of MQMD.ReplyToQ. If set, the message is a request (MQMT_REQUEST)."""
    reply_to_queue_manager: Annotated[TemplateText | None, Target("MQMD", "ReplyToQMgr", "reply queue manager")] = None
    """Template of MQMD.ReplyToQMgr."""
    user_identifier: Annotated[TemplateText | None, Target("MQMD", "UserIdentifier", "UserIdentifier")] = None
    """Template of MQMD.UserIdentifier. None: the client's user (for a link, the bridge's own)."""
    properties: Annotated[MessageProperties, Target("usr", check="text")] = Field(default_factory=dict)
    """Additional message properties: name in the usr folder -> template. With a type: `{value: "{$.temp}", type: double}`."""

    @property
    def has_typed_properties(self) -> bool:
        """Whether a property has its own type."""
        return any(isinstance(value, TypedProperty) for value in self.properties.values())


class PublicationAttributes(Section):
    """Attributes of the MQTT publication made from a message."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        "persistence": "no persistence, because a publication has none (write qos:, which may say it for persistent and"
        " not-persistent)",
        "priority": "no priority, because MQTT has none",
        "format": "no format, because a publication has none (write payload:, and for MQTT 5 content_type:)",
        "rfh2": "no rfh2, because a publication has no headers (write properties: for those of MQTT 5)",
        "msg_id": "no msg_id, because a publication has none (write properties: {name: '{md.MsgId}'})",
        "correl_id": "no correl_id in a mapping to MQTT (write correlation_data:)",
        "reply_to_queue": "no reply_to_queue in a mapping to MQTT (write response_topic:)",
        "reply_to_queue_manager": "no reply_to_queue_manager in a mapping to MQTT (write response_topic:)",
        "user_identifier": "no user_identifier, because a publication has none (write properties: {name:"
        " '{md.UserIdentifier}'})",
    }

    qos: Annotated[
        Annotated[
            int,
            values.integer(0, 2, " (or a mapping with persistent: and not-persistent:, each one of these)"),
            Tag("one"),
        ]
        | Annotated[
            dict[
                Annotated[
                    Literal["persistent", "not-persistent"], values.choice(Literal["persistent", "not-persistent"])
                ],
                Annotated[int, _QOS],
            ],
            AfterValidator(lambda overrides: STANDARD_QOS | overrides),
            Tag("each"),
        ],
        Discriminator(_one_or_each),
        Target("publication", "qos"),
    ] = Field(default_factory=STANDARD_QOS.copy)
    """QoS: one value, or values by MQMD.Persistence. A missing value is that of the standard profile. With values by
    persistence, messages published by an MQTT client keep their own QoS (mqtt.qos)."""
    retained: Annotated[Retained, values.choice(Retained), Target("publication", "retain")] = "as-published"
    """Whether the publication has the RETAIN flag."""
    expiry: Annotated[
        float | ExpiryWord,
        values.one_of(values.duration(1, 100_000_000), values.choice(ExpiryWord)),
        Target("publication", "expiry"),
    ] = "as-published"
    """Message Expiry Interval (MQTT 5) in seconds. `as-published`: the remaining MQMD.Expiry."""
    response_topic: Annotated[TemplateText | None, Target("publication", "response_topic", "topic name")] = None
    """Template of the Response Topic (MQTT 5)."""
    correlation_data: Annotated[TemplateText | None, Target("publication", "correlation_data", "Correlation Data")] = (
        None
    )
    """Template of the Correlation Data (MQTT 5). None: MQMD.CorrelId, unless it is zero."""
    content_type: Annotated[TemplateText | None, Target("publication", "content_type", "Content Type")] = None
    """Template of the Content Type (MQTT 5)."""
    properties: Annotated[Properties, Target("usr", check="User Property")] = Field(default_factory=dict)
    """Additional user properties (MQTT 5, or the usr folder for local clients): name -> template."""


Guarantee = Literal["at-most-once", "at-least-once", "exactly-once"]
PayloadType = Literal["bytes", "text", "json", "record"]
DeadLettersFull = Literal["pause", "discard"]
Others = Literal["dead-letter", "discard"]
Order = Literal["destination", "strict"]
Authority = Literal["bridge", "publisher"]
"""Whose authority applies to a destination."""

Name = Annotated[
    str,
    values.text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,27}", "a mapping name of 1 to 28 of the characters A-Z a-z 0-9 . _ -"),
]
TopicFilterText = Annotated[str, values.text(r"[^\x00]{1,10240}", "a topic filter such as plant/{line}/+/{metric...}")]
"""A topic filter with captures, parsed by `bridge.mapping.topic_pattern`."""
_ONE_SIDE = "exactly one of queue: and topic:"
_ONE_SIDE_SCHEMA = ConfigDict(
    json_schema_extra={
        "oneOf": [{"required": [key], "properties": {key: {"type": "string"}}} for key in ("queue", "topic")]
    }
)
_MQTT_SIDE = {
    key: f"no {key} together with mqtt: (each of from and to is either mqtt:, or queue:, or topic:)"
    for key in ("queue", "topic")
}
_NO_LINK = "no link, because this side is the queue manager (a link belongs to the side with mqtt:)"


class MqttSource(Section):
    """The MQTT topics whose publications a mapping takes."""

    REFUSED: ClassVar[Mapping[str, str]] = _MQTT_SIDE

    mqtt: TopicFilterText
    """Topic filter with captures, which templates can use. `{name}` matches one level like `+`. `{name...}` matches one or
    more levels at the end."""
    link: LinkReference = LOCAL
    """Link to the broker. `local`: the bridge's own clients, and all other publishers to MQ topics."""


class MqSource(Section):
    """The queue, or the topic and its subtopics, whose messages a mapping to MQTT takes."""

    model_config = _ONE_SIDE_SCHEMA

    REFUSED: ClassVar[Mapping[str, str]] = {
        "link": _NO_LINK,
        "queue_manager": "no queue manager, because messages are taken from queues of this one only",
    }

    queue: ObjectName | None = None
    """Name of a queue. The mapping opens it for exclusive input, so no other application can get messages from it."""
    topic: TopicFilterText | None = None
    """Topic filter with captures, as for MQTT."""
    requests_queue: ObjectName | None = None
    """For answers: the `requests_queue` of the mapping that put the requests. An answer gets the Response Topic and
    Correlation Data of the stored request that its CorrelId identifies."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.queue is None) == (self.topic is None):
            raise values.refusal(_ONE_SIDE)
        if self.requests_queue is not None and self.queue is None:
            raise values.refusal("no requests_queue, because answers come to a queue (write queue:)", "requests_queue")
        return self


class _LocalDestination(Section):
    """The common option of destinations at the queue manager."""

    authority: Annotated[Authority, values.choice(Authority)] = Field(default="bridge", alias="as")
    """Whose authority the queue manager checks when the mapping opens the destination: that of the `bridge`, or that of the
    `publisher` (MQOO_ALTERNATE_USER_AUTHORITY). The publisher is the user in MQMD.UserIdentifier of the message that the
    mapping takes, or `nobody` if there is no user. If an MQTT client publishes, a topic must also match `publish_topics` of
    each channel that this client may use. `publisher` is recommended if devices choose the destination."""


class MqDestination(_LocalDestination):
    """The queue or topic to which a mapping puts messages."""

    model_config = _ONE_SIDE_SCHEMA

    REFUSED: ClassVar[Mapping[str, str]] = {"link": _NO_LINK}

    queue: Annotated[TemplateText | None, Target("object", "ObjectName", "queue")] = None
    """Template of a queue name."""
    queue_manager: Annotated[TemplateText | None, Target("object", "ObjectQMgrName", "queue manager")] = None
    """Template of the queue manager name (ObjectQMgrName). None: the bridge's queue manager. A client identifier is valid,
    too."""
    topic: Annotated[TemplateText | None, Target("object", "ObjectString", "topic string")] = None
    """Template of a topic string."""
    requests_queue: ObjectName | None = None
    """For requests, which are publications with a Response Topic (MQTT 5): the queue that stores their Response Topic and
    Correlation Data until the answer arrives or the request expires. Publications without a Response Topic are put as
    ordinary messages, without ReplyToQ."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.queue is None) == (self.topic is None):
            raise values.refusal(_ONE_SIDE)
        if self.queue_manager is not None and self.queue is None:
            raise values.refusal("no queue manager, because a topic has none (it belongs to a queue:)", "queue_manager")
        if self.requests_queue is not None and self.queue is None:
            raise values.refusal("no requests_queue, because requests go to a queue (write queue:)", "requests_queue")
        return self


class MqttDestination(_LocalDestination):
    """The MQTT topic to which a mapping publishes."""

    REFUSED: ClassVar[Mapping[str, str]] = _MQTT_SIDE

    mqtt: Annotated[TemplateText, Target("publication", "topic", "topic name")]
    """Template of a topic name."""
    link: LinkReference = LOCAL
    """Link to the broker. `local`: the bridge's own clients."""

    @model_validator(mode="after")
    def _has_publisher(self) -> Self:
        if self.authority == "publisher" and self.link != LOCAL:
            raise values.refusal("bridge, because the broker of a link checks the user of the link", "as")
        return self


_PayloadPathText = Annotated[str, values.text(r"[$@][^\x00]{1,1000}", "a member of the payload such as $.device.id")]
DOCUMENTS = frozenset(("json", "record"))
"""Types of payloads that are JSON documents on the side of MQTT."""
_OF_JSON = ("schema", "transform", "keep", "drop")
"""Options of `payload` that need `type: json`, and imply it."""
_DEPTH = 32
"""Maximum depth of a tree."""


def _json_tree() -> values.ValueKind:
    """Accept the tree of a JSON document: mappings, lists, text, numbers, true, false and null."""

    def check(value: object, depth: int = 0, at: tuple[str | int, ...] = ()) -> object:
        if depth > _DEPTH:
            raise values.refusal(f"a tree of at most {_DEPTH} levels", *at)
        if isinstance(value, Mapping):
            for name, element in value.items():
                if not isinstance(name, str):
                    raise values.refusal("a name as text", *at, name)
                check(element, depth + 1, (*at, name))
        elif isinstance(value, list):
            for index, element in enumerate(value):
                check(element, depth + 1, (*at, index))
        elif not isinstance(value, str | int | float | None) or value in (math.inf, -math.inf) or value != value:
            raise values.refusal("text, a number, true, false, null, a mapping or a list", *at)
        return value

    return values.ValueKind(check)


class TextPayload(RecordOptions):
    """`payload` in its long form: the type of the body, and its character set in MQ."""

    type: Annotated[PayloadType, values.choice(PayloadType, " (or a mapping with type: one of these, and ccsid:)")] = (
        "bytes"
    )
    """`bytes`: no conversion. `text`: converted between UTF-8 (MQTT) and a CCSID (MQ). `json`: text that must be valid
    JSON. `record`: a COBOL record in MQ, described by `copybook`, and JSON in MQTT."""
    ccsid: Annotated[int, values.integer(1, 65535)] | None = None
    """CCSID of the text in MQ. None: 1208 (UTF-8) for a mapping to MQ, and the CCSID of the message for a mapping to MQTT."""
    object: Annotated[dict[str, TemplateText], Target("payload", check="text")] = Field(default_factory=dict)
    """Only with `json`, in a mapping to MQTT: the members of the published JSON object. `{text}` is the text of the
    message."""
    schema_file: values.FilePath | None = Field(default=None, alias="schema")
    """Only with `json` and `record`: file with a JSON Schema (2020-12) for the payload that arrives, or for the JSON document
    of a record. A payload that violates it is an error of the message. `$ref` to other documents is rejected."""
    transform: Annotated[Any, _json_tree()] = None
    """Only with `json` and `record`: a new document in the shape of this tree. Texts are templates. A text that is one
    payload field, such as `"{$.temp}"`, copies its value. `{expr: EXPRESSION}` is the value of an expression."""
    keep: list[_PayloadPathText] = Field(default_factory=list)
    """Only with `json` and `record`: the members of the old document that the new one keeps, such as `$.device.id`.
    `transform` adds members. With `split`, the members of the part, such as `@.value`."""
    drop: list[_PayloadPathText] = Field(default_factory=list)
    """Only with `json` and `record`: the members of the old document that the new one does not keep. `transform` adds
    members."""

    @model_validator(mode="before")
    @classmethod
    def _word(cls, data: Any) -> Any:
        if isinstance(data, str | int | float):  # `payload: text`. Numbers pass here, so that `type` rejects them.
            return {"type": data}
        if isinstance(data, Mapping) and "type" not in data and data.get("copybook") is not None:
            return {**data, "type": "record"}
        if isinstance(data, Mapping) and "type" not in data and any(data.get(key) is not None for key in _OF_JSON):
            return {**data, "type": "json"}
        return data

    @property
    def irrelevant(self) -> tuple[str, ...]:
        return () if self.type == "record" else self.OF_RECORD

    @property
    def makes_document(self) -> bool:
        """Whether the mapping writes a new JSON document."""
        return self.transform is not None or bool(self.keep or self.drop)

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.ccsid is not None and self.type == "bytes":
            raise values.refusal("no ccsid with payload bytes, which stay as they are (write type: text)", "ccsid")
        if self.object and self.type != "json":
            raise values.refusal("members of an object only with type: json", "object")
        for key in _OF_JSON:
            if not getattr(self, "schema_file" if key == "schema" else key):
                continue
            if self.type not in DOCUMENTS:
                raise values.refusal(f"no {key} with payload {self.type} (write type: json)", key)
            if self.object and key != "schema":
                raise values.refusal(f"either object or {key}", key)
        if self.keep and self.drop:
            raise values.refusal("either keep or drop", "drop")
        if self.type == "record":
            if self.copybook is None:
                raise values.refusal("a copybook with payload record (the file that describes the record)", "copybook")
        elif (other := self.first_specified(self.OF_RECORD)) is not None:
            raise values.refusal(f"no {other} with payload {self.type} (write type: record)", other)
        return self


MAX_PARTS = 5_000
"""Maximum number of messages that `split` creates from one message, and in one unit of work: half of MAXUMSGS of a new queue
manager."""


class SplitConfig(Section):
    """`split` in its long form: the array of a JSON payload whose elements become separate messages."""

    path: Annotated[str, values.text(r"\$[^\x00]{0,1000}", "an array of the payload such as $.readings")]
    """The array, such as `$.readings`, or `$` for a payload that is one. In templates, `@` is the element and `$` the whole
    payload. `{partIndex}` (from 0) and `{partCount}` are message properties, too."""
    max_parts: Annotated[int, values.integer(1, MAX_PARTS)] = 1000
    """Maximum number of elements. A payload with more is an error of the message."""

    @model_validator(mode="before")
    @classmethod
    def _word(cls, data: Any) -> Any:
        return data if isinstance(data, Mapping | SplitConfig) else {"path": data}


_MAX_KEYS = Annotated[int, values.integer(1, 1_000_000)]


class LimitConfig(Section):
    """At most one message per key and period. The mapping leaves out the others, which are counted and not dead-lettered."""

    per: TemplateText
    """Template of the key, such as `{$.id}` or `{clientId}`."""
    every: Annotated[float, values.duration(0.1, values.DAY)]
    """Minimum time from a message that passes to the next one with the same key, in seconds."""
    max_keys: _MAX_KEYS = 100_000
    """Maximum number of keys that the mapping remembers. It forgets those whose last message passed first, so that their next
    message passes. A restart, a failover or a change of the mapping forgets all."""


class ValueChangesConfig(Section):
    """Report by exception: the mapping leaves out a message whose value is that of the last message with the same key."""

    per: TemplateText
    """Template of the key, such as `{$.id}` or `{topic}`."""
    of: TemplateText
    """Template of the value, such as `{$.temp}`."""
    deadband: Annotated[float, values.number(0)] | None = None
    """The value is a number, and passes if it differs from the last one that passed by more than this. None: any difference
    of the text passes."""
    max_keys: _MAX_KEYS = 100_000
    """Maximum number of keys, as for `limit`."""


FilterValue = str | int | float | bool | None | list[str | int | float | bool]
"""The required value of a property: this value, one of these, or None if it must be absent."""


def _several_qos() -> values.ValueKind:
    """Accept one QoS or a list of several, and return a list."""

    def check(value: object) -> list[int]:
        listed: list[Any] = value if isinstance(value, list) else [value]
        if not listed:
            raise values.refusal("0, 1 or 2, or a list of these")
        for index, qos in enumerate(listed):
            if type(qos) is not int or not 0 <= qos <= 2:
                raise values.refusal("0, 1 or 2, or a list of these", *([index] if isinstance(value, list) else []))
        return listed

    level_schema = {"enum": [0, 1, 2]}
    return values.ValueKind(
        check, schema={"anyOf": [level_schema, {"type": "array", "items": level_schema, "minItems": 1}]}
    )


def _filter_value() -> values.ValueKind:
    """Accept text, a number or a Boolean, a list of these, or None."""

    def check(value: object) -> object:
        listed = value if isinstance(value, list) else [value]
        if value is not None and not (listed and all(isinstance(literal, str | int | float) for literal in listed)):
            raise values.refusal("text, a number, true, false, a list of these, or null (it is absent)")
        return value

    literal_schema = {"type": ["string", "number", "boolean"]}
    return values.ValueKind(
        check,
        schema={"anyOf": [literal_schema, {"type": "null"}, {"type": "array", "items": literal_schema, "minItems": 1}]},
    )


class FilterConfig(Section):
    """The messages that a mapping accepts: those that meet all conditions. Other messages of a topic are ignored."""

    qos: Annotated[list[int], _several_qos()] | None = None
    """Accepted QoS of the publication. For a message from MQ, the QoS results from its persistence or mqtt folder."""
    retained: Truth | None = None
    """Whether the message must be retained (true) or must not be (false)."""
    min_size: Annotated[int, values.size(0, values.GIB)] | None = None
    """Minimum size of the payload in bytes."""
    max_size: Annotated[int, values.size(0, values.GIB)] | None = None
    """Maximum size of the payload in bytes."""
    properties: dict[str, Annotated[FilterValue, _filter_value()]] = Field(default_factory=dict)
    """Name of a property or MQMD field -> its required value, a list of allowed values, or null if it must be absent."""
    json_path: (
        Annotated[str, values.text(r"[^\x00]{1,10240}", "a comparison such as $.temp > 30 && $.unit == 'C'")] | None
    ) = Field(default=None, alias="json")
    """A JSON path comparison on the payload (RFC 9535 filter expression), such as `$.temp > 30 && $.unit == 'C'`."""
    expr: Annotated[str, values.text(r"[^\x00]{1,4096}", "an expression such as payload.temp > 30")] | None = None
    """An expression of CEL that must be true, such as `payload.temp > 30 && topic.startsWith('plant/')`. A payload that is
    not JSON, or without the field, does not meet it. An operation that does not exist, such as the sum of a number and a
    text, is an error of the message."""
    others: Annotated[Others, values.choice(Others)] = "dead-letter"
    """What happens to messages of a queue that the filter rejects. Rejected messages of a topic or broker are always
    ignored."""

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if self.min_size is not None and self.max_size is not None and self.min_size > self.max_size:
            raise values.refusal("a size of at least min_size", "max_size")
        return self


class MappingBatchConfig(Section):
    """Limits of one unit of work of a mapping."""

    messages: Annotated[int, values.integer(1, 5000)] = 500
    """Number of messages."""
    size: Annotated[int, values.size(1, 100 * values.MIB)] = 5 * values.MIB
    """Total size of their payloads, in bytes."""
    time: Annotated[float, values.duration(0, 10)] = 0.01
    """Maximum seconds from the first message to the commit, while more messages may arrive."""


AllowedName = Annotated[
    str,
    values.text(
        r"(?:(?:client|user):)?[^\x00-\x1f]{1,255}",
        "a name, in which * stands for any characters, such as PLANT.*, client:dev-* or user:mqm",
    ),
]


class PublishTopics(NamedTuple):
    """The topics that the clients of a channel may publish to, and the MQ users of these clients."""

    topics: tuple[str, ...]
    """`publish_topics` of the channel."""
    mcauser: str | None
    """The user of all its clients. None: each client's own user name, or client identifier."""
    use_client_id: bool


class ConfiguredNames(NamedTuple):
    """The names of a configuration that limit the names that templates can create from the values of a message."""

    queues: frozenset[str] = frozenset()
    """Queues that the bridge uses itself."""
    queue_managers: frozenset[str] = frozenset()
    """Queue managers and clients that the configuration names literally."""
    users: frozenset[str] = frozenset()
    """User of the bridge at its queue manager."""
    channels: tuple[PublishTopics, ...] = ()
    """The channels with `publish_topics`."""
    mapped_users: frozenset[str] = frozenset()
    """The users that channel authentication records assign to clients of any channel."""


class MappingConfig(Section):
    """The options of mappings in both directions."""

    REFUSED: ClassVar[Mapping[str, str]] = {
        key: f"a key of a mapping ({key}: belongs under attributes:)"
        for key in sorted({*MessageAttributes.model_fields, *PublicationAttributes.model_fields})
    }

    shard: Annotated[int, values.integer(0, 1023)] = 0
    """Number of the shard in which the mapping runs, if the clients of the queue manager are divided
    (`queue_manager.shard`)."""
    enabled: Truth = True
    """Whether the mapping runs. If false, its messages wait (on its queue, on its subscription, or in its session at the
    broker)."""
    guarantee: Annotated[Guarantee, values.choice(Guarantee)] = "at-least-once"
    """Delivery guarantee."""
    filter: FilterConfig = Field(default_factory=FilterConfig)
    """Conditions for the messages that the mapping accepts. Default: all messages."""
    payload: TextPayload = Field(default_factory=TextPayload)
    """Type of the payload: `bytes`, `text` or `json`, or a mapping with more options."""
    split: SplitConfig | None = None
    """The array of a JSON payload whose elements become separate messages: `$.readings`, or a mapping with more options.
    The message and its parts are one unit of work. Not with a link as the destination."""
    limit: LimitConfig | None = None
    """At most one message per key and period."""
    changes: ValueChangesConfig | None = None
    """Only messages whose value has changed."""
    batch: MappingBatchConfig = Field(default_factory=MappingBatchConfig)
    """Limits of one unit of work."""
    backouts: Annotated[int, values.integer(0, 1000)] = 3
    """Number of backouts of a message that its destination rejects, before the message goes to the dead-letter queue."""
    dead_letters_full: Annotated[DeadLettersFull, values.choice(DeadLettersFull)] | None = None
    """What happens to messages that the mapping cannot process if its messages on the dead-letter queue reach
    `limits.dead_letter_bytes`, or all messages of the bridge there `limits.dead_letter_total`. `pause`: the mapping waits
    until an administrator has removed some of them. `discard`: these messages are lost and counted. None: `pause` if the
    mapping reads a queue, and `discard` if it reads topics or a link, because a device must not stop it."""
    otherwise: list[Name] = Field(default_factory=list)
    """Names of mappings with the same source. This mapping takes the messages that none of their filters accepts. Without
    such a mapping, messages of a topic or broker that no filter accepts are discarded, and counted as filtered."""
    allow: list[AllowedName] = Field(default_factory=list)
    """Names that a template with values of a message may result in, although they are rejected by default: SYSTEM objects,
    queues that the bridge uses itself, other queue managers (`PLANT.*`), clients (`client:dev-*`) and privileged users
    (`user:mqm`). `*` stands for any characters."""
    _routes: dict[str, Any] = PrivateAttr(default_factory=dict)
    _tables: dict[str, TableConfig] = PrivateAttr(default_factory=dict)
    _schema: bytes | None = PrivateAttr(default=None)
    _names: ConfiguredNames = PrivateAttr(default=ConfiguredNames())

    @property
    def routes(self) -> Mapping[str, "ToMqMapping | ToMqttMapping"]:
        """The mappings that `otherwise` names, by name."""
        return self._routes

    @property
    def names(self) -> ConfiguredNames:
        """The names of the configuration that limit those of the mapping's templates."""
        return self._names

    @property
    def schema_content(self) -> bytes:
        """The content of the file `payload.schema`. Raises OSError."""
        assert self.payload.schema_file is not None
        if self._schema is None:
            self._schema, _ = regular_content(self.payload.schema_file, values.MAX_SCHEMA_SIZE + 1)
        return self._schema

    @model_validator(mode="after")
    def _splits_json(self) -> Self:
        if self.split is None:
            return self
        payload = self.payload
        if payload.type not in DOCUMENTS and "type" in payload.model_fields_set:
            raise values.refusal(f"json with split, not {payload.type}", "payload", "type")
        if payload.object:
            raise values.refusal("transform instead of object with split", "payload", "object")
        if payload.type not in DOCUMENTS:
            self.__dict__["payload"] = payload.model_copy(update={"type": "json"})
        return self

    @property
    def tables(self) -> Mapping[str, TableConfig]:
        """The tables that the mapping, or a filter of those in `otherwise`, may look up."""
        return self._tables

    def use_tables(self, tables: Mapping[str, TableConfig]) -> None:
        """Replace the tables of the mapping by others with these names."""
        self._tables.update((name, tables[name]) for name in self._tables)

    def use_tables_of(self, tables: Mapping[str, TableConfig]) -> None:
        """Look up the tables that the mapping may use: those whose name occurs in one of its texts."""
        if tables:
            self._tables.update((name, tables[name]) for name in self.words() & tables.keys())

    def words(self) -> set[str]:
        """Return all words in texts of the mapping, and in the expressions of filters of those in `otherwise`."""
        texts = [*_texts(self.model_dump()), *(route.filter.expr or "" for route in self._routes.values())]
        return {word for text in texts for word in _WORD.findall(text)}

    def resolve(
        self,
        mappings: Mapping[str, Any],
        names: ConfiguredNames,
        tables: Mapping[str, TableConfig] = MappingProxyType({}),
    ) -> None:
        """Look up the mappings that `otherwise` names, and store the names of the configuration if they matter."""
        self._routes.update((name, mappings[name]) for name in self.otherwise)
        self.use_tables_of(tables)
        if self.payload.schema_file is not None:
            with suppress(
                OSError
            ):  # Errors are reported with the rule. Read here, so that a reload notices a changed file.
                _ = self.schema_content
        if self.payload.copybook is not None:
            self.payload.read_copybook()
        assert isinstance(self, ToMqMapping | ToMqttMapping)
        if not any("{" in text and attribute.target.check in _NAMES for _, attribute, text in templates_of(self)):
            names = names._replace(queues=frozenset(), queue_managers=frozenset(), users=frozenset())
        if self.destination.authority != "publisher" or getattr(self.destination, "queue", None) is not None:
            names = names._replace(channels=(), mapped_users=frozenset())
        self._names = names


class ToMqMapping(MappingConfig):
    """A mapping of publications of MQTT clients, or of a broker, to a queue or topic."""

    source: MqttSource = Field(alias="from")
    """The MQTT topics whose publications the mapping takes."""
    destination: MqDestination = Field(alias="to")
    """The queue or topic to which the mapping puts messages."""
    attributes: MessageAttributes = Field(default_factory=MessageAttributes)
    """Attributes of the messages. Missing keys have the values of the standard profile."""
    order: Annotated[Order, values.choice(Order)] = "destination"
    """What a full or put-disabled destination queue blocks: only its own messages (`destination`), or all messages of the
    mapping (`strict`). The order is always strict for a link, for a topic, and with `requests_queue`."""

    @property
    def passes_blocked_queues(self) -> bool:
        """Whether messages for other queues continue while a destination queue is blocked."""
        return self.order == "destination"

    @property
    def _strict_because(self) -> str | None:
        if self.source.link != LOCAL:
            return "MQTT acknowledges the publications of a link in order"
        if self.split is not None:
            return "all parts of a message are put in one unit of work"
        if self.destination.queue is None:
            return "subscribers may expect the order of several topics"
        return "a request is kept before it is put" if self.destination.requests_queue is not None else None

    @model_validator(mode="after")
    def _has_order(self) -> Self:
        if self.order == "destination" and self._strict_because is not None:
            if "order" in self.model_fields_set:
                raise values.refusal(f"strict, because {self._strict_because}", "order")
            self.__dict__["order"] = "strict"
        return self

    @model_validator(mode="after")
    def _has_publisher(self) -> Self:
        if self.destination.authority == "publisher" and self.source.link != LOCAL:
            raise values.refusal("bridge, because the publications of a link have no MQ user", "to", "as")
        return self

    @model_validator(mode="after")
    def _no_object(self) -> Self:
        if self.payload.object:
            raise values.refusal("no object in a mapping to MQ, which does not change the payload", "payload", "object")
        return self

    @model_validator(mode="after")
    def _requests(self) -> Self:
        if self.destination.requests_queue is None:
            return self
        if self.attributes.reply_to_queue is None:
            sentence = "a reply_to_queue together with requests_queue (the queue that the answers come to)"
            raise values.refusal(sentence, "attributes", "reply_to_queue")
        for key in ("msg_id", "correl_id"):
            if getattr(self.attributes, key) is not None:
                sentence = f"no {key} with requests_queue (the answer is identified by the MsgId of the queue manager)"
                raise values.refusal(sentence, "attributes", key)
        return self


class ToMqttMapping(MappingConfig):
    """A mapping of messages of a queue or topic to MQTT topics."""

    source: MqSource = Field(alias="from")
    """The queue or topic whose messages the mapping takes."""
    destination: MqttDestination = Field(alias="to")
    """The MQTT topic to which the mapping publishes."""
    attributes: PublicationAttributes = Field(default_factory=PublicationAttributes)
    """Attributes of the publications. Missing keys have the values of the standard profile."""

    @model_validator(mode="after")
    def _splits_for_clients(self) -> Self:
        if self.split is not None and self.destination.link != LOCAL:
            sentence = (
                "no split in a mapping to a link, whose broker may accept some parts and reject others (split to a topic of"
                " the queue manager, and map that to the link)"
            )
            raise values.refusal(sentence, "split")
        return self

    @model_validator(mode="after")
    def _reads_records(self) -> Self:
        if (option := self.payload.first_specified(RecordOptions.OF_WRITING)) is not None:
            raise values.refusal(f"no {option} in a mapping to MQTT, which reads records", "payload", option)
        return self

    @model_validator(mode="after")
    def _otherwise_of_topic(self) -> Self:
        if self.otherwise and self.source.queue is not None:
            sentence = "no otherwise, because one mapping takes all messages of a queue (filter.others)"
            raise values.refusal(sentence, "otherwise")
        return self


#: A possible name of a table.
_WORD = re.compile(r"[A-Za-z]\w*")


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in nested mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for element in value.values():
            yield from _texts(element)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _texts(element)


def _direction(data: Any) -> str | None:
    if isinstance(data, ToMqMapping):
        return "to-mq"
    if isinstance(data, ToMqttMapping):
        return "to-mqtt"
    source = data.get("from") if isinstance(data, Mapping) else None
    return "to-mq" if isinstance(source, Mapping) and "mqtt" in source else "to-mqtt"


def _one_side_mqtt(data: Any) -> Any:
    if isinstance(data, MappingConfig):
        return data
    if not isinstance(data, Mapping):
        raise values.refusal("a mapping (lines of 'key: value')")
    sides = [key for key in ("from", "to") if isinstance(data.get(key), Mapping) and "mqtt" in data[key]]
    if len(sides) == 2:
        raise values.refusal(
            "a queue manager's side in from or in to (the topics of the bridge's own clients are those of the queue"
            " manager: to move publications between them and a link, write topic: for them)",
            "to",
            "mqtt",
        )
    for key in data:
        if isinstance(key, str) and (near := suggestion(key, [side for side in ("from", "to") if side not in data])):
            raise values.refusal(f"the keys from and to ({near})", key)
    if not sides:
        raise values.refusal("mqtt: in from or in to")
    return data


AnyMapping = Annotated[
    Annotated[ToMqMapping, Tag("to-mq")] | Annotated[ToMqttMapping, Tag("to-mqtt")],
    Discriminator(_direction),
    BeforeValidator(_one_side_mqtt),
]
"""A mapping. The side with `mqtt` determines its direction."""


class MappingAttribute(NamedTuple):
    """An attribute of the mappings of one direction."""

    keys: tuple[str, str]
    """Path in the mapping, such as `("attributes", "msg_id")`."""
    target: Target
    is_template: bool
    """Whether the attribute is a template, or a set of templates by name, rather than a literal."""


@cache
def attributes_of(direction: type[ToMqMapping] | type[ToMqttMapping]) -> tuple[MappingAttribute, ...]:
    """Return the attributes of a direction, as declared by the models.

    Raises TypeError for a template without a target that has a check.
    """
    attributes = []
    for section in ("destination", "attributes", "payload"):
        outer = direction.model_fields[section]
        assert isinstance(outer.annotation, type) and issubclass(outer.annotation, Section)
        for name, field in outer.annotation.model_fields.items():
            target = next((target for target in field.metadata if isinstance(target, Target)), None)
            is_template = _has_template((field.annotation, *field.metadata))
            if is_template and (target is None or target.check is None):
                raise TypeError(f"{outer.annotation.__name__}.{name} is a template without a Target that has a check")
            if target is not None:
                attributes.append(MappingAttribute((outer.alias or section, field.alias or name), target, is_template))
    return tuple(attributes)


def _has_template(kind: object) -> bool:
    """Return whether a type is or contains a template."""
    return (
        kind is _TEMPLATE
        or kind is TypedProperty
        or any(map(_has_template, kind if isinstance(kind, tuple) else get_args(kind)))
    )


def templates_of(mapping: ToMqMapping | ToMqttMapping) -> Iterator[tuple[tuple[str, ...], MappingAttribute, str]]:
    """Yield the path of each template in a mapping, such as `("to", "queue")`, with its attribute and text."""
    for attribute in attributes_of(type(mapping)):
        if not attribute.is_template:
            continue
        section, key = attribute.keys
        section_values = getattr(mapping.destination if section == "to" else getattr(mapping, section), key)
        if isinstance(section_values, dict):
            for name, text in section_values.items():
                if isinstance(text, TypedProperty):
                    yield (*attribute.keys, name, "value"), attribute, text.value
                else:
                    yield (*attribute.keys, name), attribute, text
        elif section_values is not None:
            yield attribute.keys, attribute, section_values
