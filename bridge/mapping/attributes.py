"""Parsing and validation of the templates in mapping attributes, driven by the attribute table in `bridge.config.mapping`.

A rule parses the templates once and renders them for each message. The table also determines which message fields they use.

A scope contains the values of names for one message. Captures take precedence over `topic`, `clientId`, `qos`, `messageId`,
`retained`, `user`, `text` (the payload) and the MQTT 5 properties with a text value
(`bridge.telemetry.headers.TEXT_PROPERTIES`). `folder.name` is a message property, `md.CorrelId` a field of the MQMD, and any
other word a property in the usr folder. An empty word or MQMD field counts as missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from copy import copy
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from bridge.config.link import LOCAL
from bridge.config.mapping import (
    MappingAttribute,
    PropertyType,
    ToMqMapping,
    ToMqttMapping,
    TypedProperty,
    templates_of,
)
from bridge.config.values import listing
from bridge.mapping.chosen_names import ChosenNames
from bridge.mapping.json_document import document_of, encoded
from bridge.mapping.message_view import BYTE_FIELDS, md_json, text_of, utf_8
from bridge.mapping.rendered import BYTE_CHECKS, CHECKS, topic_string, typed
from bridge.mapping.schema import Schema, SchemaError
from bridge.mapping.split import PART_COUNT, PART_INDEX, PayloadPart
from bridge.mapping.table import NO_TABLES, Tables, tables_of
from bridge.mapping.template import (
    FIELDS,
    MD_FIELDS,
    REASON_NAME,
    WORDS,
    Placeholder,
    RecordLayoutError,
    RuleError,
    TemplateError,
    template_of,
)
from bridge.mapping.transform import Transform
from bridge.mqtt.packets import PublishProperties
from bridge.telemetry.headers import ELEMENT, FOLDER, TEXT_PROPERTIES, Headers, hops_text
from bridge.telemetry.message import CCSID_UTF8, Publication, Unmappable
from bridge.wire import cmqc
from bridge.wire.mq import MQDLH, MQMD, Typed

if TYPE_CHECKING:
    from bridge.mapping.record_payload import RecordPayload

#: Steps of a mapping, such as "to.queue", with their values as text.
Steps = list[tuple[str, str]]


class PublicationScope:
    """The names available in a mapping to MQ."""

    __slots__ = ("_captures", "_document", "_user_properties", "part", "publication", "steps", "tables")

    def __init__(
        self,
        publication: Publication,
        captures: Mapping[str, str],
        steps: Steps | None = None,
        tables: Tables = NO_TABLES,
    ) -> None:
        self.publication = publication
        #: the tables of the mapping, the same ones for all lookups of a message
        self.tables = tables
        #: the steps so far, or None if they are not recorded
        self.steps = steps
        self._captures = captures
        self._document: Any = _UNREAD
        self._user_properties: dict[str, str] | None = None
        #: the part of the document that `split` has made
        self.part: Any = None

    def with_part(self, part: PayloadPart) -> PublicationScope:
        """Return the values for a part."""
        return _of_part(self, part)

    def __call__(self, name: str) -> str | None:
        if name in self._captures:
            return self._captures[name]
        word = _OF_PUBLICATION.get(name)
        if word is not None:
            return word(self.publication) or None
        folder, dot, rest = name.partition(".")
        if dot and folder != "usr":
            return None
        return self.user_properties.get(rest if dot else name)

    @property
    def user_properties(self) -> Mapping[str, str]:
        """The User Properties by name, cached."""
        if self._user_properties is None:
            self._user_properties = self.publication.user_properties
        return self._user_properties

    @property
    def descriptor(self) -> Mapping[str, str | int]:
        """The fields of the MQMD, which a publication does not have."""
        return {}

    @property
    def qos(self) -> int:
        """The QoS of the publication."""
        return self.publication.qos

    @property
    def retained(self) -> bool:
        """Whether the publication has the RETAIN flag."""
        return self.publication.retain

    @property
    def size(self) -> int:
        """The size of the payload in bytes."""
        return len(self.publication.payload)

    @property
    def document(self) -> Any:
        """The payload parsed as JSON, cached. Raises Unmappable."""
        if self._document is _UNREAD:
            self._document = document_of(self.publication.payload)
        return self._document

    @property
    def json(self) -> bytes:
        """The payload, which is JSON in UTF-8 if `document` is."""
        return self.publication.payload


class MessageScope:
    """The names available in a mapping to MQTT."""

    __slots__ = (
        "_captures",
        "_document",
        "_record",
        "_text",
        "ccsid",
        "encoding",
        "headers",
        "part",
        "properties",
        "qos",
        "steps",
        "tables",
        "topic",
    )

    def __init__(
        self,
        headers: Headers,
        captures: Mapping[str, str],
        properties: PublishProperties,
        *,
        topic: str,
        qos: int,
        ccsid: int | None,
        encoding: int | None = None,
        record: RecordPayload | None = None,
        steps: Steps | None = None,
        tables: Tables = NO_TABLES,
    ) -> None:
        self.headers = headers
        #: the tables of the mapping, the same ones for all lookups of a message
        self.tables = tables
        #: None: the body is text
        self._record = record
        #: the steps so far, or None if they are not recorded
        self.steps = steps
        #: MQTT 5 properties of the message or, for an answer, those that its request specifies
        self.properties = properties
        self._captures = captures
        self.topic = topic
        #: that of the MQTT client that published the message, otherwise derived from its persistence
        self.qos = qos
        #: of the body, as specified by the mapping, otherwise by the message
        self.ccsid = ccsid or headers.ccsid
        self.encoding = encoding or headers.encoding
        self._text: str | None = None
        self._document: Any = _UNREAD
        #: the part of the document that `split` has made
        self.part: Any = None

    def with_part(self, part: PayloadPart) -> MessageScope:
        """Return the values for a part."""
        return _of_part(self, part)

    def __call__(self, name: str) -> str | None:
        if name in self._captures:
            return self._captures[name]
        word = _OF_MESSAGE.get(name)
        if word is not None:
            return word(self) or None
        folder, dot, rest = name.partition(".")
        if not dot:
            return self.headers.folder("usr").get(name)
        if folder == "md":
            return field_text(self.headers.md, rest) or None
        if folder == "dlh":
            return _dead_letter_text(self.headers.dead_letter, rest)
        return self.headers.folder(folder).get(rest)

    @property
    def user_properties(self) -> Mapping[str, str]:
        """The message properties of the usr folder."""
        return self.headers.folder("usr")

    @property
    def descriptor(self) -> Mapping[str, str | int]:
        """The fields of the MQMD by name."""
        return md_json(self.headers.md)

    @property
    def retained(self) -> bool:
        """Whether the message is a retained publication."""
        return self.headers.retained

    @property
    def size(self) -> int:
        """The size of the body in bytes."""
        return len(self.headers.body)

    @property
    def text(self) -> str:
        """The decoded body, cached. Raises Unmappable."""
        if self._text is None:
            self._text = text_of(self.headers.body, self.ccsid, self.encoding)
        return self._text

    @property
    def document(self) -> Any:
        """The body as a JSON document, cached. Raises Unmappable."""
        if self._document is _UNREAD:
            if self._record is None:
                self._document = document_of(self.json)
            else:
                self._document = self._record.document_of(self.headers.body, self.ccsid, self.encoding)
                if self.steps is not None:
                    self.steps.append(("document of the record", encoded(self._document).decode()))
        return self._document

    @property
    def json(self) -> bytes:
        """The body as JSON in UTF-8. Raises Unmappable."""
        if self._record is not None:
            return encoded(self.document)
        return utf_8(self.headers.body, self.ccsid, self.encoding)


def _of_part(scope: SomeScope, part: PayloadPart) -> SomeScope:
    """Return the values of a message for one of its parts. The parts share the parsed payload."""
    part_scope = copy(scope)
    part_scope.part = part.value
    part_scope._captures = {**scope._captures, **part.names}
    if scope.steps is not None:
        scope.steps.append(("split", f"part {part.index} of {part.count}"))
    return part_scope


def part_names(scope: PublicationScope | MessageScope) -> dict[str, str]:
    """Return the properties of a message that is a part of another one."""
    return {name: scope(name) or "" for name in (PART_INDEX, PART_COUNT)}


def _dead_letter_text(header: MQDLH | None, field: str) -> str | None:
    if header is None:
        return None
    return cmqc.reason_name(header.Reason) if field == REASON_NAME else field_text(header, field) or None


def field_text(md: MQMD | MQDLH, field: str) -> str:
    """Return a field of an MQMD or MQDLH as text.

    Bytes become hexadecimal, numbers decimal. Characters lose trailing blanks and NULs.
    """
    value = getattr(md, field)
    if field in BYTE_FIELDS:
        return str(value.hex().upper())
    return value.rstrip(b" \0").decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_UNREAD = object()

_OF_PUBLICATION: dict[str, Callable[[Publication], str]] = {
    "topic": lambda publication: publication.topic,
    "clientId": lambda publication: publication.client_id,
    "qos": lambda publication: str(publication.qos),
    "messageId": lambda publication: str(publication.packet_id or ""),
    "retained": lambda publication: "true" if publication.retain else "false",
    "user": lambda publication: publication.user.decode("utf-8", "replace"),
    "text": lambda publication: text_of(publication.payload, CCSID_UTF8),
    # the same values, under their names as message properties
    "mqtt.clientId": lambda publication: publication.client_id,
    "mqtt.qos": lambda publication: str(publication.qos),
    "mqtt.msgid": lambda publication: str(publication.packet_id or ""),
    "mqps.Top": lambda publication: publication.topic,
    "mqps.Ret": lambda publication: "true" if publication.retain else "",
    f"{FOLDER}.{ELEMENT}": lambda publication: hops_text(publication.hops),
}


def _property(field: str, text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that returns a property of a publication or a MessageScope as text."""

    def value_of(source: Any) -> str:
        value = getattr(source.properties, field)
        return "" if value is None else text(value)

    return value_of


