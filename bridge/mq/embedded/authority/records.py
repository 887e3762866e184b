"""Authority records: which principals and groups may do what with which objects.

They are kept and told here; `authorization` asks for them. A profile is the name of an object, or a generic name (`?`, `*`
and `**`) that stands for many. Source: IBM MQ documentation, "SET AUTHREC", "Set Authority Record", "OAM generic profiles".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from bridge.mq.embedded.unit import Unit

#: Kind of the rows that keep the records.
KIND = "AUTHREC"
#: The signs of generic profiles, from the least generic to the most; NUL stands for `**`.
_GENERIC = {"?": 1, "*": 2, "\0": 3}


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
        #: another number after each change
        self.version = 0

    def restore(self, attributes: dict[str, Any]) -> None:
        """Take a record over as it was kept on disk."""
        self.grant(Identity(*attributes["identity"]), attributes["authorities"])

    def grant(self, identity: Identity, authorities: Iterable[int]) -> None:
        """Let a record say so at once, and only until the queue manager ends."""
        self.granted[identity] = frozenset(authorities)
        self.version += 1

    def put(self, unit: Unit, identity: Identity, authorities: Iterable[int]) -> None:
        """Let a record say so when the unit of work ends."""
        granted = frozenset(authorities)
        row = msgspec.json.encode({"identity": list(identity), "authorities": sorted(granted)}).decode()
        unit.changes.definitions.append((KIND, _key(identity), row))
        unit.changes.effects.append(lambda: self.grant(identity, granted))

    def remove(self, unit: Unit, identity: Identity) -> None:
        """Let a record be gone when the unit of work ends."""
        unit.changes.definitions.append((KIND, _key(identity), None))
        unit.changes.effects.append(lambda: self.forget(identity))

    def forget(self, identity: Identity) -> None:
        """Let a record be gone at once, where it is there at all."""
        self.granted.pop(identity, None)
        self.version += 1

    def remove_profile(self, unit: Unit, object_type: int, profile: str) -> None:
        """Let all records of one profile be gone when the unit of work ends."""
        for identity in [one for one in self.granted if one[:2] == (object_type, profile)]:
            self.remove(unit, identity)

    def altered(
        self, unit: Unit, identity: Identity, added: frozenset[int], removed: frozenset[int] = frozenset()
    ) -> None:
        """Let a record, possibly a new one, have more authorities and fewer when the unit of work ends."""
        held = self.granted.get(identity)
        authorities = ((held or frozenset()) - removed) | added
        if authorities != held:
            self.put(unit, identity, authorities)


def _key(identity: Identity) -> str:
    return " ".join(map(str, identity))


def specificity(profile: str) -> tuple[int, ...]:
    """Return a key by which, of the profiles that cover a name, the most specific is the least.

    Character by character from the left, `?` is more generic than a letter, `*` than `?`, and `**` than `*`.
    """
    return (*(_GENERIC.get(sign, 0) for sign in profile.replace("**", "\0")), len(_GENERIC) + 1)


def covers(profile: str, name: str) -> bool:
    """Return whether a profile is about an object.

    `?` is one character, `*` any number of them in one qualifier (the text between two dots), `**` any number of
    qualifiers.
    """
    return _is_like(
        profile.split("."), name.split("."), "**", lambda one, qualifier: _is_like(one, qualifier, "*", _same)
    )


def is_about(profile: str, asked: str) -> bool:
    """Return whether a profile is about the name asked for; a name with `*` at its end asks for all that begin so."""
    return covers(profile, asked) or (asked.endswith("*") and profile.startswith(asked[:-1]))


def _same(one: str, character: str) -> bool:
    return one in ("?", character)


def _is_like(pattern: Sequence[str], items: Sequence[str], any_number: str, same: Callable[[str, str], bool]) -> bool:
    """Return whether items are like a pattern, in which one sign stands for any number of them.

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
