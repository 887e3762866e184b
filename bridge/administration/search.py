"""What a search in a running bridge finds."""

from __future__ import annotations

from typing import Literal

import msgspec

SearchKind = Literal["problem", "client", "topic", "queue", "mapping", "link", "pipeline", "channel", "setting"]


class SearchMatch(msgspec.Struct, frozen=True):
    """An object whose name, or another of its texts, contains the search text."""

    kind: SearchKind
    #: the name of the object; of a problem: its kind and subject; of a setting: its path, such as `limits.waiting_bytes`
    name: str
    #: the state of the object, in words; the value of a setting
    text: str
    #: the command that shows the object
    command: str


class SearchResult(msgspec.Struct, kw_only=True):
    """What a search found, in the order of the kinds. Of each kind, exact matches come first."""

    matches: list[SearchMatch]
    #: kind -> number of all matches, including those beyond the requested number; kinds without matches are left out
    found: dict[SearchKind, int]
    #: why kinds were not searched, or only in part
    incomplete: list[str]
