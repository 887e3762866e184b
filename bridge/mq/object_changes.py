"""Queues, topics and namelists as administrators change them: their attributes for forms, and the effects of MQSC commands.

The attributes are those that have an effect at the embedded queue manager. IBM MQ has them, too. SYSTEM objects and all other
kinds of objects require `mqbridge mqsc` or the tools of IBM MQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, get_args

import msgspec

from bridge.mq.embedded.attributes import (
    ATTRIBUTES,
    Choice,
    Names,
    Number,
    TextAttribute,
    Value,
    defaults,
    read,
    without_effect,
)
from bridge.mq.embedded.mqsc.definitions import MANNERS, object_name, replace_and_like, settings
from bridge.mq.inquiries import (
    AttributeChange,
    CommandEffect,
    Effect,
    ObjectAttribute,
    ObjectDetails,
    ObjectKind,
    ObjectRow,
)
from bridge.mq.mqi import Connection
from bridge.mq.mqsc import FLAGS, Command, CommandRefused, MQSCSyntaxError, message
from bridge.mq.mqsc import read as commands_of

KINDS: Final[tuple[ObjectKind, ...]] = get_args(ObjectKind)
#: Maximum number of commands in a script, and of its characters.
MAX_COMMANDS: Final = 1_000
MAX_SCRIPT: Final = 500_000
_SYSTEM: Final = "SYSTEM."
#: The most informative attribute of an object.
_DETAILS: Final = {"QLOCAL": "USAGE", "QALIAS": "TARGET", "QREMOTE": "RNAME", "TOPIC": "TOPICSTR", "NAMELIST": "NAMES"}
#: Keywords of the name in DISPLAY, by kind.
_NAME: Final = {"TOPIC": "TOPIC", "NAMELIST": "NAMELIST"}
#: Descriptions of attributes, by keyword.
LABELS: Final = {
    "DESCR": "Description",
    "PUT": "Puts",
    "GET": "Gets",
    "DEFPRTY": "Default priority",
    "DEFPSIST": "Default persistence",
    "MAXDEPTH": "Maximum number of messages",
    "MAXMSGL": "Maximum length of a message in bytes",
    "MSGDLVSQ": "Delivery sequence",
    "USAGE": "Usage (XMITQ: transmission queue)",
    "SHARE": "Several applications may get",
    "DEFSOPT": "Default of opens for input",
    "TARGET": "Target queue or topic object",
    "TARGTYPE": "Kind of the target",
    "RNAME": "Queue at the remote queue manager",
    "RQMNAME": "Remote queue manager",
    "XMITQ": "Transmission queue",
    "NAMES": "Names, separated by commas",
    "TOPICSTR": "Topic string (cannot be changed)",
    "PUB": "Publications",
    "SUB": "Subscriptions",
    "DURSUB": "Durable subscriptions",
    "PMSGDLV": "Delivery of persistent messages",
    "NPMSGDLV": "Delivery of non-persistent messages",
    "USEDLQ": "Dead-letter undeliverable messages",
    "WILDCARD": "Wildcard subscriptions above this topic",
}


class TooManyCommands(Exception):
    """A script is too long. The message is for display."""


def objects(connection: Connection, kind: ObjectKind, *, system: bool) -> list[ObjectRow]:
    """Return the objects of a kind by name. Raises MQError or CommandRefused."""
    detail, head = _DETAILS[kind], _NAME.get(kind, "QUEUE")
    (response,) = connection.command(f"DISPLAY {kind}(*) DESCR {detail}")
    rows = []
    for attributes in response.objects if response.ok else ():
        name = str(attributes[head])
        if system or not name.startswith(_SYSTEM):
            text = str(attributes.get("DESCR", "")).strip()
            rows.append(ObjectRow(kind, name, text, str(attributes.get(detail, "")).strip()))
    return sorted(rows, key=lambda row: row.name)


class TopicObject(NamedTuple):
    """A topic object, and its attribute PUB."""

    name: str
    topic_string: str
    publications: str


def topic_objects(connection: Connection) -> list[TopicObject]:
    """Return the topic objects. Raises MQError or CommandRefused."""
    (response,) = connection.command("DISPLAY TOPIC(*) TOPICSTR PUB")
    if not response.ok:
        raise CommandRefused("AMQ8101E", detail=response.message)
    return [
        TopicObject(str(row["TOPIC"]), str(row.get("TOPICSTR", "")).strip(), str(row.get("PUB", "")))
        for row in response.objects
    ]


def details(connection: Connection, kind: ObjectKind, name: str) -> ObjectDetails | None:
    """Return an object with its attributes, or None if it does not exist. Without a name, return the defaults."""
    current = _existing(connection, kind, name) if name else {}
    if current is None:
        return None
    attributes = []
    for keyword, attribute in ATTRIBUTES[kind].items():
        if keyword not in LABELS:  # the tests' stand-in for IBM MQ adds attributes
            continue
        value = str(current.get(keyword, attribute.default)).strip()
        fields = {"keyword": keyword, "label": LABELS[keyword], "value": value, "default": str(attribute.default)}
        if isinstance(attribute, Choice):
            limits: dict[str, object] = {"words": list(attribute.words)}
        elif isinstance(attribute, Number):
            limits = {"low": attribute.low, "high": attribute.high, "words": list(attribute.words)}
        else:
            limits = {"length": attribute.length if isinstance(attribute, TextAttribute) else 10_000}
        attributes.append(msgspec.convert(fields | limits, ObjectAttribute))
    return ObjectDetails(kind=kind, name=name, attributes=attributes)


def definition(kind: ObjectKind, name: str, values: Mapping[str, str], current: ObjectDetails) -> str:
    """Return the MQSC command that sets these attribute values of an object, or "" if it has them already.

    `current` has the present values, or the defaults if the object is new. Raises ValueError for a value that is not valid.
    """
    parts = []
    for attribute in current.attributes:
        value = values.get(attribute.keyword)
        if value is None or (value := value.strip()) == attribute.value:
            continue
        text = str(read(kind, attribute.keyword, value))
        if (word := _FLAGS.get((attribute.keyword, text))) is not None:
            parts.append(word)
        elif attribute.words or attribute.low is not None:
            parts.append(f"{attribute.keyword}({text})")
        elif isinstance(ATTRIBUTES[kind][attribute.keyword], Names):
            parts.append(f"{attribute.keyword}({','.join(_quoted(part) for part in text.split(',') if part)})")
        else:
            parts.append(f"{attribute.keyword}({_quoted(text)})")
    if current.name and not parts:
        return ""
    verb = "ALTER" if current.name else "DEFINE"
    return " +\n   ".join([f"{verb} {kind}({_quoted(name)})", *parts])


_FLAGS: Final = {setting: keyword for keyword, setting in FLAGS.items()}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# Effects of commands -------------------------------------------------------------------------------------------------


def effects(connection: Connection, script: str) -> list[CommandEffect]:
    """Return the effect of each command of a script, after the commands that precede it.

    The queue manager may still reject a command, for example because a queue is open. Raises MQError or TooManyCommands.
    """
    if len(script) > MAX_SCRIPT:
        raise TooManyCommands(f"the commands have {len(script):,} characters, the maximum is {MAX_SCRIPT:,}")
    commands = commands_of(script)
    if len(commands) > MAX_COMMANDS:
        raise TooManyCommands(f"the script has {len(commands):,} commands, the maximum is {MAX_COMMANDS:,}")
    preview = _Preview(connection)
    return [preview.effect(command) for command in commands]


class _Preview:
    """The objects after the effects of the commands so far."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._objects: dict[tuple[str, str], dict[str, Value] | None] = {}

    def effect(self, command: Command) -> CommandEffect:
        """Return the effect of a command."""
        kind, name, changes = command.noun, command.name or "", list[AttributeChange]()
        effect: Effect = "error"
        try:
            if command.problem is not None:
                raise command.problem
            if why := _left_out(command):
                effect, text = "left out", why
            else:
                effect, text, changes = self._change(command)
        except MQSCSyntaxError as error:
            near = f", near {error.near!r}" if error.near else ""
            text = message("AMQ8405I", line=error.where.line, column=error.where.column, near=near, detail=error.detail)
        except CommandRefused as error:
            text = str(error)
        return CommandEffect(
            line=command.line, command=command.text, effect=effect, kind=kind, name=name, text=text, changes=changes
        )

    def _change(self, command: Command) -> tuple[Effect, str, list[AttributeChange]]:
        if command.noun == "TOPICSTR":
            return "clear", f"the retained publication of {command.required_name()}", []
        kind, name = command.noun, object_name(command)
        key, old = (kind, name), self._of(kind, name)
        effective = _with_effect(command)
        if command.verb == "DEFINE":
            replace, like = replace_and_like(effective)
            if old is not None and not replace:
                raise CommandRefused("AMQ8150E", kind=_word(kind), name=name)
            base = defaults(kind) if like is None else self._of(kind, like)
            if base is None:
                raise CommandRefused("AMQ8147E", kind=_word(kind), name=like)
            new = {keyword: base[keyword] for keyword in ATTRIBUTES[kind]} | settings(kind, effective, *MANNERS)
            if kind == "TOPIC" and effective.parameter("TOPICSTR") is None:
                new["TOPICSTR"] = "" if old is None else old["TOPICSTR"]
            self._objects[key] = new
            return _compared("create" if old is None else "change", old or defaults(kind), new)
        if old is None:
            raise CommandRefused("AMQ8147E", kind=_word(kind), name=name)
        if command.verb == "ALTER":
            new = old | settings(kind, effective, "FORCE", "NOFORCE")
            self._objects[key] = new
            return _compared("change", old, new)
        depth = int(old.get("CURDEPTH", 0)) if kind == "QLOCAL" else 0
        if command.verb == "CLEAR":
            self._objects[key] = old | {"CURDEPTH": 0}
            return "clear", f"{depth:,} messages", []
        if depth and command.parameter("PURGE") is None:
            raise CommandRefused("AMQ8143E", name=name, detail=f"{depth} messages are on it; hint: PURGE deletes them")
        self._objects[key] = None
        return "delete", f"with {depth:,} messages" if depth else "", []

    def _of(self, kind: str, name: str) -> dict[str, Value] | None:
        key = kind, name
        if key not in self._objects:
            self._objects[key] = _existing(self._connection, kind, name)
        return self._objects[key]


