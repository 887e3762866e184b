"""The JSON filter of a mapping: a filter expression of RFC 9535 on the payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError
from jsonpath_rfc9535.filter_expressions import FilterContext, FilterExpression
from jsonpath_rfc9535.selectors import FilterSelector

from bridge.mapping.publication import Unmappable
from bridge.mapping.rule_error import FilterError
from bridge.wire import cmqc

_ENVIRONMENT = JSONPathEnvironment()
#: What stands before a filter expression to make it a query (RFC 9535, section 2.3.5).
_BEFORE = "$[?"


class WithDocument(Protocol):
    """What has a payload of JSON. Raises Unmappable where it is none."""

    @property
    def document(self) -> Any: ...


def json_test(text: str) -> Callable[[WithDocument], bool]:
    """The test of a message's payload that `text` is. Raises FilterError."""
    expression = _expression(text)

    def test(message: WithDocument) -> bool:
        try:
            document = message.document
        except Unmappable:
            return False  # no JSON, so nothing in it is as the filter wants it
        try:
            return expression.evaluate(FilterContext(env=_ENVIRONMENT, current=document, root=document))
        except JSONPathError as error:
            raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"the filter {text!r} cannot tell of the payload: {error}") from error

    return test


def _expression(text: str) -> FilterExpression:
    """The one filter expression of a text in which `$` and `@` are the payload."""
    try:
        query = _ENVIRONMENT.compile(f"{_BEFORE}{text}]")
    except JSONPathError as error:
        index = error.token.index if error.token is not None else len(_BEFORE)
        column = min(max(index - len(_BEFORE), 0), len(text)) + 1
        message = error.args[0] if error.args else type(error).__name__
        raise FilterError(f"{text!r} is no filter expression of RFC 9535: {message}", column) from error
    selectors = query.segments[0].selectors if len(query.segments) == 1 else ()
    if len(selectors) != 1 or not isinstance(selectors[0], FilterSelector):
        raise FilterError(f"{text!r} is more than one filter expression of RFC 9535, such as $.temp > 30 && $.unit == 'C'")
    return selectors[0].expression
