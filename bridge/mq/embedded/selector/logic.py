"""Values of selectors, and what is done with them: None is unknown, and whatever is done with it is unknown too.

Values of unlike kinds are neither equal nor unequal. Source: IBM MQ documentation, "Message selector syntax"; Java Message
Service, "Message selector syntax".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from bridge.mq.embedded.glob import Glob, Wildcard

Value: TypeAlias = "str | bytes | bool | int | float | None"
#: Kinds of values.
NUMBER, STRING, BYTES, BOOLEAN = "number", "string", "byte string", "condition"

#: Signs of comparisons.
COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    return STRING if isinstance(value, str) else BYTES


def compare(sign: str, left: Value, right: Value) -> bool | None:
    """Return the result of a comparison."""
    if left is None or right is None:
        return None
    kind = _kind(left)
    if kind != _kind(right) or (kind != NUMBER and sign not in ("=", "<>")):
        return False
    return bool(COMPARISONS[sign](left, right))


def calculate(sign: str, left: Value, right: Value) -> int | float | None:
    """Return the result of `+`, `-`, `*` or `/`; unknown for an operand that is no number, and for a division by zero."""
    if left is None or right is None or _kind(left) != NUMBER or _kind(right) != NUMBER:
        return None
    assert isinstance(left, (int, float)) and isinstance(right, (int, float))
    try:
        if sign != "/":
            return _ARITHMETIC[sign](left, right)  # type: ignore[no-any-return]
        if isinstance(left, int) and isinstance(right, int):
            quotient = abs(left) // abs(right)  # toward zero, as Java and C divide
            return quotient if (left < 0) == (right < 0) else -quotient
        return left / right
    except (ZeroDivisionError, OverflowError):
        return None


def negation(value: bool | None) -> bool | None:
    """Return the result of NOT."""
    return None if value is None else not value


def conjunction(left: bool | None, right: bool | None) -> bool | None:
    """Return the result of AND."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def disjunction(left: bool | None, right: bool | None) -> bool | None:
    """Return the result of OR."""
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def like_pattern(pattern: str, escape: str | None) -> Glob | None:
    """Return the pattern of LIKE; None when it ends in its escape character, or escapes something else."""
    tokens: list[str | Wildcard] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("%", "_", escape):
                return None
            tokens.append(escaped)
        else:
            tokens.append({"%": Wildcard.ANY, "_": Wildcard.ONE}.get(character, character))
    return Glob(tokens)
