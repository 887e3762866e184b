"""Authority records: which principals and groups may do what with which objects.

They are kept and told; what asks for them is elsewhere. A profile is the name of an object, or a generic name (`?`, `*`
and `**`) that stands for many. Source: IBM MQ documentation, "SET AUTHREC", "Set Authority Record", "OAM generic profiles".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from bridge.mq.local.unit import Unit

#: Kind of the rows that keep the records.
KIND = "AUTHREC"


class Identity(NamedTuple):
    """Whose authority over what a record is. Numbers are those of MQOT_ and MQZAET_."""

    object_type: int
    profile: str
    entity_type: int
    entity: str


class AuthorityRecords:
    """The authority records of a queue manager: identity -> the MQAUTH_ numbers that are granted."""

    def __init__(self) -> None:
        self.granted: dict[Identity, frozenset[int]] = {}

    def restore(self, attributes: dict[str, Any]) -> None:
        """Take a record over as it was kept on disk."""
        identity = Identity(*attributes["identity"])
        self.granted[identity] = frozenset(attributes["authorities"])

    def put(self, unit: Unit, identity: Identity, authorities: Iterable[int]) -> None:
        """Let a record say so when the unit of work ends."""
        granted = frozenset(authorities)
        row = msgspec.json.encode({"identity": list(identity), "authorities": sorted(granted)}).decode()
        unit.definitions.append((KIND, _key(identity), row))
        unit.effects.append(lambda: self.granted.update({identity: granted}))

    def remove(self, unit: Unit, identity: Identity) -> None:
        """Let a record be gone when the unit of work ends."""
        unit.definitions.append((KIND, _key(identity), None))
        unit.effects.append(lambda: self._forget(identity))

    def _forget(self, identity: Identity) -> None:
        self.granted.pop(identity, None)


def _key(identity: Identity) -> str:
    return " ".join(map(str, identity))


def covers(profile: str, name: str) -> bool:
    """Whether a profile is about an object: `?` is one character, `*` any number of them in one qualifier (the text
    between two dots), `**` any number of qualifiers.
    """
    return _is_like(
        profile.split("."), name.split("."), "**", lambda one, qualifier: _is_like(one, qualifier, "*", _same)
    )


def _same(one: str, character: str) -> bool:
    return one in ("?", character)


def _is_like(pattern: Sequence[str], items: Sequence[str], any_number: str, same: Callable[[str, str], bool]) -> bool:
    """Whether items are like a pattern, in which one sign stands for any number of them.

    Only the last such sign is ever tried again, so that no profile takes longer than its length times the name's.
    """
    at = begin = 0
    resume: int | None = None
    while begin < len(items):
        if at < len(pattern) and pattern[at] == any_number:
            at += 1
            resume, kept = at, begin
        elif at < len(pattern) and same(pattern[at], items[begin]):
            at += 1
            begin += 1
        elif resume is not None:
            kept += 1
            at, begin = resume, kept
        else:
            return False
    return all(sign == any_number for sign in pattern[at:])