def _left_out(command: Command) -> str:
    """Return why a command is not run here, or ""."""
    is_retained = (command.verb, command.noun) == ("CLEAR", "TOPICSTR")
    verbs = ("DEFINE", "ALTER", "DELETE", *(("CLEAR",) if command.noun == "QLOCAL" else ()))
    if not is_retained and (command.noun not in KINDS or command.verb not in verbs):
        return f"{command.verb} {command.noun} is not run here: use `mqbridge mqsc`"
    if (command.name or "").startswith(_SYSTEM):
        return "SYSTEM objects are not changed here: use `mqbridge mqsc`"
    return ""


def _with_effect(command: Command) -> Command:
    """Return a command without the attributes that have no effect."""
    parameters = tuple(
        parameter
        for parameter in command.parameters
        if not without_effect(command.noun, FLAGS.get(parameter.keyword, (parameter.keyword,))[0])
    )
    return Command(
        command.text, command.line, command.verb, command.noun, command.name, parameters, None, command.where
    )


def _compared(
    effect: Effect, old: Mapping[str, Value], new: Mapping[str, Value]
) -> tuple[Effect, str, list[AttributeChange]]:
    """Return the attributes that differ, and the effect "none" if a change does not change any."""
    changes = [
        AttributeChange(keyword, str(old.get(keyword, "")), str(value))
        for keyword, value in new.items()
        if str(old.get(keyword, "")) != str(value)
    ]
    return ("none" if effect == "change" and not changes else effect), "", changes


def _existing(connection: Connection, kind: str, name: str) -> dict[str, Value] | None:
    """Return the attributes of an object, or None if it does not exist."""
    (response,) = connection.command(f"DISPLAY {kind}({_quoted(name)}) ALL")
    if not response.ok or not response.objects:
        return None
    keywords = {*ATTRIBUTES[kind], "CURDEPTH"}
    return {keyword: value for keyword, value in response.objects[0].items() if keyword in keywords}


def _word(kind: str) -> str:
    return "Queue" if kind.startswith("Q") else kind.capitalize()
