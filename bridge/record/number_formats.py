"""Numbers of COBOL as bytes: zoned and packed decimal, binary, and floating point of IBM and IEEE.

Sources: Enterprise COBOL for z/OS Programming Guide, "Formats for numeric data"; z/Architecture Principles of Operation,
"Decimal instructions" and "Hexadecimal-floating-point instructions"; IBM MQ, "Encoding (MQLONG)".

Readers return the number without its decimal point. Writers take it in the same form. Both raise ValueError with the reason.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Final, Literal

Reader = Callable[[bytes], int]
Writer = Callable[[int], bytes]
ByteOrder = Literal["big", "little"]

#: Signs in the low half of the last byte of a packed number.
_SIGNS: Final = frozenset("abcdef")
_MINUS: Final = frozenset("bd")
#: A byte that is not a digit, for the tables below.
_WRONG: Final = b"x"


class ZonedFormat:
    """The bytes of zoned digits and signs in a family of character sets."""

    def __init__(self, *, ebcdic: bool, ascii_signs: bool = False) -> None:
        zero = 0xF0 if ebcdic else 0x30
        self.minus, self.plus, self.blank = (0x60, 0x4E, 0x40) if ebcdic else (0x2D, 0x2B, 0x20)
        #: byte -> ASCII digit
        self.digits = bytes(0x30 + byte - zero if zero <= byte < zero + 10 else _WRONG[0] for byte in range(256))
        #: ASCII digit -> byte
        self.bytes = bytes(zero + byte - 0x30 if 0x30 <= byte < 0x3A else 0 for byte in range(256))
        #: byte with a sign -> ASCII digit
        self.signed_digits = [_WRONG] * 256
        self.negative: set[int] = set()
        #: byte of a digit with a sign, by digit
        self.positive_bytes, self.negative_bytes = [b""] * 10, [b""] * 10
        for digit in range(10):
            positive, negative = self._signs(digit, ebcdic)
            for byte in positive + negative:
                self.signed_digits[byte] = b"%d" % digit
            self.negative.update(negative)
            write_ascii = ascii_signs and not ebcdic
            self.positive_bytes[digit] = bytes([zero + digit if write_ascii else positive[0]])
            self.negative_bytes[digit] = bytes([negative[-1] if write_ascii else negative[0]])

    @staticmethod
    def _signs(digit: int, ebcdic: bool) -> tuple[list[int], list[int]]:
        """Return the bytes of a digit with a positive and a negative sign, preferred ones first."""
        if ebcdic:
            return [zone + digit for zone in (0xC0, 0xF0, 0xA0, 0xE0)], [zone + digit for zone in (0xD0, 0xB0)]
        # The characters of X'C0' to X'D9' in CCSID 37, and those of compilers on ASCII machines.
        return [b"{ABCDEFGHI"[digit], 0x30 + digit], [b"}JKLMNOPQR"[digit], 0x70 + digit]


def zoned_reader(form: ZonedFormat, *, signed: bool, leading: bool, separate: bool) -> Reader:
    """Return the reader of a zoned number."""
    table = form.digits
    if not signed:

        def read_unsigned(raw: bytes) -> int:
            digits = raw.translate(table)
            if not digits.isdigit():
                raise ValueError("a byte is not a digit")
            return int(digits)

        return read_unsigned
    if separate:
        plus, minus = form.plus, form.minus

        def read_separate(raw: bytes) -> int:
            digits = (raw[1:] if leading else raw[:-1]).translate(table)
            sign = raw[0] if leading else raw[-1]
            if not digits.isdigit():
                raise ValueError("a byte is not a digit")
            if sign != plus and sign != minus:
                raise ValueError("the sign is not + or -")
            return int(digits) if sign == plus else -int(digits)

        return read_separate
    signed_digits, negative = form.signed_digits, form.negative

    def read_signed(raw: bytes) -> int:
        if leading:
            sign = raw[0]
            digits = signed_digits[sign] + raw[1:].translate(table)
        else:
            sign = raw[-1]
            digits = raw[:-1].translate(table) + signed_digits[sign]
        if not digits.isdigit():
            raise ValueError("a byte is not a digit, or the last one has no sign")
        return -int(digits) if sign in negative else int(digits)

    return read_signed


def zoned_writer(form: ZonedFormat, digits: int, *, signed: bool, leading: bool, separate: bool) -> Writer:
    """Return the writer of a zoned number."""
    table = form.bytes
    width = f"%0{digits}d".encode()
    if not signed:
        return lambda number: (width % number).translate(table)
    if separate:
        plus, minus = bytes([form.plus]), bytes([form.minus])

        def write_separate(number: int) -> bytes:
            text = (width % abs(number)).translate(table)
            sign = minus if number < 0 else plus
            return sign + text if leading else text + sign

        return write_separate
    positive, negative = form.positive_bytes, form.negative_bytes

    def write_signed(number: int) -> bytes:
        text = width % abs(number)
        signs = negative if number < 0 else positive
        if leading:
            return signs[text[0] - 0x30] + text[1:].translate(table)
        return text[:-1].translate(table) + signs[text[-1] - 0x30]

    return write_signed


def packed_reader(digits: int, *, signed: bool, order: ByteOrder) -> Reader:
    """Return the reader of a packed number."""
    even = digits % 2 == 0

    def read(raw: bytes) -> int:
        text = raw.hex()
        number, sign = text[:-1], text[-1]
        if not number.isdecimal():
            raise ValueError("a digit is not 0 to 9")
        if sign not in _SIGNS:
            raise ValueError(f"the sign {sign} is not A to F")
        if even and number[0] != "0":
            raise ValueError(f"more than {digits} digits")
        if sign not in _MINUS:
            return int(number)
        if not signed and number.strip("0"):
            raise ValueError("a negative number, but the PICTURE has no S")
        return -int(number)

    return read if order == "big" else lambda raw: read(raw[::-1])


def packed_writer(digits: int, *, signed: bool, order: ByteOrder) -> Writer:
    """Return the writer of a packed number."""
    width, plus, from_hexadecimal = digits // 2 * 2 + 1, "c" if signed else "f", bytes.fromhex

    def write(number: int) -> bytes:
        # `%` would take 50 % longer.
        return from_hexadecimal(str(number).zfill(width) + plus if number >= 0 else str(-number).zfill(width) + "d")

    return write if order == "big" else lambda number: write(number)[::-1]


def binary_reader(digits: int | None, *, signed: bool, order: ByteOrder) -> Reader:
    """Return the reader of a binary number. `digits` None: all values of its bytes are valid (COMP-5)."""
    if digits is None:
        return lambda raw: int.from_bytes(raw, order, signed=signed)
    limit = 10**digits

    def read(raw: bytes) -> int:
        number = int.from_bytes(raw, order, signed=signed)
        if not -limit < number < limit:
            raise ValueError(f"{number} has more than {digits} digits")
        return number

    return read


def binary_writer(length: int, *, signed: bool, order: ByteOrder) -> Writer:
    """Return the writer of a binary number."""
    return lambda number: number.to_bytes(length, order, signed=signed)


# Floating point ------------------------------------------------------------------------------------------------------

#: Digits that identify a number of 24 and of 56 bits.
_SIGNIFICANT: Final = {4: 9, 8: 18}


class FloatFormat:
    """Floating point numbers of 4 or 8 bytes. Raises ValueError for one that JSON does not have."""

    def __init__(self, length: int, *, hexadecimal: bool, order: ByteOrder) -> None:
        self._length = length
        self._hexadecimal = hexadecimal
        self._order = order
        self._struct = struct.Struct((">" if order == "big" else "<") + ("f" if length == 4 else "d"))

    def read(self, raw: bytes) -> str:
        """Return the shortest decimal number that is written as these bytes, or as the same value."""
        if self._hexadecimal:
            value = _hexadecimal_value(raw)
        else:
            number: float = self._struct.unpack(raw)[0]
            if not math.isfinite(number):
                raise ValueError("not a number, or infinite")
            if self._length == 8:
                return repr(number)
            value = Fraction(number)
        if not value:
            return "0.0"
        for digits in range(6, _SIGNIFICANT[self._length] + 1):
            text = _rounded(value, digits)
            if digits == _SIGNIFICANT[self._length] or self._value(self.write(Decimal(text))) == value:
                break
        return text

    def _value(self, raw: bytes) -> Fraction:
        return _hexadecimal_value(raw) if self._hexadecimal else Fraction(self._struct.unpack(raw)[0])

    def write(self, decimal: Decimal) -> bytes:
        """Return the bytes of the nearest number. Raises ValueError if the number is too large."""
        if not decimal.is_finite() or decimal.adjusted() > 400:
            raise ValueError("too large for a floating-point number")
        if self._hexadecimal:
            return _hexadecimal_bytes(decimal, self._length)
        number = float(decimal)
        try:
            if not math.isinf(number):
                return self._struct.pack(number)
        except OverflowError:
            pass
        raise ValueError("too large for a floating-point number")


def _rounded(value: Fraction, digits: int) -> str:
    with localcontext(Context(prec=digits, Emax=10**6, Emin=-(10**6))):
        decimal = Decimal(value.numerator) / Decimal(value.denominator)
    return repr(float(decimal)) if digits <= 15 else f"{decimal:.{digits - 1}e}"


def _hexadecimal_value(raw: bytes) -> Fraction:
    """Return the value of an IBM hexadecimal floating-point number: sign, exponent of 16 in excess 64, fraction."""
    exponent = (raw[0] & 0x7F) - 64
    size = len(raw) * 8 - 8
    value = Fraction(int.from_bytes(raw[1:], "big"), 1 << size) * Fraction(16) ** exponent
    return -value if raw[0] & 0x80 else value


def _hexadecimal_bytes(decimal: Decimal, length: int) -> bytes:
    """Return the nearest hexadecimal floating-point number, normalized. Numbers that are too small become zero."""
    size = length * 8 - 8
    if not decimal or decimal.adjusted() < -100:
        return bytes(length)
    value = abs(Fraction(decimal))
    exponent = 0
    while value >= 1:
        value /= 16
        exponent += 1
    while value < Fraction(1, 16):
        value *= 16
        exponent -= 1
    fraction = round(value * (1 << size))
    if fraction == 1 << size:
        fraction >>= 4
        exponent += 1
    if exponent > 63:
        raise ValueError("too large for a floating-point number")
    if exponent < -64:
        return bytes(length)
    first = (0x80 if decimal < 0 else 0) | (exponent + 64)
    return bytes([first]) + fraction.to_bytes(length - 1, "big")
