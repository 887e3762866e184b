"""Make texts from clients printable and limit their length, for the log and for pages."""

from __future__ import annotations

import re
from typing import Final

#: Maximum length of a message in characters.
LINE_LENGTH: Final = 1_000

#: Control characters, zero-width characters, and characters that change the text direction.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """Return a text as one line: unprintable characters are escaped, and long texts are truncated."""
    if len(text) > LINE_LENGTH:
        text = f"{text[:LINE_LENGTH]} … ({len(text)} characters)"
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
