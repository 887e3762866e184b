"""Which messages a mapping takes: the filter of its configuration, compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError
from jsonpath_rfc9535.filter_expressions import FilterContext, FilterExpression
from jsonpath_rfc9535.selectors import FilterSelector

from bridge.config.mapping import FilterConfig, FilterValue
from bridge.mapping.attribute import check_known, located
from bridge.mapping.publication import Unmappable
from bridge.mapping.rule_error import FilterError
from bridge.mapping.template import check_name
from bridge.wire import cmqc

_ENVIRONMENT = JSONPathEnvironment()
#: What stands before a filter expression to make it a query (RFC 9535, section 2.3.5).
_BEFORE = "$[?"


class Filterable(Protocol):
    """What a filter looks at; :mod:`bridge.mapping.scope` has it for both directions."""

    def __call__(self, name: str, /) -> str | None: ...
    @property
    def qos(self) -> int: ...
    @property
    def retained(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def document(self) -> Any: ...


Test = Callable[[Filterable], bool]


class Filter:
    """Takes those messages of which all is true. Raises FilterError."""

    __slots__ = ("_tests",)

    def __init__(self, config: FilterConfig, captures: Collection[str] = (), *, of_publication: bool = False) -> None:
        tests: list[Test] = []
        if config.qos is not None:
            tests.append(_of_qos(frozenset(config.qos)))
        if config.retained is not None:
            tests.append(_of_retained(config.retained))
        if config.min_size is not None or config.max_size is not None:
            tests.append(_of_size(config.min_size or 0, config.max_size))
        for name, wanted in config.properties.items():
            where = f"filter.properties.{name}"
            located(where, check_name, name)
            located(where, check_known, name, captures, of_publication)
            tests.append(_of_property(name, wanted))
        if config.json_path is not None:
            # last, for it costs the most
            tests.append(located("filter.json", _of_json, config.json_path))
        self._tests = tuple(tests)

    def __bool__(self) -> bool:
        return bool(self._tests)

    def takes(self, message: Filterable) -> bool:
        """Whether a message is one that the filter takes. Raises Unmappable where its headers cannot be read."""
        return all(test(message) for test in self._tests)


def _of_qos(wanted: frozenset[int]) -> Test:
    return lambda message: message.qos in wanted


def _of_retained(wanted: bool) -> Test:
    return lambda message: message.retained == wanted


def _of_size(low: int, high: int | None) -> Test:
    return lambda message: message.size >= low and (high is None or message.size <= high)


def _of_property(name: str, wanted: FilterValue) -> Test:
    if wanted is None:
        return lambda message: message(name) is None
    if isinstance(wanted, list):
        tests = [_of_value(one) for one in wanted]
        return lambda message: any(test(message(name)) for test in tests)
    test = _of_value(wanted)
    return lambda message: test(message(name))


def _of_value(wanted: str | int | float) -> Callable[[str | None], bool]:
    if isinstance(wanted, bool):
        words = ("true", "1") if wanted else ("false", "0")
        return lambda value: value is not None and value.strip().lower() in words
    if isinstance(wanted, int | float):
        return lambda value: _number(value) == wanted
    return lambda value: value == wanted


def _number(value: str | None) -> int | float | None:
    """The number that a property is; properties of MQTT are text, and those of MQ come as text here."""
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return None


def _of_json(text: str) -> Test:
    expression = _expression(text)

    def test(message: Filterable) -> bool:
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