for _field, _element, _title, _text in TEXT_PROPERTIES:
    _OF_PUBLICATION[_element] = _OF_PUBLICATION[f"mqtt.{_element}"] = _property(_field, _text)

#: The names of a publication, except captures and User Properties.
PUBLICATION_NAMES = frozenset(_OF_PUBLICATION)

_OF_MESSAGE: dict[str, Callable[[MessageScope], str]] = {
    "topic": lambda scope: scope.topic,
    "clientId": lambda scope: scope.headers.client_id,
    "qos": lambda scope: str(scope.qos),
    "messageId": lambda scope: str(scope.headers.packet_id or ""),
    "retained": lambda scope: "true" if scope.headers.retained else "false",
    "user": lambda scope: scope.headers.user.decode("utf-8", "replace"),
    "text": lambda scope: scope.text,
}
for _field, _element, _title, _text in TEXT_PROPERTIES:
    _OF_MESSAGE[_element] = _property(_field, _text)


AnyMapping = ToMqMapping | ToMqttMapping

_SCHEMA = ("payload", "schema")
#: MQMD fields that every rule to MQTT uses.
_MD_ALWAYS = frozenset(("Format", "Encoding", "CodedCharSetId", "Persistence", "Expiry", "UserIdentifier", "CorrelId"))
#: A number of bytes beyond the size of any payload.
_MAX_LENGTH = 2**40
_MESSAGE_ID_NAMES = frozenset(("messageId", "mqtt.msgid"))

