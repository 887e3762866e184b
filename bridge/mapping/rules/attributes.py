"""Parsing and validation of the templates in mapping attributes, driven by the attribute table in `bridge.config.mapping`.

A rule parses the templates once and renders them for each message. The table also determines which message fields they use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import msgspec

from bridge.config.link import LOCAL
from bridge.config.mapping import Attribute, ToMqMapping, ToMqttMapping, templates_of
from bridge.mapping.rules.rendered import CHECKS, topic_string
from bridge.mapping.rules.scope import PUBLICATION_NAMES
from bridge.mapping.rules.template import MD_FIELDS, WORDS, RuleError, Scope, TemplateError, template_of
from bridge.telemetry.message import Unmappable

AnyMapping = ToMqMapping | ToMqttMapping

#: Folder names that users write for fields of a JSON payload. No message has such folders.
_PAYLOAD_FOLDERS = ("$", "payload")

#: MQMD fields that every rule to MQTT uses.
_MD_ALWAYS = frozenset(
    ("Format", "Encoding", "CodedCharSetId", "Persistence", "Expiry", "UserIdentifier", "CorrelId")
)
#: A number of bytes beyond the size of any payload.
_MAX_LENGTH = 2**40
_MESSAGE_ID_NAMES = frozenset(("messageId", "mqtt.msgid"))

Made = TypeVar("Made")


class CheckedTemplate:
    """A template with the check for its result: parsed once, rendered for each message.

    `captures` are the capture names of the mapping's source. `of_publication` means that messages are publications, which
    have no MQMD. Raises RuleError, also if a template without names fails the check.
    """

    __slots__ = ("_check", "_constant", "template")

    def __init__(
        self,
        location: tuple[str, ...],
        text: str,
        check: Callable[[str], Any],
        captures: Collection[str] = (),
        *,
        of_publication: bool = False,
    ) -> None:
        self.template = located(location, template_of, text)
        self._check = check
        self._constant: Any = None
        for name in sorted(self.template.names):
            located(location, check_known, name, captures, of_publication)
        if self.template.literal is not None:
            try:
                self._constant = check(self.template.literal)
            except Unmappable as error:
                located(location, _refuse, str(error))

    def of(self, scope: Scope) -> Any:
        """Return the value of the attribute for a message. Raises Unmappable."""
        if self._constant is not None:
            return self._constant
        return self._check(self.template.render(scope))


def read_templates(config: AnyMapping, captures: Collection[str]) -> dict[str, dict[str, CheckedTemplate]]:
    """Return the templates of a mapping, by message part and field. Raises RuleError.

    Properties, and members of a payload, are listed by name.
    """
    parts: dict[str, dict[str, CheckedTemplate]] = defaultdict(dict)
    for location, attribute, text in templates_of(config):
        template = checked_template(config, captures, location, attribute, text)
        parts[attribute.target.part][attribute.target.field or location[-1]] = template
    return parts


def checked_template(
    config: AnyMapping, captures: Collection[str], location: tuple[str, ...], attribute: Attribute, text: str
) -> CheckedTemplate:
    """Return a template of a mapping with its check. Raises RuleError."""
    assert attribute.target.check is not None  # guaranteed by `attributes_of`
    check = CHECKS[attribute.target.check]
    if isinstance(config, ToMqttMapping) and attribute.target.field == "topic" and config.destination.link == LOCAL:
        check = topic_string  # local clients subscribe to MQ topics
    return CheckedTemplate(location, text, check, captures, of_publication=isinstance(config, ToMqMapping))


def located(location: tuple[str, ...], make: Callable[..., Made], *arguments: object) -> Made:
    """Return the result of `make`, and add the location in the mapping to any RuleError."""
    try:
        return make(*arguments)
    except RuleError as error:
        error.location = error.location or location
        raise


def check_known(name: str, captures: Collection[str], of_publication: bool) -> None:
    """Raise TemplateError for a name that no message of the direction can have, or that differs from a name only in case."""
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


class UsedFields(msgspec.Struct, frozen=True):
    """The fields that a mapping uses, besides topic, client and other properties, which it always uses."""

    #: whether a template or a filter reads the payload
    payload: bool = False
    #: whether a template reads the payload
    text: bool = False
    #: minimum and maximum payload size in bytes. None: any size
    size: tuple[int, int] | None = None
    #: whether the message id is used outside its own place in the mqtt folder
    message_id: bool = False
    #: MQMD fields
    md: frozenset[str] = _MD_ALWAYS


def used_fields_of(config: AnyMapping) -> UsedFields:
    """Return the message fields that the filter and the templates of a mapping use."""
    names = set(config.filter.properties).union(*(template_of(text).names for _, _, text in templates_of(config)))
    least, most = config.filter.min_size, config.filter.max_size
    # Without an MQRFH2, the message id is a message property with a value of its own.
    without_header = isinstance(config, ToMqMapping) and not config.attributes.rfh2
    return UsedFields(
        payload="text" in names or config.filter.json_path is not None,
        text="text" in names,
        size=None if least is None and most is None else (least or 0, _MAX_LENGTH if most is None else most),
        message_id=without_header or not names.isdisjoint(_MESSAGE_ID_NAMES),
        md=_MD_ALWAYS | {field for name in names if (field := name.removeprefix("md.")) != name and field in MD_FIELDS},
    )
