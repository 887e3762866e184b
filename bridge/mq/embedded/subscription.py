"""Subscriptions, and the character-based wildcards of their topic strings (WSCHEMA(CHAR)) and of generic names in commands.

In topic strings, `*` matches any characters including `/`, `?` matches one character, and `%` escapes `*`, `?` and `%`.
Source: IBM MQ documentation, "Character-based wildcard scheme".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import msgspec

from bridge.mq.embedded.queue import Queue
from bridge.mqtt.topics import matches
from bridge.telemetry.headers import remembered
from bridge.telemetry.subscription import is_for_subscription
from bridge.wire import cmqc


class Wildcard(Enum):
    """A wildcard."""

    #: any number of characters, including none
    ANY = "any"
    #: one character
    ONE = "one"


class Glob:
    """A compiled pattern. Matching does not backtrack: each part between two ANY matches at the first possible position."""

    def __init__(self, tokens: Iterable[str | Wildcard]) -> None:
        parts = [""]
        for token in tokens:
            if token is Wildcard.ANY:
                parts.append("")
            else:
                parts[-1] += "." if token is Wildcard.ONE else re.escape(str(token))
        first, *others = parts
        *between, last = others or [""]
        pattern = "".join((first, *(f"(?>.*?{part})" for part in between), f".*{last}" if others else ""))
        self._pattern = re.compile(pattern, re.DOTALL)

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches the whole text."""
        return self._pattern.fullmatch(text) is not None


_WILDCARDS = {"*": Wildcard.ANY, "?": Wildcard.ONE}
_TOKEN = re.compile(r"%([*?%])|([*?])|([^*?%]|%)", re.DOTALL)


def _tokens(topic_filter: str) -> Iterator[str | Wildcard]:
    for match in _TOKEN.finditer(topic_filter):
        yield _WILDCARDS[match[2]] if match[2] else match[1] or match[3]


@remembered(1024)
def _pattern(topic_filter: str) -> Glob:
    return Glob(_tokens(topic_filter))


def matches_characters(topic_filter: str, topic: str) -> bool:
    """Return whether a filter matches a topic string. A leading wildcard does not match topics that begin with `$`."""
    if topic.startswith("$") and topic_filter[:1] in _WILDCARDS:
        return False
    return _pattern(topic_filter).matches(topic)


def literal_prefix(topic_filter: str) -> str | None:
    """Return the text before the first wildcard, or None if there is no wildcard."""
    prefix: list[str] = []
    for token in _tokens(topic_filter):
        if isinstance(token, Wildcard):
            return "".join(prefix)
        prefix.append(token)
    return None


#: Attributes of stored subscriptions in addition to those of DEFINE SUB, and their fields.
STORED = {
    "OBJECT": "topic_object", "SUBTYPE": "kind", "MANAGED": "managed", "EXPIRES": "expires_at", "SELECTOR": "selector",
    "PRIORITY": "priority", "GROUPED": "grouped", "ANYUSER": "any_user", "REQUEST": "on_request",
    "RETAIN": "retain_as_published",
}  # fmt: skip


class Subscription(msgspec.Struct, kw_only=True, eq=False):
    """A subscription and its destination. Field names in comments are those of MQSD and DISPLAY SUB."""

    #: SUB
    name: str
    #: TOPICSTR, including the topic object's topic string
    topic_filter: str
    #: queue that publications are put to: the destination, or the transmission queue for it
    queue: Queue
    #: DEST and DESTQMGR, unresolved
    destination: str
    destination_manager: str
    #: MQXQH fields, if `queue` is a transmission queue
    remote_queue: str = ""
    client_id: str = ""
    #: USERDATA
    user_data: str | None = None
    #: DESTCORL
    correl_id: bytes | None = None
    durable: bool = False
    #: whether its publications are not stored on disk, because they are useless after a restart
    ephemeral: bool = False
    #: SUBLEVEL
    level: int = 1
    #: SUBUSER
    user: str = ""
    topic_object: str = ""
    #: DISPLAY SUB SUBTYPE: API or ADMIN
    kind: str = "API"
    #: whether the destination is managed (MQSO_MANAGED)
    managed: bool = False
    #: time of SubExpiry, in seconds since the epoch, or 0 if it does not expire
    expires_at: float = 0.0
    #: SELECTOR, and its predicate
    selector: str = ""
    selection: Any = None
    #: PUBPRTY: MQPRI_PRIORITY_AS_PUBLISHED, _AS_Q_DEF, or 0 to 9
    priority: int = cmqc.MQPRI_PRIORITY_AS_PUBLISHED
    #: MQSO_GROUP_SUB: only one subscription with the same destination, CorrelId and level gets a publication
    grouped: bool = False
    #: VARUSER(ANY): any user may resume it
    any_user: bool = False
    #: REQONLY: publications are delivered with MQSUBRQ only
    on_request: bool = False
    #: PubAccountingToken and PubApplIdentityData, with MQSO_SET_IDENTITY_CONTEXT
    identity: tuple[bytes, str] | None = None
    #: live publications put with MQPMO_RETAIN are marked as retained (MQTT 5, Retain As Published)
    retain_as_published: bool = False
    #: WSCHEMA(CHAR): its topic string has character-based wildcards
    characters: bool = False
    #: copies of publications have the UserIdentifier of the subscription, not that of the publisher
    as_subscriber: bool = False
    #: the application that has the subscription open
    owner: Any = None

    @property
    def definition(self) -> dict[str, str | int]:
        """The attributes that DEFINE SUB sets, with the complete topic string."""
        return {
            "TOPICSTR": self.topic_filter,
            "DEST": self.destination,
            "DESTQMGR": self.destination_manager,
            "DESTCORL": self.correl_id.hex().upper() if self.correl_id is not None else "",
            "USERDATA": self.user_data or "",
            "SUBLEVEL": self.level,
            "SUBUSER": self.user,
            "WSCHEMA": "CHAR" if self.characters else "TOPIC",
        }

    @property
    def row(self) -> dict[str, Any]:
        """All attributes of a durable subscription, as stored on disk."""
        row: dict[str, Any] = self.definition | {keyword: getattr(self, field) for keyword, field in STORED.items()}
        if self.identity is not None:
            token, data = self.identity
            row["IDENTITY"] = token.hex() + data
        return row

    def names(self, topic: str) -> bool:
        """Return whether the subscription matches a topic string."""
        if self.characters:
            return matches_characters(self.topic_filter, topic)
        return matches(self.topic_filter, topic)

    @property
    def selective(self) -> bool:
        """Whether the subscription filters or modifies publications."""
        return (
            self.selection is not None
            or self.priority != cmqc.MQPRI_PRIORITY_AS_PUBLISHED
            or self.identity is not None
            or self.as_subscriber
            or self.direct
            or bool(self.expires_at)
        )

    @property
    def direct(self) -> bool:
        """Whether its copies are direct messages: the destination is another queue name at an MQTT client."""
        return bool(self.client_id) and not is_for_subscription(self.remote_queue)
