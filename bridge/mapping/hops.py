"""The hop mark: which mappings a message came through, so that it goes through none twice.

In MQ it is `<mqbridge><hops>QM1/orders,QM1/copy</hops></mqbridge>`, a folder of its own in the RFH2 (or the message
property `mqbridge.hops`); links write it as a user property of MQTT 5. MQTT 3.1.1 has no place for it.
"""

from __future__ import annotations

from functools import lru_cache

from bridge.mapping.remembered import remembered
from bridge.wire.mq import Folder

#: The folder, and the element in it.
FOLDER, ELEMENT = "mqbridge", "hops"
#: Name of the message property, and of the user property.
HOPS_PROPERTY = f"{FOLDER}.{ELEMENT}"


def mark_of(origin: str, mapping: str) -> str:
    """Return the mark that a mapping leaves: "queue manager/mapping"; neither name has a comma in it."""
    return f"{origin}/{mapping}"


def hops_text(hops: tuple[str, ...]) -> str:
    """Return the marks as text, oldest first."""
    return ",".join(hops)


@remembered(1024)
def hops_of(text: str) -> tuple[str, ...]:
    """Return the marks in a text that `hops_text` or somebody else wrote."""
    return tuple(mark for mark in (mark.strip() for mark in text.split(",")) if mark)


@lru_cache(maxsize=1024)
def hops_folder(hops: tuple[str, ...]) -> Folder:
    """Return the folder of an RFH2 that holds the marks."""
    return Folder.build(FOLDER, {ELEMENT: hops_text(hops)})