Made = TypeVar("Made")
SomeScope = TypeVar("SomeScope", PublicationScope, MessageScope)


class CheckedTemplate:
    """A template with the check for its result: parsed once, rendered for each message.

    `captures` are the capture names of the mapping's source. `of_publication` means that messages are publications, which
    have no MQMD. `byte_check` checks the result of the filter `bytes`. None: the field contains text. `chosen` checks a name
    that contains values of a message. Raises RuleError, also if a template without names fails the check.
    """

    __slots__ = ("_check", "_constant", "_is_binary", "location", "template")

    def __init__(
        self,
        location: tuple[str, ...],
        text: str,
        check: Callable[[str], Any],
        captures: Collection[str] = (),
        *,
        of_publication: bool = False,
        byte_check: Callable[[bytes], bytes] | None = None,
        chosen: Callable[[str], None] | None = None,
        tables: Tables = NO_TABLES,
    ) -> None:
        self.template = located(location, template_of, text)
        #: path of the template in the mapping, such as "to.queue"
        self.location = ".".join(location)
        self._check = check
        #: whether its value is bytes that may not be text
        self._is_binary = byte_check is not None
        if self.template.is_bytes:
            if byte_check is None:
                located(location, _refuse, "bytes is a filter for msg_id, correl_id and correlation_data")
            else:
                self._check = partial(_checked_bytes, byte_check)
        elif chosen is not None:
            self._check = partial(_checked_name, check, chosen)
        self._constant: Any = None
        placeholders = [piece for piece in self.template.pieces if isinstance(piece, Placeholder)]
        for placeholder in sorted(placeholders, key=attrgetter("name")):
            located(location, check_placeholder, placeholder, captures, of_publication, tables)
        if self.template.literal is not None:
            try:
                self._constant = check(self.template.literal)  # not checked with `chosen`: no message chooses it
            except Unmappable as error:
                located(location, _refuse, str(error))

    def of(self, scope: PublicationScope | MessageScope) -> Any:
        """Return the value of the attribute for a message. Raises Unmappable, with the location."""
        value = self._constant
        if value is None:
            try:
                value = self._check(self.template.render(scope))
            except Unmappable as error:
                raise Unmappable(error.reason, f"{self.location}: {error}") from error
        if scope.steps is not None:
            scope.steps.append((self.location, self._shown(value)))
        return value

    def _shown(self, value: Any) -> str:
        """Return the value of the attribute for display."""
        if isinstance(value, Typed):
            return f"{value.value!r} (dt={value.dt})"
        if isinstance(value, bytes):
            return value.hex() if self._is_binary else value.decode(errors="replace")
        return str(value)


