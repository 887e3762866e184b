"""User property names of MQTT 5 as message property names, and back.

A message property is named like a Java identifier, a user property by any text. What the first does not allow travels as
`_x` and four (or eight) hexadecimal digits and `_`: `site-id` is `site_x002D_id`, and a name that has such an escape in
it by itself begins it with `_x005F_`. So no two names become one, and reading gives the name that was written.
"""

from __future__ import annotations

import re

from bridge.mapping.remembered import remembered

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_ESCAPE = re.compile(r"_x(?:([0-9A-F]{4})|([0-9A-F]{8}))_")
_TO_ESCAPE = re.compile(r"_(?=x(?:[0-9A-F]{4}|[0-9A-F]{8})_)|^[0-9$]|[^A-Za-z0-9_$]")


@remembered(1024)
def property_name(name: str) -> str:
    """Return the name of the element in the usr folder; `_x0000_` for an empty name."""
    if not name:
        return _NOTHING
    if _PLAIN.fullmatch(name) and "_x" not in name:
        return name
    return _TO_ESCAPE.sub(_escaped, name)


@remembered(1024)
def user_name(element: str) -> str:
    """Return the name that an element of the usr folder stands for."""
    if "_x" not in element:
        return element
    return "" if element == _NOTHING else _ESCAPE.sub(_character, element)


#: U+0000 stands in no name.
_NOTHING = "_x0000_"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"_x{code:04X}_" if code <= 0xFFFF else f"_x{code:08X}_"


def _character(found: re.Match[str]) -> str:
    code = int(found[1] or found[2], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF and code else found[0]
