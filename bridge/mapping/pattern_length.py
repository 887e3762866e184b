r"""The length of regular expressions whose counts are written out: `(ab){3}` has the length of `ababab`.

The engines of schemas (Rust's regex) and expressions (RE2) match in time linear in the text. The time for a byte grows with
this length, from some nanoseconds to 0.1 ms, so it has a limit.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""\\[pP]\{[^}]*\}|\\x\{[^}]*\}|\\.   # an escape
    |\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*+\]  # a class of characters
    |\((?:\?(?:P?<\w+>|[\w-]*:))?|\)|\|
    |[*+?]
    |\{(?P<least>\d+)(?:,(?P<most>\d*))?\}
    |.""",
    re.VERBOSE | re.DOTALL,
)


def pattern_length(pattern: str) -> int:
    """Return the number of characters, classes and escapes of a pattern whose counts are written out.

    `*` and `+` count as one time. The pattern has no mistakes.
    """
    #: the lengths of the groups around the position, and of the last element
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text.startswith("("):
            groups[-1] += last
            groups.append(0)
            last = 0
        elif text == ")" and len(groups) > 1:
            last += groups.pop()
        elif token["least"] is not None:
            last *= max(int(token["most"] or 0), int(token["least"]), 1)
        elif text in ("|", "*", "+", "?"):
            continue
        else:
            groups[-1] += last
            last = 1
    return sum(groups) + last
