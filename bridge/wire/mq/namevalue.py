"""Typed values of RFH2 folders: the ``dt`` attribute and the Python value that stands for it.

=================== ============ ==================================================
dt                  Python       text
=================== ============ ==================================================
none, ``string``    ``str``      as it is
``boolean``         ``bool``     ``0`` or ``1`` (``true`` and ``false`` are read too)
``bin.hex``         ``bytes``    two hexadecimal digits a byte
``i1 i2 i4 i8 int`` ``int``      decimal; 8, 16, 32, 64 and 64 bits, signed
``r4 r8``           ``float``    decimal with exponent; ``INF``, ``-INF``, ``NaN``
=================== ============ ==================================================

An element with ``xsi:nil='true'`` is None. A dt that is not in the table is read as text. Source: IBM MQ,
"NameValueData (MQCHARn)" of MQRFH2 and "Specifying the data type of a property".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

Scalar: TypeAlias = "str | bool | int | float | bytes | None"
Value: TypeAlias = "Scalar | dict[str, Value] | list[Value]"

INTEGER_BITS: Final[Mapping[str, int]] = {"i1": 8, "i2": 16, "i4": 32, "i8": 64, "int": 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,25}", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*+", re.ASCII)
# XML Schema's words first, then those that Java's Double.toString writes (JMS providers copy it unchanged).
_NOT_FINITE: Final = {"INF": math.inf, "-INF": -math.inf, "NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BOOLEAN: Final = {"0": False, "1": True, "false": False, "true": True}


class Typed(msgspec.Struct, frozen=True):
    """A value to be written with the given dt, where the one that the Python type implies is not the one wanted.

    ``Typed(7, "i1")`` writes ``<x dt='i1'>7</x>``; ``Typed(7, None)`` writes a 7 without any dt, which is read back as
    the string "7".
    """

    value: str | bool | int | float | bytes
    dt: str | None


Writable: TypeAlias = "Scalar | Typed | Mapping[str, Writable] | Sequence[Writable]"


def read_value(text: str, dt: str | None) -> Scalar:
    """Return the value that ``text`` has as a ``dt``.

    :raises ValueError: it is not one; the message says why.
    """
    if dt is None or dt == "string":
        return text
    text_stripped = text.strip()
    if dt in INTEGER_BITS:
        if not _INTEGER.fullmatch(text_stripped):
            raise ValueError(f"{text!r} is not an integer (dt={dt})")
        number = int(text_stripped)
        limit = 1 << (INTEGER_BITS[dt] - 1)
        if not -limit <= number < limit:
            raise ValueError(f"{number} does not fit dt={dt}")
        return number
    if dt == "boolean":
        if text_stripped not in _BOOLEAN:
            raise ValueError(f"{text!r} is not a boolean")
        return _BOOLEAN[text_stripped]
    if dt == "bin.hex":
        if not _HEX.fullmatch(text_stripped):
            raise ValueError(f"{text!r} is not a string of hexadecimal pairs")
        return bytes.fromhex(text_stripped)
    if dt in ("r4", "r8"):
        if text_stripped in _NOT_FINITE:
            return _NOT_FINITE[text_stripped]
        if not _FLOAT.fullmatch(text_stripped):
            raise ValueError(f"{text!r} is not a floating-point number (dt={dt})")
        return float(text_stripped)
    return text


def write_value(value: str | bool | int | float | bytes | Typed) -> tuple[str, str | None]:
    """Return the (text, dt) to write.

    An int is an ``i4`` when it fits and an ``i8`` otherwise.

    :raises ValueError: a number does not fit, or a :class:`Typed` value is not of its dt.
    :raises TypeError: there is no dt for the Python type.
    """
    if isinstance(value, Typed):
        text, _ = write_value(value.value) if not _is_integer(value.value) else (str(value.value), None)
        read_value(text, value.dt)
        return text, value.dt
    if isinstance(value, str):
        return str(value), None
    if isinstance(value, bool):
        return ("1" if value else "0"), "boolean"
    if isinstance(value, int):
        text = str(int(value))
        dt = "i4" if -0x80000000 <= value <= 0x7FFFFFFF else "i8"
        read_value(text, dt)
        return text, dt
    if isinstance(value, float):
        return _float_text(value), "r8"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex(), "bin.hex"
    raise TypeError(f"an RFH2 folder has no type for {type(value).__name__}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))
