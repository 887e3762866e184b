"""One attribute of a mapping that is a template: read when the rule is made, filled and checked for each message."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from bridge.mapping.rules.errors import RuleError, TemplateError
from bridge.mapping.rules.scope import PUBLICATION_NAMES
from bridge.mapping.rules.template import WORDS, Scope, Template
from bridge.telemetry.message import Unmappable

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
