"""What a record of the log consists of, for people and for programs: a line that prints, and the fields beside it."""

from __future__ import annotations

import logging
import re

from bridge.log_messages.identifier import divided
from bridge.transport.peer import Peer

#: Characters of a message at most.
LINE_LENGTH = 1_000

_REASON = re.compile(r"MQRC_[A-Z_]+[A-Z]")
#: Control characters, and what has no width or turns the direction of writing.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """Return a text as one line: what cannot be seen as escapes, cut where it is long."""
    if len(text) > LINE_LENGTH:
        text = f"{text[:LINE_LENGTH]} … ({len(text)} characters)"
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def peer_of(record: logging.LogRecord) -> Peer | None:
    """Return the client that a record is about; None where it is about none, or names it otherwise."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    stated: Peer | None = getattr(record, "peer", None)
    return next((one for one in arguments if isinstance(one, Peer)), stated)


def fields_of(record: logging.LogRecord, message: str) -> dict[str, str]:
    """Return the fields of a record that are known, of `id`, `client`, `address`, `reason`; `message` is its message.

    `id` is the identifier of the message, `client` a client identifier, `reason` the name of an MQRC that the message tells.
    """
    found = {"id": divided(message)[0]}
    if (peer := peer_of(record)) is not None:
        found |= {"client": printable(peer.client_id), "address": peer.address}
    if (reason := _REASON.search(message)) is not None:
        found["reason"] = reason[0]
    return {name: value for name, value in found.items() if value or name == "client"}


#: Levels, and the priorities of syslog that they are.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


def priority_of(level: int) -> int:
    """Return the priority of syslog that a level is."""
    return next(priority for least, priority in _PRIORITIES if level >= least)
