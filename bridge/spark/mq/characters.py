"""MQCHAR fields as text, and back: no byte is lost, although Arrow's strings are UTF-8 and the fields may be anything.

A byte that is no UTF-8 stands in the text as a character from U+F780 to U+F7FF, of Unicode's private use: 0x80 + n as
U+F780 + n. Where these characters themselves are in a field, each of their three bytes stands so.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_STANDINS: Final = re.compile("[\uf780-\uf7ff]")
#: Half of a surrogate pair, as Python's surrogateescape has it for a byte -> the character that stands for the byte; back.
_TO_STANDIN: Final = {0xDC00 + byte: 0xF700 + byte for byte in range(0x80, 0x100)}
_FROM_STANDIN: Final = {standin: surrogate for surrogate, standin in _TO_STANDIN.items()}


@lru_cache(maxsize=65_536)
def characters(field: bytes) -> str:
    """Return the text of an MQCHAR field, without the blanks and NULs at its end."""
    field = field.rstrip(b" \0")
    try:
        text = field.decode()
    except UnicodeDecodeError:
        text = field.decode(errors="surrogateescape")
    else:
        if _STANDINS.search(text) is None:
            return text
    text = _STANDINS.sub(lambda found: "".join(chr(0xDC00 + byte) for byte in found[0].encode()), text)
    return text.translate(_TO_STANDIN)


@lru_cache(maxsize=65_536)
def field_of(text: str) -> bytes:
    """Return the bytes of a field, of which `characters` made the text; without padding."""
    if _STANDINS.search(text) is None:
        return text.encode()
    return text.translate(_FROM_STANDIN).encode(errors="surrogateescape")