def _checked_bytes(check: Callable[[bytes], bytes], digits: str) -> bytes:
    return check(bytes.fromhex(digits))


def _checked_name(check: Callable[[str], Any], chosen: Callable[[str], None], name: str) -> Any:
    value = check(name)
    chosen(name)
    return value


def read_templates(config: AnyMapping, captures: Collection[str], origin: str) -> dict[str, dict[str, CheckedTemplate]]:
    """Return the templates of a mapping, by message part and field. Raises RuleError.

    Properties, and members of a payload, are listed by name. `origin` is the name of the queue manager.
    """
    parts: dict[str, dict[str, CheckedTemplate]] = defaultdict(dict)
    for location, attribute, text in templates_of(config):
        template = checked_template(config, captures, location, attribute, text, origin)
        parts[attribute.target.part][attribute.target.field or location[len(attribute.keys)]] = template
    return parts


def checked_template(
    config: AnyMapping,
    captures: Collection[str],
    location: tuple[str, ...],
    attribute: MappingAttribute,
    text: str,
    origin: str,
) -> CheckedTemplate:
    """Return a template of a mapping with its check. Raises RuleError."""
    assert attribute.target.check is not None  # guaranteed by `attributes_of`
    check = CHECKS[attribute.target.check]
    at_broker = isinstance(config, ToMqttMapping) and config.destination.link != LOCAL
    if isinstance(config, ToMqttMapping) and attribute.target.field == "topic" and not at_broker:
        check = topic_string  # local clients subscribe to MQ topics
    if (type_ := _property_type(config, location)) is not None:
        check = partial(typed, type_)
    return CheckedTemplate(
        location,
        text,
        check,
        captures,
        of_publication=isinstance(config, ToMqMapping),
        byte_check=BYTE_CHECKS.get(attribute.target.check),
        chosen=ChosenNames(config.names, config.allow, origin, at_broker=at_broker).check(attribute.target.check),
        tables=tables_of(config.tables),
    )


