"""The character-based wildcard scheme of topic strings (MQSO_WILDCARD_CHAR, WSCHEMA(CHAR)).

`*` stands for any characters, `/` among them, and for none; `?` for one; `%` in front of `*`, `?` or `%` says that it is
meant itself. Source: IBM MQ documentation, "Character-based wildcard scheme".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bridge.mq.embedded.glob import Glob, Wildcard
from bridge.telemetry.headers import remembered

_WILDCARDS = {"*": Wildcard.ANY, "?": Wildcard.ONE}
_TOKEN = re.compile(r"%([*?%])|([*?])|([^*?%]|%)", re.DOTALL)


def _tokens(topic_filter: str) -> Iterator[str | Wildcard]:
    for match in _TOKEN.finditer(topic_filter):
        yield _WILDCARDS[match[2]] if match[2] else match[1] or match[3]


@remembered(1024)
def _pattern(topic_filter: str) -> Glob:
    return Glob(_tokens(topic_filter))


def matches(topic_filter: str, topic: str) -> bool:
    """Return whether a topic string is one that the filter names; one that begins with a wildcard names none of `$`."""
    if topic.startswith("$") and topic_filter[:1] in _WILDCARDS:
        return False
    return _pattern(topic_filter).matches(topic)


def literal(topic_filter: str) -> str | None:
    """Return the characters in front of the first wildcard; None where there is none."""
    found: list[str] = []
    for token in _tokens(topic_filter):
        if isinstance(token, Wildcard):
            return "".join(found)
        found.append(token)
    return None
