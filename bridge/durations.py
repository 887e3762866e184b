"""Durations such as `500 ms`, `10 s`, `90min` and `30d`, in configuration files and on the command line."""

from __future__ import annotations

import re
from fractions import Fraction

#: Seconds per unit.
UNITS = {
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
}
# The number of digits is bounded because int() rejects more than 4300 with an error of its own.
_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{1,9})?"
_DURATION = re.compile(rf"({_NUMBER}) *({'|'.join(UNITS)})")
_SECONDS = re.compile(_NUMBER)


def parsed(text: str, *, plain: bool = False) -> Fraction:
    """Return the seconds of a duration. Raises ValueError.

    `plain` accepts a number without a unit, which is a number of seconds. In YAML, that is not a text.
    """
    if match := _DURATION.fullmatch(text):
        return Fraction(match[1]) * UNITS[match[2]]
    if plain and _SECONDS.fullmatch(text):
        return Fraction(text)
    raise ValueError(f"expected a number with {', '.join(UNITS)}, found {text!r}")


def shown(seconds: float) -> str:
    """Return `seconds` in the largest unit up to hours that needs no fraction: 120.0 is `2 min`, 0.5 is `500 ms`."""
    exact = Fraction(str(seconds))
    for name in ("h", "min", "s"):
        if exact and (exact / UNITS[name]).denominator == 1:
            return f"{exact / UNITS[name]} {name}"
    return f"{seconds * 1000:g} ms" if exact else "0 s"
