"""PICTURE character strings (Enterprise COBOL for z/OS Language Reference, "PICTURE clause")."""

from __future__ import annotations

import re
from typing import Final

import msgspec

#: Maximum number of digits of a number: ARITH(EXTEND) of Enterprise COBOL.
MAX_DIGITS: Final = 31
_MAX_LENGTH: Final = 100 * 1024 * 1024
#: Characters of a picture character string. The compiler accepts 50.
_MAX_TEXT: Final = 100
_SYMBOL: Final = re.compile(r"(CR|DB|[ABEPSVXZ90/,.+*$-])(?:\(([0-9]{1,9})\))?")
#: P stands for a zero that is not stored, at either end of the digits.
_NUMBER: Final = re.compile(
    r"S?(?:(?P<whole>9*)V?(?P<decimals>9*)|(?P<high>9+)(?P<right>P+)V?|V?(?P<left>P+)(?P<low>9+))"
)
_UNSUPPORTED: Final = {"N": "national", "G": "double-byte", "U": "UTF-8"}


class PictureError(ValueError):
    """An invalid picture. `index` is the position of the fault in the character string."""

    def __init__(self, sentence: str, index: int = 0) -> None:
        super().__init__(sentence)
        self.index = index


class Picture(msgspec.Struct, frozen=True):
    """The description in a picture: a number, or text of a length."""

    text: str
    #: character positions, without those of a separate sign
    length: int
    is_numeric: bool = False
    #: digits of a number that are stored
    digits: int = 0
    #: number of decimal places. Negative: assumed zeros before the decimal point (P)
    scale: int = 0
    is_signed: bool = False
    #: whether the picture inserts characters (numeric-edited, alphanumeric-edited)
    is_edited: bool = False


def picture_of(text: str) -> Picture:
    """Parse a picture character string such as S9(5)V99. Raises PictureError."""
    if len(text) > _MAX_TEXT:
        raise PictureError(f"PICTURE {text[:_MAX_TEXT]}… has more than {_MAX_TEXT} characters")
    symbols = list(_symbols(text.upper()))
    if {symbol for symbol, _ in symbols} <= set("SPV9"):
        return _number(text, symbols)
    length = sum(count * (2 if symbol in ("CR", "DB") else 0 if symbol in "SVP" else 1) for symbol, count in symbols)
    if not 0 < length <= _MAX_LENGTH:
        raise PictureError(f"PICTURE {text} has {length:,} characters, of 1 to {_MAX_LENGTH:,}")
    return Picture(text, length, is_edited=not {symbol for symbol, _ in symbols} <= set("XA9"))


def _symbols(text: str) -> list[tuple[str, int]]:
    """Return the symbols with their numbers of repetitions."""
    symbols = []
    position = 0
    while position < len(text):
        symbol = _SYMBOL.match(text, position)
        if symbol is None:
            kind = _UNSUPPORTED.get(text[position])
            description = f"symbol {text[position]!r}" + (f" ({kind} characters)" if kind else "")
            raise PictureError(f"PICTURE {text}: {description} is not supported", position)
        count = 1 if symbol[2] is None else int(symbol[2])
        if not count:
            raise PictureError(f"PICTURE {text}: {symbol[0]} repeats a symbol 0 times", position)
        symbols.append((symbol[1], count))
        position = symbol.end()
    if not symbols:
        raise PictureError("PICTURE without a character string")
    return symbols


def _number(text: str, symbols: list[tuple[str, int]]) -> Picture:
    if sum(count for _, count in symbols) > 2 * MAX_DIGITS + 2:
        raise PictureError(f"PICTURE {text} has more than {MAX_DIGITS} digits")
    form = _NUMBER.fullmatch("".join(symbol * count for symbol, count in symbols))
    if form is None:
        raise PictureError(f"PICTURE {text}: S comes first, V once, and P at one end of the digits")
    if form["high"]:
        digits, scale = len(form["high"]), -len(form["right"])
    elif form["low"]:
        digits = len(form["low"])
        scale = len(form["left"]) + digits
    else:
        scale = len(form["decimals"])
        digits = len(form["whole"]) + scale
    if not digits:
        raise PictureError(f"PICTURE {text} has no digits")
    if digits > MAX_DIGITS or abs(scale) > MAX_DIGITS:
        raise PictureError(f"PICTURE {text} has more than {MAX_DIGITS} digits")
    return Picture(text, digits, True, digits, scale, text.upper().startswith("S"))
