"""The catalogue: for each identifier what its line says, what happened, why, and what to do.

It is the record of the identifiers, too: one that was ever in it keeps its meaning (CONTRIBUTING.md, "Add a log line").
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import msgspec

_PLACE = resources.files("bridge.log_messages")


class LogMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a line of the log means."""

    #: the line, with words in capitals where it says which client, queue, error …
    text: str
    happened: str
    why: str
    do: str


def catalogue() -> Mapping[str, LogMessage]:
    """Return the messages by identifier, in order. Each file has those of one room."""
    found: dict[str, LogMessage] = {}
    for file in (_PLACE / "rooms").iterdir():
        found |= msgspec.yaml.decode(file.read_bytes(), type=dict[str, LogMessage])
    return dict(sorted(found.items()))


def reasons() -> Mapping[str, str]:
    """Return what the best known reason codes of MQ mean, by name."""
    return msgspec.yaml.decode((_PLACE / "reasons.yaml").read_bytes(), type=dict[str, str])