def schema_of(config: AnyMapping) -> Callable[[PublicationScope | MessageScope, bool], None] | None:
    """Return the check of payloads with the schema of a mapping, or None if it has none. Raises RuleError.

    The second parameter of the check is whether the publication is retained.
    """
    file = config.payload.schema_file
    if file is None:
        return None
    try:
        schema = located(_SCHEMA, Schema, config.schema_content, file.name)
    except OSError as error:
        raise SchemaError.at(_SCHEMA, f"{file} cannot be read: {error.strerror}") from error

    def check(scope: PublicationScope | MessageScope, retained: bool) -> None:
        if retained and not scope.size:
            return  # an empty retained publication clears the topic
        _ = scope.document  # raises Unmappable for a payload that is not JSON
        schema.check(msgspec.json.decode(scope.json))
        if scope.steps is not None:
            scope.steps.append(("payload.schema", "matches"))

    return check


def record_of(config: AnyMapping) -> RecordPayload | None:
    """Return the record of a mapping, or None if its payload is not a record. Raises RecordLayoutError."""
    if config.payload.type != "record":
        return None
    # Imported late: few mappings have records.
    from bridge.mapping.record_payload import checked_record

    try:
        return checked_record(config.payload, writes=isinstance(config, ToMqMapping))
    except RecordLayoutError as error:
        error.location = ("payload", *error.location)
        raise


def transform_of(config: AnyMapping, captures: Collection[str]) -> Transform | None:
    """Return the transformation of the payload, or None if the mapping has none. Raises RuleError."""
    payload, of_publication = config.payload, isinstance(config, ToMqMapping)
    if not payload.makes_document:
        return None
    tables = tables_of(config.tables)

    def expression_of(text: str) -> Any:
        # Imported late: few mappings have expressions.
        from bridge.mapping.expression import Expression

        return Expression(
            text, captures, of_publication=of_publication, of_part=config.split is not None, tables=tables
        )

    return Transform(
        payload.transform,
        payload.keep,
        payload.drop,
        expression_of=expression_of,
        check=lambda placeholder: check_placeholder(placeholder, captures, of_publication, tables),
        of_part=config.split is not None,
    )


def _property_type(config: AnyMapping, location: tuple[str, ...]) -> PropertyType | None:
    """Return the type of the property whose value is at a location, or None for text."""
    if not isinstance(config, ToMqMapping) or location[:2] != ("attributes", "properties"):
        return None
    property_value = config.attributes.properties[location[2]]
    return property_value.type if isinstance(property_value, TypedProperty) else None


def located(location: tuple[str, ...], make: Callable[..., Made], *arguments: object) -> Made:
    """Return the result of `make`, and add the location in the mapping to any RuleError."""
    try:
        return make(*arguments)
    except RuleError as error:
        error.location = error.location or location
        raise


def names_of(config: AnyMapping, captures: Collection[str]) -> tuple[str, ...]:
    """Return the names that the templates of a mapping can use besides those of all messages: captures, and those of parts.

    Raises RuleError.
    """
    if config.split is None:
        return (*captures,)
    for name in (PART_INDEX, PART_COUNT):
        if name in captures:
            raise RuleError.at(("split",), f"{{{name}}} is a name of split, and cannot be captured from the topic")
    return (*captures, PART_INDEX, PART_COUNT)


