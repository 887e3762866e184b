"""Fields of records as JSON values: text in a CCSID, exact numbers, and values that do not fit a PICTURE."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Final, Literal

import msgspec

from bridge.record import Rounding
from bridge.record.layout import RecordItem, path_of
from bridge.record.number_formats import (
    ByteOrder,
    FloatFormat,
    ZonedFormat,
    binary_reader,
    binary_writer,
    packed_reader,
    packed_writer,
    zoned_reader,
    zoned_writer,
)
from bridge.wire import cmqc
from bridge.wire.mq.ccsid import CharacterSet, character_set

_ROUNDINGS: Final = {"half-up": ROUND_HALF_UP, "half-even": ROUND_HALF_EVEN, "down": ROUND_DOWN}
#: Maximum number of bytes of a field, and characters of a value, in an error message.
SHOWN: Final = 32
#: Whole numbers of more digits lose some in JavaScript.
_SAFE_DIGITS: Final = 15
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,60}(?:\.[0-9]{1,60})?(?:[eE][+-]?[0-9]{1,3})?")
_MAX_DIGITS: Final = 60
#: More digits than any valid number has. Numbers with more digits are errors, and are not rounded.
_CONTEXT: Final = Context(prec=200, Emax=1000, Emin=-1000, traps=[InvalidOperation, Overflow, Inexact])


#: Reads or writes a field. Raises ValueError.
FieldReader = Callable[[bytes], Any]
FieldWriter = Callable[[Any], bytes]


class CodecOptions(msgspec.Struct, frozen=True):
    """How values are converted."""

    #: "string": decimals, and whole numbers of more than 15 digits, become strings
    numbers: Literal["number", "string"] = "number"
    #: whether text that is too long is cut
    truncate: bool = False
    #: None: a number with too many decimals is an error
    round: Rounding | None = None
    #: TRUNC(BIN): binary numbers use the full range of their bytes
    binary: Literal["picture", "full"] = "picture"
    #: signs that are written to zoned numbers in ASCII
    ascii_signs: Literal["ebcdic", "ascii"] = "ebcdic"
    #: JSON path without indexes -> value if the document has none
    default: Mapping[str, Any] = {}
    #: whether members that the record does not have are ignored
    ignore_unknown: bool = False


#: Every value that does not fit is an error.
EXACT: Final = CodecOptions()


class CodecError(ValueError):
    """A CCSID, an Encoding or an option that a record cannot have. `option` is the path of the option."""

    def __init__(self, option: tuple[str, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.option = option


def shown(raw: bytes) -> str:
    """Return bytes in hexadecimal, as MQ and COBOL write them: X'C1C2'."""
    return f"X'{raw[:SHOWN].hex().upper()}'" + (f" and {len(raw) - SHOWN} bytes more" if len(raw) > SHOWN else "")


def described(value: object) -> str:
    """Return the JSON type of a value, for messages."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 8 * SHOWN:
        return "a number of many digits"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class FieldCodecs:
    """Creates readers and writers of elementary items."""

    def __init__(
        self,
        ccsid: int,
        encoding: int,
        options: CodecOptions,
        fraction: Callable[[str], Any],
        floating: Callable[[str], Any] | None = None,
    ) -> None:
        self.characters = _characters(ccsid, encoding)
        self._ccsid, self._encoding = ccsid, encoding
        self._options = options
        self._fraction: Callable[[str], Any] = str if options.numbers == "string" else fraction
        self._floating = floating or self._fraction
        self._zoned = ZonedFormat(ebcdic=self.characters.is_ebcdic, ascii_signs=options.ascii_signs == "ascii")
        self.blank = bytes([self._zoned.blank])
        #: byte -> character, if the character set is a single-byte code page of this bridge
        self.page = self.characters.characters
        #: character -> byte, in such a code page
        self.encoding_map = codecs.charmap_build(self.page) if self.page else None
        #: the reader of text in such a code page
        self.read_page = self._page_reader() if self.page else None

    def _page_reader(self) -> FieldReader:
        page, decode = self.page, codecs.charmap_decode
        return lambda raw: decode(raw, "strict", page)[0].rstrip(" ")

    def filler(self, item: RecordItem, length: int) -> bytes:
        """Return the bytes of FILLER: blanks, or low-values for binary numbers."""
        return (self.blank if item.usage == "DISPLAY" else b"\0") * length

    def padding(self, item: RecordItem) -> str:
        """Return the source of the method call that pads text in such a code page, or "" for other fields."""
        is_text = item.picture is not None and not item.picture.is_numeric and self.page
        return f".{'rjust' if item.is_justified else 'ljust'}({item.length})" if is_text else ""

    def of(self, item: RecordItem) -> tuple[FieldReader, FieldWriter]:
        """Return the reader and the writer of an elementary item. Raises CodecError."""
        if item.usage in ("COMP-1", "COMP-2"):
            return self._float(item)
        assert item.picture is not None
        if not item.picture.is_numeric:
            return self._text(item)
        picture = item.picture
        digits, signed, scale = picture.digits, picture.is_signed, picture.scale
        limit = 10**digits
        low, high = (-limit + 1 if signed else 0), limit - 1
        match item.usage:
            case "COMP" | "COMP-5":
                full = item.usage == "COMP-5" or self._options.binary == "full"
                order = self._integer_order(item)
                reader = binary_reader(None if full else digits, signed=signed, order=order)
                write = binary_writer(item.length, signed=signed, order=order)
                if full:
                    bits = item.length * 8
                    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            case "COMP-3":
                order = self._decimal_order(item)
                reader = packed_reader(digits, signed=signed, order=order)
                write = packed_writer(digits, signed=signed, order=order)
            case _:
                sign = {"signed": signed, "leading": item.sign.leading, "separate": item.sign.separate}
                reader = zoned_reader(self._zoned, **sign)
                write = zoned_writer(self._zoned, digits, **sign)
        value_reader = self._number_reader(reader, scale, digits)
        value_writer = _number_writer(write, scale, low, high, item.description, self._options.round)
        if item.blank_when_zero:
            return self._or_blank(item, value_reader, value_writer)
        return value_reader, value_writer

    def _number_reader(self, reader: Callable[[bytes], int], scale: int, digits: int) -> FieldReader:
        fraction, power = self._fraction, 10 ** abs(scale)
        if scale > 0:
            positive, negative = f"%0{scale + 1}d", f"%0{scale + 2}d"

            def read_fraction(raw: bytes) -> Any:
                number = reader(raw)
                text = (positive if number >= 0 else negative) % number
                return fraction(f"{text[:-scale]}.{text[-scale:]}")

            return read_fraction
        if self._options.numbers == "string" and digits - scale > _SAFE_DIGITS:
            return lambda raw: str(reader(raw) * power)
        return (lambda raw: reader(raw) * power) if scale else reader

    def _or_blank(self, item: RecordItem, reader: FieldReader, write: FieldWriter) -> tuple[FieldReader, FieldWriter]:
        blanks = self.blank * item.length
        zero = write(0)

        def read_or_blank(raw: bytes) -> Any:
            return reader(zero if raw == blanks else raw)

        def write_or_blank(value: Any) -> bytes:
            raw = write(value)
            return blanks if raw == zero else raw

        return read_or_blank, write_or_blank

    def _float(self, item: RecordItem) -> tuple[FieldReader, FieldWriter]:
        encoding = self._encoding & cmqc.MQENC_FLOAT_MASK
        if encoding not in _FLOAT_ENCODINGS:
            raise self._unknown_encoding(item, "MQENC_FLOAT_IEEE_NORMAL, IEEE_REVERSED or S390")
        hexadecimal, order = _FLOAT_ENCODINGS[encoding]
        form = FloatFormat(item.length, hexadecimal=hexadecimal, order=order)
        floating = self._floating

        def write(value: Any) -> bytes:
            decimal = _decimal_of(value)
            return form.write(Decimal(value) if decimal is None else decimal)

        return lambda raw: floating(form.read(raw)), write

    def _text(self, item: RecordItem) -> tuple[FieldReader, FieldWriter]:
        characters, length, blank = self.characters, item.length, self.blank
        truncate, right = self._options.truncate, item.is_justified

        def read(raw: bytes) -> str:
            text = characters.decode(raw, nl_to_lf=False)
            return text.lstrip(" ") if right else text.rstrip(" ")

        def write(value: Any) -> bytes:
            if not isinstance(value, str):
                raise ValueError(f"expected text, found {described(value)}")
            try:
                raw = characters.encode(value)
            except UnicodeEncodeError as error:
                raise ValueError(f"CCSID {self._ccsid} has no {value[error.start]!r}") from error
            if len(raw) > length:
                if not truncate:
                    raise ValueError(
                        f"{described(value)} has {len(raw)} bytes, of {length} at most (hint: truncate: true)"
                    )
                raw = _cut(characters, value, length, right=right)
            return raw.rjust(length, blank) if right else raw.ljust(length, blank)

        return (read if right or self.read_page is None else self.read_page), write

    def _integer_order(self, item: RecordItem) -> ByteOrder:
        order = _INTEGER_ORDERS.get(self._encoding & cmqc.MQENC_INTEGER_MASK)
        if order is None:
            raise self._unknown_encoding(item, "MQENC_INTEGER_NORMAL or REVERSED")
        return order

    def _decimal_order(self, item: RecordItem) -> ByteOrder:
        order = _DECIMAL_ORDERS.get(self._encoding & cmqc.MQENC_DECIMAL_MASK)
        if order is None:
            raise self._unknown_encoding(item, "MQENC_DECIMAL_NORMAL or REVERSED")
        return order

    def _unknown_encoding(self, item: RecordItem, expected: str) -> CodecError:
        why = f"Encoding {self._encoding} has no format for {path_of(item)} ({item.usage}): expected {expected}"
        return CodecError(("encoding",), why)


