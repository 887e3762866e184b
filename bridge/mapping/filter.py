"""The filter of a mapping, and the filters of the mappings that its `otherwise` names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from bridge.config.mapping import FilterConfig, FilterValue, ToMqMapping, ToMqttMapping
from bridge.mapping.attributes import check_known, located, record_of
from bridge.mapping.table import NO_TABLES, Tables, tables_of
from bridge.mapping.template import FilterError, check_name
from bridge.mapping.topic_pattern import pattern_of
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.mapping.record_payload import RecordPayload


class Filterable(Protocol):
    """The parts of a message that filters use, implemented by :mod:`bridge.mapping.attributes` for both directions."""

    def __call__(self, name: str, /) -> str | None: ...
    @property
    def qos(self) -> int: ...
    @property
    def retained(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def document(self) -> Any: ...
    @property
    def part(self) -> Any: ...
    @property
    def user_properties(self) -> Mapping[str, str]: ...
    @property
    def descriptor(self) -> Mapping[str, str | int]: ...
    @property
    def tables(self) -> Tables: ...
    @property
    def steps(self) -> list[tuple[str, str]] | None: ...


Test = Callable[[Filterable], bool]


class Filter:
    """Accepts messages that meet all conditions. Raises FilterError."""

    __slots__ = ("_payload_tests", "_tests")

    def __init__(
        self,
        config: FilterConfig,
        captures: Collection[str] = (),
        *,
        of_publication: bool = False,
        tables: Tables = NO_TABLES,
    ) -> None:
        tests: list[Test] = []
        #: conditions on the payload, the last ones because they are the slowest
        payload_tests: list[Test] = []
        if config.qos is not None:
            tests.append(_of_qos(frozenset(config.qos)))
        if config.retained is not None:
            tests.append(_of_retained(config.retained))
        if config.min_size is not None or config.max_size is not None:
            tests.append(_of_size(config.min_size or 0, config.max_size))
        for name, value in config.properties.items():
            location = ("filter", "properties", name)
            located(location, check_name, name)
            located(location, check_known, name, captures, of_publication)
            tests.append(_of_property(name, value))
        if config.json_path is not None:
            # Imported late: few mappings use it, and its dependencies are slow to import.
            from bridge.mapping.json_filter import json_test

            payload_tests.append(located(("filter", "json"), json_test, config.json_path))
        if config.expr is not None:
            test = located(("filter", "expr"), _expression_test, config.expr, captures, of_publication, tables)
            payload_tests.append(test)
        self._payload_tests = tuple(payload_tests)
        self._tests = (*tests, *payload_tests)

    def __bool__(self) -> bool:
        return bool(self._tests)

    def takes(self, message: Filterable) -> bool:
        """Return whether the filter accepts a message. Raises Unmappable if the headers of the message are malformed."""
        return all(test(message) for test in self._tests)

    @property
    def reads_payload(self) -> bool:
        """Whether the filter has a condition on the payload content."""
        return bool(self._payload_tests)

    def takes_payload(self, message: Filterable) -> bool:
        """Return whether the message meets all conditions on the payload content. Raises Unmappable."""
        return all(test(message) for test in self._payload_tests)


def _expression_test(text: str, captures: Collection[str], of_publication: bool, tables: Tables) -> Test:
    # Imported late, like `json_test`.
    from bridge.mapping.expression import Expression, UnknownKey

    expression = Expression(text, captures, of_publication=of_publication, tables=tables)
    if not expression.can_be_true:
        raise FilterError(f"{text!r} is neither true nor false")

    def test(message: Filterable) -> bool:
        if expression.reads_payload:
            try:
                _ = message.document
            except Unmappable:
                return False  # not JSON, so the filter does not match
        try:
            return expression.truth(message)
        except UnknownKey:
            raise  # unlike a payload without the field, it is an error of the message
        except Unmappable as error:
            if error.reason == cmqc.MQRC_PROPERTY_NOT_AVAILABLE:
                return False  # without the field
            raise

    return test


def _of_qos(levels: frozenset[int]) -> Test:
    return lambda message: message.qos in levels


def _of_retained(retained: bool) -> Test:
    return lambda message: message.retained == retained


def _of_size(low: int, high: int | None) -> Test:
    return lambda message: message.size >= low and (high is None or message.size <= high)


def _of_property(name: str, value: FilterValue) -> Test:
    if value is None:
        return lambda message: message(name) is None
    if isinstance(value, list):
        tests = [_of_value(alternative) for alternative in value]
        return lambda message: any(test(message(name)) for test in tests)
    test = _of_value(value)
    return lambda message: test(message(name))


def _of_value(filter_value: str | int | float) -> Callable[[str | None], bool]:
    if isinstance(filter_value, bool):
        words = ("true", "1") if filter_value else ("false", "0")
        return lambda value: value is not None and value.strip().lower() in words
    if isinstance(filter_value, int | float):
        return lambda value: _number(value) == filter_value
    return lambda value: value == filter_value


def _number(value: str | None) -> int | float | None:
    """Return the number in a property, or None if it is not a number.

    Properties of MQTT are text, and those of MQ are converted to text before.
    """
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


class OtherwiseRoutes:
    """The mappings that `otherwise` names. Raises RuleError."""

    def __init__(self, mappings: Mapping[str, ToMqMapping | ToMqttMapping]) -> None:
        self._routes = []
        for name, config in mappings.items():
            to_mq = isinstance(config, ToMqMapping)
            pattern = pattern_of((config.source.mqtt if isinstance(config, ToMqMapping) else config.source.topic) or "")
            filter_ = Filter(config.filter, pattern.names, of_publication=to_mq, tables=tables_of(config.tables))
            payload = config.payload
            record = None if to_mq else record_of(config)
            self._routes.append((name, pattern, filter_, (payload.ccsid, payload.encoding_number, record)))

    def __bool__(self) -> bool:
        return bool(self._routes)

    def accepting(
        self,
        topic: str,
        scope_of: Callable[[dict[str, str], int | None, int | None, RecordPayload | None], Filterable],
    ) -> str | None:
        """Return the name of the first mapping that accepts a message, or None.

        `scope_of` builds the filter's input from the captures, and the CCSID, Encoding and record of that mapping. Messages
        that a mapping would dead-letter count as accepted.
        """
        for name, pattern, filter_, body in self._routes:
            captures = pattern.captures(topic)
            if captures is None:
                continue
            try:
                if filter_.takes(scope_of(captures, *body)):
                    return name
            except Unmappable:
                return name
        return None
