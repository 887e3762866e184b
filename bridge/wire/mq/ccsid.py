"""Coded character sets of the CCSIDs in MQMD and headers, including EBCDIC code pages.

Python lacks some national EBCDIC pages of Latin 1. They are defined here by their differences from CCSID 37, because all
contain the same 256 characters in a different order. The euro pages (1140 to 1149) have a euro sign instead of the currency
sign. Source: IBM's code page definitions, as published in the mapping tables of the Unicode consortium and ICU
(ibm-273_P100, ibm-1047_P100, ...).
"""

from __future__ import annotations

import codecs
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from bridge.wire import cmqc

#: CCSIDs whose codec in Python does not have the name `cp` and the number.
_NAMES: Final = {
    367: "ascii",
    813: "iso8859-7",
    819: "latin-1",
    912: "iso8859-2",
    914: "iso8859-4",
    915: "iso8859-5",
    916: "iso8859-8",
    920: "iso8859-9",
    921: "iso8859-13",
    923: "iso8859-15",
    936: "gbk",
    943: "cp932",
    954: "euc_jp",
    970: "euc_kr",
    1089: "iso8859-6",
    1208: "utf-8",
    1363: "cp949",
    1386: "gbk",
    1392: "gb18030",
    5346: "cp1250",
    5347: "cp1251",
    5348: "cp1252",
    5349: "cp1253",
    5350: "cp1254",
    5488: "gb18030",
}
#: UTF-16 in the byte order of the Encoding, and in a fixed byte order.
_UTF_16: Final = frozenset({1200, 13488, 17584})
_UTF_16_ORDERED: Final = {1201: "utf-16-be", 1202: "utf-16-le", 1203: "utf-16-le"}
#: CCSID -> bytes whose character differs from CCSID 37, and these characters.
_UNLIKE_37: Final = {
    273: ("434a4f595a5f636a7ca1b0b5babbbcc0ccd0dce0ecfc", "{Ä!~Ü^[ö§ß¢@¬|¯ä¦ü}Ö\\]"),
    277: ("474a4f5a5b5f676a707b7c809c9e9fa1b0babbc0d0dc", "}#!¤Å^$ø¦ÆØ@{[]ü¢¬|æå~"),
    278: ("43474a4f515a5b5f63676a71797b7c9fa1b0b5babbc0ccd0dce0ec", "{}§!`¤Å^#$ö\\éÄÖ]ü¢[¬|ä¦å~É@"),
    280: ("44484a4f5154585a5f6a797b7c90a1b0b1b5babbc0cdd0dde0", "{\\°!]}~é^òù£§[ì¢#@¬|à¦è`ç"),
    284: ("494a5a696a7ba1b0babbbd", "¦[]#ñÑ¨¢^!~"),
    285: ("4a5ba1b0b1babc", "$£¯¢[^~"),
    297: ("44484a4f51545a5f6a797b7c90a0a1b0b1b5babbbdc0d0dde0", "@\\°!{}§^ùµ£à[`¨¢#]¬|~éè¦ç"),
    500: ("4a4f5a5fb0babb", "[!]^¢¬|"),
    871: ("4a4f5a5f797c8c8e9c9ea1acaeb0babbbec0ccd0e0ec", "Þ!ÆÖðÐ`{}]ö@[¢¬|\\þ~æ´^"),
    1047: ("5fadb0babbbd", "^[¬Ý¨]"),
}
_EURO_OF: Final = {
    1140: 37,
    1141: 273,
    1142: 277,
    1143: 278,
    1144: 280,
    1145: 284,
    1146: 285,
    1147: 297,
    1148: 500,
    1149: 871,
}
#: EBCDIC pages with a codec in Python, and with characters beyond Latin 1.
_EBCDIC_OF_PYTHON: Final = frozenset({424, 875, 1026})

Errors = Literal["strict", "replace"]


class CharacterSet(msgspec.Struct, frozen=True, gc=False):
    """A coded character set in one byte order. Get it from `character_set`, which caches them."""

    codec: str
    is_ebcdic: bool = False
    #: byte -> character, for pages that Python lacks
    characters: str = ""

    def decode(self, data: bytes, *, nl_to_lf: bool = True) -> str:
        """Decode bytes to text.

        With `nl_to_lf`, an EBCDIC newline (NL, X'15') becomes a line feed, like the queue manager's default conversion to
        character sets other than EBCDIC (ConvEBCDICNewline=NL_TO_LF). Otherwise it becomes U+0085, as in the tables. Raises
        UnicodeDecodeError.
        """
        text = codecs.charmap_decode(data, "strict", self.characters)[0] if self.characters else data.decode(self.codec)
        return text.replace("\x85", "\n") if nl_to_lf and self.is_ebcdic else text

    def encode(self, text: str, errors: Errors = "strict") -> bytes:
        """Encode text to bytes. In EBCDIC, a line feed is X'25', as in the tables.

        Raises UnicodeEncodeError if the set does not contain a character and `errors` is "strict".
        """
        if self.characters:
            return codecs.charmap_encode(text, errors, _encoding_map(self.characters))[0]
        return text.encode(self.codec, errors)


@lru_cache(maxsize=256)
def character_set(ccsid: int, encoding: int = cmqc.MQENC_NATIVE) -> CharacterSet | None:
    """Return the character set of a CCSID, or None if it is not supported. `encoding` determines the byte order of UTF-16."""
    if ccsid in _UTF_16:
        little = encoding & cmqc.MQENC_INTEGER_MASK == cmqc.MQENC_INTEGER_REVERSED
        return CharacterSet("utf-16-le" if little else "utf-16-be")
    if ccsid in _UTF_16_ORDERED:
        return CharacterSet(_UTF_16_ORDERED[ccsid])
    page = _EURO_OF.get(ccsid, ccsid)
    if page == 37 or page in _UNLIKE_37:
        return CharacterSet(f"cp{ccsid:03d}", True, _latin_1_page(page, euro=page != ccsid))
    try:
        codec = codecs.lookup(_NAMES.get(ccsid, f"cp{ccsid:03d}")).name
    except LookupError:
        return None
    return CharacterSet(codec, ccsid in _EBCDIC_OF_PYTHON)


def same_characters(ccsid: int, other: int) -> bool:
    """Return whether text needs no conversion from one CCSID to the other, in any Encoding."""
    return ccsid == other and ccsid not in _UTF_16


def _latin_1_page(page: int, *, euro: bool) -> str:
    characters = list(bytes(range(256)).decode("cp037"))
    places, others = _UNLIKE_37.get(page, ("", ""))
    for place, character in zip(bytes.fromhex(places), others, strict=True):
        characters[place] = character
    return "".join(characters).replace("¤", "€" if euro else "¤")


@lru_cache(maxsize=64)
def _encoding_map(characters: str) -> Any:
    return codecs.charmap_build(characters)