_INTEGER_ORDERS: Final[dict[int, ByteOrder]] = {
    cmqc.MQENC_INTEGER_NORMAL: "big",
    cmqc.MQENC_INTEGER_REVERSED: "little",
}
_DECIMAL_ORDERS: Final[dict[int, ByteOrder]] = {
    cmqc.MQENC_DECIMAL_NORMAL: "big",
    cmqc.MQENC_DECIMAL_REVERSED: "little",
}
#: whether a format is hexadecimal, and its byte order
_FLOAT_ENCODINGS: Final[dict[int, tuple[bool, ByteOrder]]] = {
    cmqc.MQENC_FLOAT_IEEE_NORMAL: (False, "big"),
    cmqc.MQENC_FLOAT_IEEE_REVERSED: (False, "little"),
    cmqc.MQENC_FLOAT_S390: (True, "big"),
}


def _characters(ccsid: int, encoding: int) -> CharacterSet:
    """Return the character set of a record. Raises CodecError."""
    characters = character_set(ccsid, encoding)
    if characters is None:
        raise CodecError(("ccsid",), f"CCSID {ccsid} is not known here")
    digits = characters.encode("0123456789 ", "replace")
    if digits not in (b"0123456789 ", b"\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\x40"):
        raise CodecError(("ccsid",), f"CCSID {ccsid} has no digits of one byte, which records consist of")
    return characters


