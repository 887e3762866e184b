"""Folders of an RFH2 as message properties: names with values as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bridge.mapping.message import CCSID_UTF8
from bridge.mapping.property_name import user_name
from bridge.mapping.remembered import remembered
from bridge.wire.mq import ByteOrder, Folder, MalformedHeader, Value

#: A folder of text and integers without groups, references or other attributes, in ASCII; and an element of it.
_SIMPLE = re.compile(
    rb"<(\w++)>((?:<(\w++)(?: dt='i4'>[0-9]{1,9}|>[ !-%'-;=-~]*+)</\3>)*+)</\1> *+"
)
_ELEMENT = re.compile(rb"<(\w++)(?: dt='i4'>([0-9]++)|>([^<]*+))<")
#: name -> value as text; or why the folder cannot be read
FolderProperties = Mapping[str, str] | str


def folder_properties(folders: Iterable[Folder]) -> dict[str, FolderProperties]:
    """Return what folders say, by name; of those with one name, what they say together.

    A property in a group is `group.name`; of one that is there twice the last value counts; one that is nil is none. Names
    in the usr folder are as the bridge reads them (:mod:`bridge.mapping.property_name`).
    """
    found: dict[str, FolderProperties] = {}
    for folder in folders:
        name, properties = _read(folder.NameValueData, folder.NameValueCCSID, folder.byte_order)
        before = found.get(name, properties)
        if before is not properties and not isinstance(before, str) and not isinstance(properties, str):
            properties = {**before, **properties}
        found[name] = before if isinstance(before, str) else properties
    return found


@remembered(4096)
def _read(data: bytes, ccsid: int, byte_order: ByteOrder) -> tuple[str, FolderProperties]:
    """Return (name, properties) of a folder, or (name, reason) where the folder cannot be read.

    The reason is for callers that need the folder.
    """
    simple = _SIMPLE.fullmatch(data) if ccsid == CCSID_UTF8 else None
    found: dict[str, str] = {}
    if simple is not None:
        # Such are all folders that the bridge writes; the mqtt folder, with its message id, is never twice the same.
        name = simple[1].decode()
        for element, integer, text in _ELEMENT.findall(simple[2]):
            found[element.decode()] = str(int(integer)) if integer else text.decode()
    else:
        folder = Folder(data, ccsid, byte_order)
        name = folder.name
        try:
            _flatten(folder.content, "", found)
        except MalformedHeader as error:
            return name, f"folder {name} of the RFH2 cannot be read: {error}"
    if name == "usr":
        found = {user_name(element): value for element, value in found.items()}
    return name, found


def _flatten(content: Mapping[str, Value], prefix: str, found: dict[str, str]) -> None:
    for name, value in content.items():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                _flatten(item, f"{prefix}{name}.", found)
            elif item is not None:
                found[prefix + name] = as_text(item)


def as_text(value: Value) -> str:
    """Return the value of a property as text; bytes in hexadecimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
