"""The attributes of mappings that are templates: read and checked by the table of `bridge.config.mapping`.

A rule reads them when it is made, and fills them for each message. Which fields of a message they use, the table says, too.
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

#: Folders of names that people write for fields of a JSON payload; no message has them.
_PAYLOAD_FOLDERS = ("$", "payload")

#: Fields of an MQMD that every rule to MQTT looks at.
_MD_ALWAYS = frozenset(
    ("Format", "Encoding", "CodedCharSetId", "Persistence", "Expiry", "UserIdentifier", "CorrelId")
)
#: Bytes of a payload, more than there ever are.
_LONGEST = 2**40
_MESSAGE_ID_NAMES = frozenset(("messageId", "mqtt.msgid"))

Made = TypeVar("Made")


class CheckedTemplate:
    """A template, and what it has to come out as: read when a rule is made, filled and checked for each message.

    `captures` are the names that the mapping's source has; `of_publication` says that messages are publications, which
    have no MQMD. Raises RuleError, also for a template without names whose text is not what it has to be.
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
        """Return the value of the attribute for a message, or raise Unmappable."""
        if self._constant is not None:
            return self._constant
        return self._check(self.template.render(scope))


def read_templates(config: AnyMapping, captures: Collection[str]) -> dict[str, dict[str, CheckedTemplate]]:
    """Return the templates of a mapping by the part of the message that they set, and the field of it. Raises RuleError.

    Properties, and members of a payload, are by their names.
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
    assert attribute.target.check is not None  # that is part of the table
    check = CHECKS[attribute.target.check]
    if isinstance(config, ToMqttMapping) and attribute.target.field == "topic" and config.destination.link == LOCAL:
        check = topic_string  # a local client is a subscriber to an MQ topic
    return CheckedTemplate(location, text, check, captures, of_publication=isinstance(config, ToMqMapping))


def located(location: tuple[str, ...], make: Callable[..., Made], *arguments: object) -> Made:
    """Return the result of `make`, and add to a RuleError that it raises where in the mapping the error is."""
    try:
        return make(*arguments)
    except RuleError as error:
        error.location = error.location or location
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


def used_fields_of(config: AnyMapping) -> UsedFields:
    """Return the fields of a message that a mapping uses: those that its filter and its templates name."""
    names = set(config.filter.properties).union(*(template_of(text).names for _, _, text in templates_of(config)))
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