def check_placeholder(
    placeholder: Placeholder, names: Collection[str], of_publication: bool, tables: Tables = NO_TABLES
) -> None:
    """Raise TemplateError for a placeholder that no message of the direction can have. `names` as in `names_of`."""
    if placeholder.lookup is not None:
        table, column = placeholder.lookup
        if table not in tables:
            raise TemplateError(f"{{{placeholder.shown}}}: {table!r} is not a table (tables of the configuration)")
        if not tables[table].may_have(column):
            columns = listing(list(tables[table].columns), "and")
            raise TemplateError(f"{{{placeholder.shown}}}: table {table} has no column {column!r}, only {columns}")
    elif placeholder.name.partition("[")[0] in tables:
        raise TemplateError(f"{{{placeholder.name}}}: a lookup is table[KEY].COLUMN")
    if placeholder.path is None:
        check_known(placeholder.name, names, of_publication)
    elif placeholder.path.of_part and PART_INDEX not in names:
        raise TemplateError(
            f"{{{placeholder.name}}}: @ is a part of the payload, in mappings with split (hint: $ is the payload)"
        )


def check_known(name: str, captures: Collection[str], of_publication: bool) -> None:
    """Raise TemplateError for a name that no message of the direction can have, or that differs from a name only in case."""
    if name in captures or name in WORDS:
        return
    folder, dot, _ = name.partition(".")
    if of_publication and dot and folder in FIELDS:
        raise TemplateError(
            f"{{{name}}}: a publication has no MQ{folder.upper()}: only messages in mappings to MQTT have one"
        )
    if name.startswith("$"):
        raise TemplateError(
            f"{name}: properties compares properties of the message (hint: filter.json compares fields)"
        )
    if folder == "payload" and dot:
        raise TemplateError(f"{{{name}}}: a field of the payload is {{$.{name.removeprefix('payload.')}}}")
    if of_publication and dot and folder != "usr" and name not in PUBLICATION_NAMES:
        names = ", ".join(sorted(name for name in PUBLICATION_NAMES if "." in name))
        raise TemplateError(f"{{{name}}}: a publication has no such property (hint: write usr.NAME, or one of {names})")
    if dot:
        return
    for similar in (*captures, *WORDS):
        if similar.lower() == name.lower():
            raise TemplateError(
                f"{{{name}}}: did you mean {{{similar}}}? A message property of that name is {{usr.{name}}}"
            )


def _refuse(why: str) -> None:
    raise TemplateError(why)


class UsedFields(msgspec.Struct, frozen=True):
    """The fields that a mapping uses, besides topic, client and other properties, which it always uses."""

    #: whether a template or a filter reads the payload
    payload: bool = False
    #: whether a template reads the payload, other than fields in the destination of a mapping to MQ
    text: bool = False
    #: whether the destination of a mapping to MQ contains fields of the payload
    destination: bool = False
    #: minimum and maximum payload size in bytes. None: any size
    size: tuple[int, int] | None = None
    #: whether the message id is used outside its own place in the mqtt folder
    packet_id: bool = False
    #: MQMD fields
    md: frozenset[str] = _MD_ALWAYS


def used_fields_of(config: AnyMapping) -> UsedFields:
    """Return the message fields that the filter and the templates of a mapping use."""
    templates = [(attribute.target.part, template_of(text)) for _, attribute, text in templates_of(config)]
    names = set(config.filter.properties).union(*(template.names for _, template in templates))
    least, most = config.filter.min_size, config.filter.max_size
    # Without an MQRFH2, the message id is a message property with a value of its own.
    without_header = isinstance(config, ToMqMapping) and not config.attributes.rfh2
    text = "text" in names or any(template.reads_payload for part, template in templates if part != "object")
    return UsedFields(
        payload=text or config.filter.json_path is not None or config.filter.expr is not None,
        text=text,
        destination=any(template.reads_payload for part, template in templates if part == "object"),
        size=None if least is None and most is None else (least or 0, _MAX_LENGTH if most is None else most),
        packet_id=without_header or not names.isdisjoint(_MESSAGE_ID_NAMES),
        md=_MD_ALWAYS | {field for name in names if (field := name.removeprefix("md.")) != name and field in MD_FIELDS},
    )
