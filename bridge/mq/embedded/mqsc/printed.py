"""Command responses as runmqsc prints them."""

from __future__ import annotations

from bridge.mq.embedded.attributes import FLAGS
from bridge.mq.mqi import CommandResponse

_INDENT = "   "
#: Width of the first of two columns.
_COLUMN = 40
_WORDS = {setting: keyword for keyword, setting in FLAGS.items()}


def render(response: CommandResponse) -> str:
    """Return the text of a response: the AMQ message, and below it each object with its attributes in two columns."""
    message = _printable(response.message)
    if not response.objects:
        return message
    lines = []
    for shown in response.objects:
        lines.append(message)
        left = ""
        for keyword, value in shown.items():
            cell = _cell(keyword, value)
            if left and len(left) < _COLUMN:
                lines.append(f"{_INDENT}{left:{_COLUMN}}{cell}")
                left = ""
            else:
                if left:
                    lines.append(_INDENT + left)
                left = cell
        if left:
            lines.append(_INDENT + left)
    return "\n".join(lines)


def _cell(keyword: str, value: str | int) -> str:
    word = _WORDS.get((keyword, str(value)))
    if word is not None:
        return word
    return f"{keyword}({_printable(str(value)) or ' '})"


def _printable(text: str) -> str:
    """Put dots for characters that cannot be printed (IBM MQ, "DISPLAY TOPIC")."""
    return "".join(character if character.isprintable() else "." for character in text)
