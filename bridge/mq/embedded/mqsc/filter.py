"""Which objects a DISPLAY names: generic names and WHERE filters (IBM MQ documentation, "Filtering commands")."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bridge.mq.embedded.attributes import ATTRIBUTES, SYNONYMS, Number, Value
from bridge.mq.embedded.mqsc.language import MQSCSyntaxError, Parameter

_OPERATORS: dict[str, Callable[[int], bool]] = {
    "EQ": lambda order: order == 0,
    "NE": lambda order: order != 0,
    "LT": lambda order: order < 0,
    "LE": lambda order: order <= 0,
    "GT": lambda order: order > 0,
    "GE": lambda order: order >= 0,
}
#: Attributes that are numbers, or a word (ASPARENT, UNLIMITED) that is neither less nor greater than one.
_NUMBERS = frozenset(
    keyword for kind in ATTRIBUTES.values() for keyword, attribute in kind.items() if isinstance(attribute, Number)
)


def is_named(name: str, generic: str) -> bool:
    """Return whether a name is the one given, or begins as the one given with `*` at its end."""
    return name.startswith(generic[:-1]) if generic.endswith("*") else name == generic


@dataclass(frozen=True)
class Filter:
    """WHERE(keyword operator value)."""

    keyword: str
    operator: str
    value: str

    @classmethod
    def read(cls, parameter: Parameter, known: Collection[str]) -> Filter:
        """Return the filter of a WHERE parameter on one of the keywords known. Raises MQSCSyntaxError."""
        words = [item for item in parameter.values or () if isinstance(item, str)]
        if parameter.values is None or len(words) != 3 or len(parameter.values) != 3:
            raise MQSCSyntaxError("WHERE takes (attribute operator value)", parameter.where, "WHERE")
        keyword, operator, value = SYNONYMS.get(words[0], words[0]), words[1], words[2]
        if keyword not in known:
            raise MQSCSyntaxError(f"{keyword} is no attribute to look for here", parameter.where, "WHERE")
        if operator not in _OPERATORS and operator not in ("LK", "NL"):
            expected = ", ".join((*_OPERATORS, "LK", "NL"))
            raise MQSCSyntaxError(f"the operator is one of {expected}, not {operator}", parameter.where, "WHERE")
        if operator in ("LK", "NL") and not value.endswith("*"):
            raise MQSCSyntaxError(f"{operator} takes a generic value, with * at its end", parameter.where, "WHERE")
        return cls(keyword, operator, value)

    def passes(self, shown: dict[str, Value]) -> bool:
        """Return whether an object passes; an object without the attribute never does."""
        held = shown.get(self.keyword)
        if held is None:
            return False
        if self.operator in ("LK", "NL"):
            return is_named(str(held), self.value) == (self.operator == "LK")
        if isinstance(held, str) and self.keyword in _NUMBERS and held != self.value:
            return self.operator == "NE"
        order = _order(held, self.value)
        return _OPERATORS[self.operator](order) if order is not None else self.operator == "NE"


def _order(held: Value, given: str) -> int | None:
    """Return -1, 0 or 1 as `held` is less than, equal to or greater than `given`; None when a number meets a word."""
    if isinstance(held, int):
        try:
            number = int(given)
        except ValueError:
            return None
        return (held > number) - (held < number)
    return (held > given) - (held < given)
