"""The result of a search in a running bridge."""

from __future__ import annotations

from typing import Literal

import msgspec

SearchKind = Literal["problem", "client", "topic", "queue", "mapping", "link", "pipeline", "channel", "setting"]


class SearchMatch(msgspec.Struct, frozen=True):
    """An object whose name, or another of its texts, contains the search text."""

    kind: SearchKind
    #: the name of the object, the kind and subject of a problem, or the path of a setting, such as `limits.waiting_bytes`
    name: str
    #: the state of the object in words, or the value of a setting
    text: str
    #: the command that shows the object
    command: str


class SearchResult(msgspec.Struct, kw_only=True):
    """The matches, in the order of the kinds. Of each kind, exact matches come first."""

    matches: list[SearchMatch]
    #: kind -> number of all matches, including those beyond the requested number. Kinds without matches are left out
    found: dict[SearchKind, int]
    #: reasons for which kinds were not searched, or only in part
    incomplete: list[str]
