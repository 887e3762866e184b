"""The character-based wildcard scheme of topic strings (MQSO_WILDCARD_CHAR, WSCHEMA(CHAR)).

`*` stands for any characters, `/` among them, and for none; `?` for one; `%` in front of `*`, `?` or `%` says that it is
meant itself. Source: IBM MQ documentation, "Character-based wildcard scheme".
"""

from __future__ import annotations

import re
from functools import lru_cache

_WILDCARDS = {"*": ".*", "?": "."}
_TOKEN = re.compile(r"%([*?%])|([*?])|([^*?%]+|%)", re.DOTALL)


@lru_cache(maxsize=1024)
def _pattern(topic_filter: str) -> re.Pattern[str]:
    parts = (
        _WILDCARDS[match[2]] if match[2] else re.escape(match[1] or match[3]) for match in _TOKEN.finditer(topic_filter)
    )
    return re.compile("".join(parts), re.DOTALL)


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a topic string is one that the filter names; one that begins with a wildcard names none of `$`."""
    if topic.startswith("$") and topic_filter[:1] in _WILDCARDS:
        return False
    return _pattern(topic_filter).fullmatch(topic) is not None


def literal(topic_filter: str) -> str | None:
    """The characters in front of the first wildcard; None where there is none."""
    found = ""
    for match in _TOKEN.finditer(topic_filter):
        if match[2]:
            return found
        found += match[1] or match[3]
    return None
