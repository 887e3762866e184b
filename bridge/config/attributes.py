"""The attributes of mappings: what is set in the messages that a mapping puts, and in its publications.

What is left out is as the standard profile says (integration tables; `mappings/standard.yaml`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from bridge.config import values
from bridge.config.section import Section, Truth

Retained = Literal["as-published", "never", "always"]
PersistenceWord = Literal["not-persistent", "persistent", "as-queue"]
ExpiryWord = Literal["unlimited", "as-published"]

TemplateText = Annotated[str, values.text(r"[^\x00]{1,10240}", "text, or a template such as PLANT.{line|upper}")]
"""A template; `bridge.mapping.rules.template` reads it, and says what is wrong with it."""
Properties = dict[Annotated[str, values.text(r"[^\x00-\x1f]{1,4095}", "the name of a property")], TemplateText]
"""Name of a property -> template of its value."""

STANDARD_PERSISTENCE: dict[Literal["0", "1", "2"], PersistenceWord] = {
    "0": "not-persistent",
    "1": "persistent",
    "2": "persistent",
}
"""MQMD.Persistence of a publication by its QoS (integration tables, "Persistence")."""
STANDARD_QOS: dict[Literal["persistent", "not-persistent"], int] = {"persistent": 2, "not-persistent": 0}
"""QoS of a message by MQMD.Persistence (integration tables, "QoS")."""

_QOS = values.integer(0, 2)
_PERSISTENCE = values.choice(PersistenceWord)


def _one_or_each(data: Any) -> str:
    return "each" if isinstance(data, Mapping) else "one"


class MessageAttributes(Section):
    """What the MQ message of a publication is like."""

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
            AfterValidator(lambda given: STANDARD_PERSISTENCE | given),
            Tag("each"),
        ],
        Discriminator(_one_or_each),
    ] = Field(default_factory=STANDARD_PERSISTENCE.copy)
    """MQMD.Persistence: one for all, or by QoS; a QoS that is left out has the one of the standard profile."""
    priority: Annotated[
        int | Literal["as-queue"], values.one_of(values.integer(0, 9), values.choice(Literal["as-queue"]))
    ] = "as-queue"
    """MQMD.Priority."""
    expiry: Annotated[
        float | ExpiryWord, values.one_of(values.duration(0.1, 100_000_000), values.choice(ExpiryWord))
    ] = "as-published"
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
    properties: Properties = Field(default_factory=dict)
    """More message properties: name in the usr folder -> template."""


class PublicationAttributes(Section):
    """What the MQTT publication of a message is like."""

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
                Annotated[Literal["persistent", "not-persistent"], values.choice(Literal["persistent", "not-persistent"])],
                Annotated[int, _QOS],
            ],
            AfterValidator(lambda given: STANDARD_QOS | given),
            Tag("each"),
        ],
        Discriminator(_one_or_each),
    ] = Field(default_factory=STANDARD_QOS.copy)
    """QoS: one for all, or by MQMD.Persistence (what is left out is as in the standard profile). A message that a client
    published keeps its own (mqtt.qos)."""
    retained: Annotated[Retained, values.choice(Retained)] = "as-published"
    """Whether it is published with RETAIN."""
    expiry: Annotated[
        float | ExpiryWord, values.one_of(values.duration(1, 100_000_000), values.choice(ExpiryWord))
    ] = "as-published"
    """Message Expiry Interval (MQTT 5) in seconds; `as-published` is what is left of MQMD.Expiry."""
    response_topic: TemplateText | None = None
    """Template of the Response Topic (MQTT 5)."""
    correlation_data: TemplateText | None = None
    """Template of the Correlation Data (MQTT 5); None: MQMD.CorrelId where it is not zeros."""
    content_type: TemplateText | None = None
    """Template of the Content Type (MQTT 5)."""
    properties: Properties = Field(default_factory=dict)
    """More user properties (MQTT 5; usr folder for local clients): name -> template."""
