"""The attributes of mappings: templates read when a rule is made, filled and checked for each message."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.rules.scope import PUBLICATION_NAMES
from bridge.mapping.rules.template import MD_FIELDS, WORDS, RuleError, Scope, Template, TemplateError
from bridge.mqtt.topics import MQ_TOPIC_STR_LENGTH
from bridge.telemetry.headers import MQTT_LENGTH, is_mqtt_string
from bridge.telemetry.identity import USER_IDENTIFIER_LENGTH
from bridge.telemetry.message import Unmappable
from bridge.telemetry.request import is_object_name
from bridge.wire import cmqc

#: Folders of names that people write for fields of a JSON payload; no message has them.
_PAYLOAD_FOLDERS = ("$", "payload")

Result = TypeVar("Result")
Made = TypeVar("Made")


class Attribute(Generic[Result]):
    """A template, and what it has to come out as.

    `captures` are the names that the mapping's source has; `of_publication` says that messages are publications, which
    have no MQMD. Raises RuleError, also for a template without names whose text is not what it has to be.
    """

    __slots__ = ("_check", "_constant", "template")

    def __init__(
        self,
        where: str,
        text: str,
        check: Callable[[str], Result],
        captures: Collection[str] = (),
        *,
        of_publication: bool = False,
    ) -> None:
        self.template = located(where, Template, text)
        self._check = check
        self._constant: Result | None = None
        for name in sorted(self.template.names):
            located(where, check_known, name, captures, of_publication)
        if self.template.literal is not None:
            try:
                self._constant = check(self.template.literal)
            except Unmappable as error:
                located(where, _refuse, str(error))

    def of(self, scope: Scope) -> Result:
        """Return the value of the attribute for a message, or raise Unmappable."""
        if self._constant is not None:
            return self._constant
        return self._check(self.template.render(scope))


def located(where: str, make: Callable[..., Made], *arguments: object) -> Made:
    """Return the result of `make`, and add to a RuleError that it raises where in the mapping the error is."""
    try:
        return make(*arguments)
    except RuleError as error:
        error.where = error.where or where
        raise


def check_known(name: str, captures: Collection[str], of_publication: bool) -> None:
    """Raise TemplateError for a name that messages of a direction never have, or that is nearly another name."""
    if name in captures or name in WORDS:
        return
    if of_publication and name.startswith("md."):
        raise TemplateError(f"{{{name}}}: a publication has no MQMD; mappings from MQ to MQTT have")
    folder, dot, _ = name.partition(".")
    if folder in _PAYLOAD_FOLDERS and (dot or folder == "$"):
        raise TemplateError(
            f"{{{name}}}: fields of the payload have no names here (hint: {{text}} is the whole payload, and filter.json"
            " compares its fields)"
        )
    if of_publication and dot and folder != "usr" and name not in PUBLICATION_NAMES:
        names = ", ".join(sorted(known for known in PUBLICATION_NAMES if "." in known))
        raise TemplateError(f"{{{name}}}: a publication has no such property (hint: write usr.NAME, or one of {names})")
    if dot:
        return
    for known in (*captures, *WORDS):
        if known.lower() == name.lower():
            raise TemplateError(f"{{{name}}}: did you mean {{{known}}}? A message property of that name is {{usr.{name}}}")


def _refuse(why: str) -> None:
    raise TemplateError(why)


#: ObjectQMgrName may be a client identifier, whose characters are its client's choice (MQTT-3.1.3-5).
_QUEUE_MANAGER_LENGTH = 48
_WILDCARD = re.compile(r"[+#\0]")
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{48}")
_IDENTIFIER_LENGTH = 24


def queue_name(text: str, what: str = "queue", reason: int = cmqc.MQRC_OBJECT_NAME_ERROR) -> str:
    """Check and return the name of a queue: 1 to 48 of MQ's characters."""
    if not is_object_name(text):
        rule = "1 to 48 of the characters A-Z a-z 0-9 . _ / %"
        raise Unmappable(reason, f"{_cut(text)} is no name for a {what}, which has {rule}")
    return text


def queue_manager_name(text: str) -> str:
    """Check and return the name of a queue manager, or a client identifier: 1 to 48 bytes."""
    if not text or "\0" in text or len(text.encode()) > _QUEUE_MANAGER_LENGTH:
        why = f"{_cut(text)} is no name for a queue manager or client, which has 1 to {_QUEUE_MANAGER_LENGTH} bytes"
        raise Unmappable(cmqc.MQRC_OBJECT_Q_MGR_NAME_ERROR, why)
    return text


def topic_string(text: str) -> str:
    """Check and return a topic string to publish to on MQ."""
    if not text or _WILDCARD.search(text):
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, f"{_cut(text)} is no topic to publish to: {_topic_fault(text)}")
    if len(text) > MQ_TOPIC_STR_LENGTH:
        why = f"{_cut(text)} is no topic string: it has {len(text)} characters, of {MQ_TOPIC_STR_LENGTH} at most"
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, why)
    return text


def topic_name(text: str) -> str:
    """Check and return a topic name to publish to on MQTT (MQTT-3.3.2-2, MQTT-4.7.3)."""
    if not text or _WILDCARD.search(text):
        raise Unmappable(cmqc.MQRC_TOPIC_STRING_ERROR, f"{_cut(text)} is no topic to publish to: {_topic_fault(text)}")
    return mqtt_string(text, "topic name", cmqc.MQRC_TOPIC_STRING_ERROR)


def mqtt_string(text: str, what: str, reason: int = cmqc.MQRC_NOT_CONVERTED) -> str:
    """Check and return text that fits a UTF-8 string of MQTT."""
    if not is_mqtt_string(text):
        why = f"{_cut(text)} is no {what}, which has at most {MQTT_LENGTH} bytes and no U+0000"
        raise Unmappable(reason, why)
    return text


def identifier(text: str, field: str, reason: int) -> bytes:
    """Return the bytes of a MsgId or CorrelId: from 48 hexadecimal digits, or from text of at most 24 bytes."""
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text)
    encoded = text.encode()
    if len(encoded) > _IDENTIFIER_LENGTH:
        rule = f"48 hexadecimal digits, or text of at most {_IDENTIFIER_LENGTH} bytes"
        raise Unmappable(reason, f"{_cut(text)} is no {field}, which is {rule}")
    return encoded.ljust(_IDENTIFIER_LENGTH, b"\0")


def correlation(text: str) -> bytes:
    """Return the bytes of Correlation Data: from hexadecimal digits of a CorrelId, or from text."""
    if _HEXADECIMAL.fullmatch(text):
        return bytes.fromhex(text)
    return mqtt_string(text, "Correlation Data").encode()


def user_identifier(text: str) -> bytes:
    """Return the bytes of MQMD.UserIdentifier: at most 12."""
    encoded = text.encode()
    if len(encoded) > USER_IDENTIFIER_LENGTH or b"\0" in encoded:
        why = f"{_cut(text)} is no UserIdentifier, which has at most {USER_IDENTIFIER_LENGTH} bytes"
        raise Unmappable(cmqc.MQRC_MD_ERROR, why)
    return encoded.rstrip(b" ")


def _topic_fault(text: str) -> str:
    found = _WILDCARD.search(text)
    return "it is empty" if found is None else f"it has {'U+0000' if found[0] == chr(0) else found[0]} in it"


def _cut(text: str) -> str:
    return repr(text) if len(text) <= 100 else f"{text[:100]!r} and {len(text) - 100} characters more"


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
