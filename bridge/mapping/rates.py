"""Messages that a mapping leaves out: `limit` (at most one per key and period) and `changes` (report by exception).

The decisions belong to the unit of work of the mapping. If it is backed out, its messages are taken and decided again. The
mapping remembers keys in memory only.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from decimal import Decimal
from enum import StrEnum
from typing import Final, Generic, TypeVar

from bridge.config.mapping import ToMqMapping, ToMqttMapping
from bridge.mapping.attributes import CheckedTemplate, MessageScope, PublicationScope
from bridge.mapping.table import tables_of
from bridge.telemetry.message import Unmappable
from bridge.wire import cmqc

#: Length of a key or value above which its digest is remembered instead, in characters.
_LONG: Final = 64
#: Maximum number of characters of a number.
_MAX_DIGITS: Final = 400
#: A number of JSON (RFC 8259, section 6).
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")

Value = TypeVar("Value")


class LeftOut(StrEnum):
    """Why a mapping creates no message from a message that it takes."""

    LIMIT = "limit"
    UNCHANGED = "unchanged"
    NO_PARTS = "no parts"


class _Keys(Generic[Value]):
    """Values by key: at most `max_keys`, without values that no longer affect later messages."""

    def __init__(self, max_keys: int, is_of_use: Callable[[Value], bool]) -> None:
        self._max_keys, self._is_of_use = max_keys, is_of_use
        #: least recently set first
        self._values: OrderedDict[str, Value] = OrderedDict()
        #: key -> the value before the unit of work, for the keys that it has set
        self._before: dict[str, Value | None] = {}
        #: the key set last, and its value before
        self._last: tuple[str, Value | None] | None = None

    def get(self, key: str) -> Value | None:
        """Return the value of a key, or None."""
        return self._values.get(key)

    def set(self, key: str, value: Value) -> None:
        """Set the value of a key within the unit of work."""
        self._last = key, self._values.get(key)
        self._before.setdefault(*self._last)
        self._values[key] = value
        self._values.move_to_end(key)

    def undo(self) -> None:
        """Restore the value that a key had before the last call of `set`."""
        assert self._last is not None
        self._restore(*self._last)

    def commit(self) -> int:
        """Make the values of the unit of work permanent. Return the number of keys forgotten because of the maximum."""
        self._before.clear()
        evicted_count = 0
        while self._values:
            key = next(iter(self._values))
            is_of_use = self._is_of_use(self._values[key])
            if is_of_use and len(self._values) <= self._max_keys:
                break
            del self._values[key]
            evicted_count += is_of_use
        return evicted_count

    def back_out(self) -> None:
        """Restore the values before the unit of work."""
        for key, value in self._before.items():
            self._restore(key, value)
        self._before.clear()

    def _restore(self, key: str, value: Value | None) -> None:
        if value is not None:
            self._values[key] = value
        else:
            self._values.pop(key, None)


class _Limit:
    """`limit`: at most one message per key and period."""

    why = LeftOut.LIMIT

    def __init__(self, key: CheckedTemplate, every: float, max_keys: int) -> None:
        self._key, self._every = key, every
        #: times of the last messages that passed, from time.monotonic()
        self.keys: _Keys[float] = _Keys(max_keys, lambda last: time.monotonic() - last < every)

    def pass_of(self, scope: PublicationScope | MessageScope) -> Callable[[], None] | None:
        """Return a function that notes that a message passes, or None if it does not pass. Raises Unmappable."""
        key, now = self._key.of(scope), time.monotonic()
        last = self.keys.get(key)
        return None if last is not None and now - last < self._every else lambda: self.keys.set(key, now)


class _Changes:
    """`changes`: only messages whose value differs from the last one with the same key."""

    why = LeftOut.UNCHANGED

    def __init__(self, key: CheckedTemplate, value: CheckedTemplate, deadband: float | None, max_keys: int) -> None:
        self._key, self._value = key, value
        self._deadband = None if deadband is None else Decimal(str(deadband))
        #: the last values that passed
        self.keys: _Keys[str | Decimal] = _Keys(max_keys, lambda _: True)

    def pass_of(self, scope: PublicationScope | MessageScope) -> Callable[[], None] | None:
        """Return a function that notes that a message passes, or None if it does not pass. Raises Unmappable."""
        key, value = self._key.of(scope), self._value.of(scope)
        last = self.keys.get(key)
        if isinstance(last, Decimal):
            assert self._deadband is not None
            is_same = abs(value - last) <= self._deadband
        else:
            is_same = value == last
        return None if is_same else lambda: self.keys.set(key, value)


class MessageRates:
    """Decides which messages of a mapping to leave out."""

    def __init__(self, steps: Collection[_Limit | _Changes]) -> None:
        self._steps = steps
        #: the last message has passed
        self._passed = False
        #: records the last message, called by `passed`
        self._notes: list[Callable[[], None]] = []

    def left_out(self, scope: PublicationScope | MessageScope, *, passes: bool = False) -> LeftOut | None:
        """Return why a message is left out, or None if it passes, as it does with `passes`. Raises Unmappable.

        A message that passes counts only after the call of `passed`.
        """
        self._passed = False
        self._notes = []
        if passes:
            return None
        notes = []
        for step in self._steps:
            note = step.pass_of(scope)
            if note is None:
                if scope.steps is not None:
                    scope.steps.append((step.why.value, "leaves out the message"))
                return step.why
            notes.append(note)
        self._notes = notes  # a message that `limit` leaves out has not reported its value
        return None

    def passed(self) -> None:
        """Record that the last message has passed and was mapped."""
        for note in self._notes:
            note()
        self._passed = bool(self._notes)
        self._notes = []

    def undo(self) -> None:
        """Undo the decision about the last message, which stays at the source."""
        if self._passed:
            self._passed = False
            for step in self._steps:
                step.keys.undo()

    def commit(self) -> int:
        """Make the decisions of the unit of work permanent. Return the number of keys forgotten because of `max_keys`."""
        return sum(step.keys.commit() for step in self._steps)

    def back_out(self) -> None:
        """Undo the decisions of the unit of work."""
        for step in self._steps:
            step.keys.back_out()


def rates_of(config: ToMqMapping | ToMqttMapping, captures: Collection[str]) -> MessageRates | None:
    """Return the rates of a mapping, or None if it has none. Raises RuleError."""

    def template(section: str, name: str, text: str, check: Callable[[str], str | Decimal]) -> CheckedTemplate:
        return CheckedTemplate(
            (section, name),
            text,
            check,
            captures,
            of_publication=isinstance(config, ToMqMapping),
            tables=tables_of(config.tables),
        )

    steps: list[_Limit | _Changes] = []
    if (changes := config.changes) is not None:
        key = template("changes", "per", changes.per, _shortened)
        value = template("changes", "of", changes.of, _shortened if changes.deadband is None else _number)
        steps.append(_Changes(key, value, changes.deadband, changes.max_keys))
    if (limit := config.limit) is not None:
        steps.append(_Limit(template("limit", "per", limit.per, _shortened), limit.every, limit.max_keys))
    return MessageRates(steps) if steps else None


def _shortened(text: str) -> str:
    """Return a text, or the digest of a long one."""
    return text if len(text) <= _LONG else f"{hashlib.blake2b(text.encode(), digest_size=32).hexdigest()}#"


def _number(text: str) -> Decimal:
    """Return the number in a text. Raises Unmappable."""
    is_number = len(text) <= _MAX_DIGITS and _NUMBER.fullmatch(text) is not None
    number = Decimal(text if is_number else "NaN")
    if not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS:
        raise Unmappable(cmqc.MQRC_FORMAT_ERROR, f"{text[:_LONG]!r} is not a number, which changes.deadband compares")
    return number
