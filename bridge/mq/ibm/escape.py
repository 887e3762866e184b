"""MQSC commands through a queue manager's command server (PCF command Escape)."""

from __future__ import annotations

import re

from bridge.mq.administration import Administration
from bridge.mq.embedded.mqsc.language import read
from bridge.mq.errors import MQError
from bridge.mq.mqi import CommandResponse, Connection

_MESSAGE = re.compile(r"(AMQ\d{4})([IWEST])?")
_ATTRIBUTE = re.compile(r"([A-Z][A-Z0-9]*)\(((?:'(?:[^']|'')*'|[^()]|\([^()]*\))*)\)")


def run_mqsc(connection: Connection, text: str) -> list[CommandResponse]:
    """Run MQSC commands, one response for each. Raises MQError when the command server cannot be reached."""
    administration = Administration(connection)
    try:
        return [_run(administration, command.line, command.text) for command in read(text)]
    finally:
        administration.close()


def _run(administration: Administration, line: int, command: str) -> CommandResponse:
    try:
        ok, answers = administration.escape(command)
    except MQError as error:
        return CommandResponse(command=command, message=str(error), ok=False, line=line)
    objects: list[dict[str, str | int]] = []
    message = ""
    for answer in answers:
        first, _, rest = answer.partition("\n")
        found = _MESSAGE.match(first.strip())
        if found is not None:
            message = message or first.strip()
            ok = ok and found.group(2) not in ("E", "S", "T")
        else:
            rest = answer
        attributes = {name: _value(value) for name, value in _ATTRIBUTE.findall(rest)}
        if attributes:
            objects.append(attributes)
    return CommandResponse(command=command, message=message, ok=ok, objects=objects, line=line)


def _value(text: str) -> str | int:
    text = text.strip()
    if text.startswith("'") and text.endswith("'") and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return int(text) if text.isdigit() else text