def _cut(characters: CharacterSet, text: str, length: int, *, right: bool) -> bytes:
    """Return as many characters of a text as fit into this many bytes: its beginning, or its end if it is right-justified."""
    text = text[-length:] if right else text[:length]
    while len(raw := characters.encode(text)) > length:
        excess = max(1, (len(raw) - length) // 4)
        text = text[excess:] if right else text[:-excess]
    return raw


def _decimal_of(value: Any) -> Decimal | None:
    """Return a number that is not an int as a Decimal, or None for an int. Raises ValueError."""
    if type(value) is int:
        return None
    if isinstance(value, Decimal):
        decimal = value
    elif isinstance(value, float):
        decimal = Decimal(repr(value))
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        decimal = Decimal(value)
    else:
        raise ValueError(f"expected a number, found {described(value)}")
    if not decimal.is_finite():
        raise ValueError(f"{value} is not a number")
    return decimal


def _number_writer(
    write: Callable[[int], bytes], scale: int, low: int, high: int, description: str, rounding: Rounding | None
) -> FieldWriter:
    """Return the writer of a decimal or binary number between two unscaled numbers. `write` takes unscaled numbers."""
    power = 10 ** abs(scale)
    mode = None if rounding is None else _ROUNDINGS[rounding]

    def unscaled(value: Any) -> int:
        decimal = value if type(value) is Decimal else _decimal_of(value)
        if scale > 0 and decimal is not None:
            # Most numbers have at most as many decimals as the field. Their digits take half the time of `scaleb`.
            whole, _, decimals = str(decimal).partition(".")
            if (
                decimals.isdigit()
                and len(decimals) <= scale
                and whole.lstrip("-").isdigit()
                and len(whole) <= _MAX_DIGITS
            ):
                return int(whole + decimals.ljust(scale, "0"))
        if decimal is None:
            decimal = Decimal(value)
        try:
            scaled = decimal.scaleb(scale, _CONTEXT)
            number = int(scaled)
        except (ArithmeticError, ValueError) as error:
            raise ValueError(f"{described(value)} does not fit {description}") from error
        if number != scaled:
            if mode is None:
                places = f"{scale} decimals" if scale >= 0 else f"{-scale} zeros at the end"
                raise ValueError(f"{described(value)} does not fit {description}, which has {places} (hint: round)")
            number = int(scaled.to_integral_value(mode, _CONTEXT))
        return number

    def write_number(value: Any) -> bytes:
        number = value * power if type(value) is int and scale >= 0 else unscaled(value)
        if not low <= number <= high:
            raise ValueError(f"{described(value)} does not fit {description}")
        return write(number)

    return write_number
