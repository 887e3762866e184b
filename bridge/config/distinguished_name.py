"""Distinguished names, and the patterns of them that channel authentication records have.

Source: IBM MQ, "WebSphere MQ rules for SSLPEER values", "Distinguished Names".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

#: Types of attribute that a pattern may ask for, and the other names that each has there or in certificates.
ATTRIBUTES: Final = {
    "SERIALNUMBER": (),
    "MAIL": ("E", "EMAILADDRESS"),
    "UID": ("USERID",),
    "CN": ("COMMONNAME",),
    "T": ("TITLE",),
    "OU": ("ORGANIZATIONALUNITNAME",),
    "DC": ("DOMAINCOMPONENT",),
    "O": ("ORGANIZATIONNAME",),
    "STREET": ("STREETADDRESS",),
    "L": ("LOCALITYNAME",),
    "ST": ("SP", "S", "STATEORPROVINCENAME"),
    "PC": ("POSTALCODE",),
    "C": ("COUNTRYNAME",),
    "UNSTRUCTUREDNAME": (),
    "UNSTRUCTUREDADDRESS": (),
    "DNQ": ("DNQUALIFIER",),
}
_NAMES: Final = {other: name for name, others in ATTRIBUTES.items() for other in (name, *others)}
#: Stands for an asterisk that is one, with a backslash before it; nothing that is read has it.
_ASTERISK: Final = "\0"


@lru_cache(1_000)
def name_pattern(text: str) -> tuple[tuple[str, str], ...]:
    """Return the attributes that a pattern asks for, each with its value. Raises ValueError, with words for a person."""
    found = _read(text)
    if not found:
        raise ValueError("a distinguished name such as CN=pump*,O=Example")
    for key, value in found:
        if key not in ATTRIBUTES:
            raise ValueError(f"one of {', '.join(ATTRIBUTES)} before = in {key or value!r}")
        if not value:
            raise ValueError(f"a value behind {key}=")
        if "*" in value[1:-1]:
            raise ValueError(f"* at the beginning or the end of {key}={value}, or \\* for an asterisk")
    return tuple(found)


def matches_name(pattern: str, name: str) -> bool:
    """Return whether a distinguished name has what a pattern asks for, in any order.

    A value may begin and end with `*`; of an attribute that stands in the pattern several times each has to be there, in
    their order. A pattern that is none matches nobody.
    """
    try:
        wanted = name_pattern(pattern)
    except ValueError:
        return False
    there = _read(name)
    positions: dict[str, int] = {}
    for key, value in wanted:
        values = [one for other, one in there if other == key]
        index = positions.get(key, 0)
        while index < len(values) and not _value_matches(value, values[index]):
            index += 1
        if index == len(values):
            return False
        positions[key] = index + 1
    return True


def _value_matches(wanted: str, value: str) -> bool:
    wanted, value = wanted.lower(), value.replace(_ASTERISK, "*").lower()
    begins, ends = wanted.startswith("*"), wanted.endswith("*")
    middle = wanted[begins : len(wanted) - (ends and len(wanted) > begins)].replace(_ASTERISK, "*")
    if begins and ends:
        return middle in value
    if begins:
        return value.endswith(middle)
    return value.startswith(middle) if ends else value == middle


def _read(name: str) -> list[tuple[str, str]]:
    """Return the attributes of a distinguished name, of which a comma or a semicolon is between two.

    In a value they have a backslash before them, or quotes around it. What has no `=` comes with no type.
    """
    found: list[tuple[str, str]] = []
    part, quoted, escaped = "", False, False
    for character in name + ",":
        if escaped:
            part, escaped = part + (_ASTERISK if character == "*" else character), False
        elif character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character in ",;" and not quoted:
            key, equals, value = part.partition("=")
            found.append((_type(key), value.strip()) if equals else ("", part.strip()))
            part = ""
        else:
            part += character
    if quoted or escaped:
        found.append(("", part))
    return found


def _type(key: str) -> str:
    key = key.strip().upper()
    return _NAMES.get(key, key)
