"""Which messages a mapping takes: its filter, and the filters of the mappings that its `otherwise` names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from bridge.config.mapping import FilterConfig, FilterValue, ToMqMapping, ToMqttMapping
from bridge.mapping.rules.attributes import check_known, located
from bridge.mapping.rules.template import check_name
from bridge.mapping.rules.topic_pattern import pattern_of
from bridge.telemetry.message import Unmappable


class Filterable(Protocol):
    """What a filter looks at; :mod:`bridge.mapping.rules.scope` has it for both directions."""

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

    __slots__ = ("_payload_test", "_tests")

    def __init__(self, config: FilterConfig, captures: Collection[str] = (), *, of_publication: bool = False) -> None:
        tests: list[Test] = []
        self._payload_test: Test | None = None
        if config.qos is not None:
            tests.append(_of_qos(frozenset(config.qos)))
        if config.retained is not None:
            tests.append(_of_retained(config.retained))
        if config.min_size is not None or config.max_size is not None:
            tests.append(_of_size(config.min_size or 0, config.max_size))
        for name, wanted in config.properties.items():
            location = ("filter", "properties", name)
            located(location, check_name, name)
            located(location, check_known, name, captures, of_publication)
            tests.append(_of_property(name, wanted))
        if config.json_path is not None:
            # Few mappings have one, and what it needs takes longer to import than the rest of a mapping.
            from bridge.mapping.rules.json_filter import json_test

            # last, for it costs the most
            self._payload_test = located(("filter", "json"), json_test, config.json_path)
            tests.append(self._payload_test)
        self._tests = tuple(tests)

    def __bool__(self) -> bool:
        return bool(self._tests)

    def takes(self, message: Filterable) -> bool:
        """Return whether the filter takes a message, or raise Unmappable where the headers of the message cannot be read."""
        return all(test(message) for test in self._tests)

    @property
    def reads_payload(self) -> bool:
        """Return whether one of the tests is of the payload itself."""
        return self._payload_test is not None

    def takes_payload(self, message: Filterable) -> bool:
        """Return whether the test of the payload itself, if there is one, takes a message, or raise Unmappable."""
        return self._payload_test is None or self._payload_test(message)


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
    """Return the number that a property is; None where it is none.

    Properties of MQTT are text, and those of MQ come as text here.
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


class Routes:
    """The mappings that `otherwise` names. Raises RuleError."""

    def __init__(self, mappings: Mapping[str, ToMqMapping | ToMqttMapping]) -> None:
        self._routes = []
        for name, config in mappings.items():
            to_mq = isinstance(config, ToMqMapping)
            pattern = pattern_of((config.source.mqtt if isinstance(config, ToMqMapping) else config.source.topic) or "")
            filter_ = Filter(config.filter, pattern.names, of_publication=to_mq)
            self._routes.append((name, pattern, filter_, config.payload.ccsid))

    def __bool__(self) -> bool:
        return bool(self._routes)

    def accepting(self, topic: str, scope_of: Callable[[dict[str, str], int | None], Filterable]) -> str | None:
        """Return the name of the first mapping that accepts a message; None if none does.

        `scope_of` makes what a filter looks at, of the captures and the CCSID of that mapping. A mapping accepts also what
        it dead-letters.
        """
        for name, pattern, filter_, ccsid in self._routes:
            captures = pattern.captures(topic)
            if captures is None:
                continue
            try:
                if filter_.takes(scope_of(captures, ccsid)):
                    return name
            except Unmappable:
                return name
        return None
