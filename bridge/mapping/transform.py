"""New JSON documents from old ones: `payload: {transform: TREE, keep: [...], drop: [...]}` of a mapping."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from bridge.mapping.json_document import MISSING, PathError, encoded, path_of
from bridge.mapping.template import Placeholder, RuleError, Scope, template_of
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

#: The key of an object that is an expression: `{expr: payload.temp * 1.8 + 32}`.
EXPRESSION = "expr"

Location = tuple[str, ...]
#: Returns a value of the new document. Raises Unmappable.
Part = Callable[[Any], Any]
#: Parses an expression. Raises RuleError.
ExpressionOf = Callable[[str], Any]
#: Raises RuleError for a name that no message has.
Check = Callable[[Placeholder], None]


class Transform:
    """The new document of a mapping. Raises RuleError.

    With `keep` or `drop`, it begins with the old document, or with the part that `split` has made of it (`of_part`). The
    members of `tree` are added to that, or replace it. `expression_of` parses expressions, and `check` checks the names in
    templates.
    """

    __slots__ = ("_drop", "_keep", "_of_part", "_part")

    def __init__(
        self,
        tree: Any,
        keep: Collection[str],
        drop: Collection[str],
        *,
        expression_of: ExpressionOf,
        check: Check,
        of_part: bool = False,
    ) -> None:
        self._of_part = of_part
        root = "@" if of_part else "$"
        self._keep = [_names_of(path, root, ("payload", "keep")) for path in keep]
        self._drop = [_names_of(path, root, ("payload", "drop")) for path in drop]
        compiler = _Compiler(expression_of, check)
        self._part = None if tree is None else compiler.part(tree, ("payload", "transform"))

    def apply(self, scope: Scope) -> bytes:
        """Return the new payload of a message. Raises Unmappable."""
        try:
            if not self._keep and not self._drop:
                assert self._part is not None
                return encoded(self._part(scope))
            document = scope.part if self._of_part else scope.document
            if not isinstance(document, dict):
                raise Unmappable(
                    cmqc.MQRC_FORMAT_ERROR, "payload.keep and payload.drop need an object, not another value"
                )
            document = _kept(document, self._keep) if self._keep else _without(document, self._drop)
            return encoded(document if self._part is None else _merged(document, self._part(scope)))
        except RecursionError as error:
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, "the JSON document is nested too deeply") from error


class _Compiler:
    """Converts the tree of the configuration to functions of a message."""

    def __init__(self, expression_of: ExpressionOf, check: Check) -> None:
        self._expression_of = expression_of
        self._check = check

    def part(self, node: Any, location: Location) -> Part:
        """Return the function for a node of the tree. Raises RuleError."""
        if isinstance(node, Mapping):
            if node.keys() == {EXPRESSION}:
                return self._expression(node[EXPRESSION], (*location, EXPRESSION))
            members = {str(name): self.part(value, (*location, str(name))) for name, value in node.items()}
            return lambda scope: {name: part(scope) for name, part in members.items()}
        if isinstance(node, list):
            elements = [self.part(value, (*location, str(index))) for index, value in enumerate(node)]
            return lambda scope: [part(scope) for part in elements]
        if isinstance(node, str):
            return self._template(node, location)
        return lambda _scope: node

    def _expression(self, text: Any, location: Location) -> Part:
        if not isinstance(text, str):
            raise RuleError.at(location, f"an expression is text, not {text!r}")
        try:
            expression = self._expression_of(text)
        except RuleError as error:
            error.location = location
            raise
        name = ".".join(location)

        def value_of(scope: Any) -> Any:
            try:
                return expression.value(scope)
            except Unmappable as error:
                raise Unmappable(error.reason, f"{name}: {error}") from error

        return value_of

    def _template(self, text: str, location: Location) -> Part:
        try:
            template = template_of(text)
            placeholders = [piece for piece in template.pieces if isinstance(piece, Placeholder)]
            for placeholder in placeholders:
                self._check(placeholder)
        except RuleError as error:
            error.location = location
            raise
        name = ".".join(location)
        if len(template.pieces) == 1 and placeholders and placeholders[0].is_typed and not placeholders[0].written:
            return partial(_selected, placeholders[0], name)

        def text_of(scope: Scope) -> str:
            try:
                return template.render(scope)
            except Unmappable as error:
                raise Unmappable(error.reason, f"{name}: {error}") from error

        return text_of


def _selected(placeholder: Placeholder, name: str, scope: Scope) -> Any:
    value = placeholder.selected(scope)
    if value is MISSING:
        raise Unmappable(cmqc.MQRC_PROPERTY_NOT_AVAILABLE, f"{name}: {placeholder.lack(scope)}")
    return value


def _names_of(text: str, root: str, location: Location) -> tuple[str, ...]:
    """Return the names of a query without indexes that begins with `root`. Raises RuleError."""
    try:
        segments = path_of(text, root).segments
    except PathError as error:
        raise RuleError.at(location, f"{text!r}: {error.sentence}") from error
    names = tuple(segment for segment in segments if isinstance(segment, str))
    if not segments or len(names) < len(segments):
        raise RuleError.at(location, f"{text!r} is not a member of an object, such as {root}.device.id")
    return names


def _kept(document: dict[str, Any], paths: Collection[tuple[str, ...]]) -> dict[str, Any]:
    """Return the members of a document that the paths select, in the order of the document."""
    selected = {}
    for name, value in document.items():
        rests = [path[1:] for path in paths if path[0] == name]
        if not all(rests):
            selected[name] = value
        elif rests and isinstance(value, dict) and (members := _kept(value, rests)):
            selected[name] = members
    return selected


def _without(document: dict[str, Any], paths: Collection[tuple[str, ...]]) -> dict[str, Any]:
    """Return a document without the members that the paths select."""
    remaining = {}
    for name, value in document.items():
        rests = [path[1:] for path in paths if path[0] == name]
        if all(rests):
            remaining[name] = _without(value, rests) if rests and isinstance(value, dict) else value
    return remaining


def _merged(old: dict[str, Any], new: Any) -> Any:
    """Return a document with the members of another one, which replace its own. Objects are merged."""
    if not isinstance(new, dict):
        return new
    merged = dict(old)
    for name, value in new.items():
        before = merged.get(name)
        merged[name] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
