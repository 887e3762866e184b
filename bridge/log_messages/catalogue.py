"""The catalogue of log messages: for each identifier its text, what happened, why, and what to do.

An identifier keeps its meaning and is never reused (CONTRIBUTING.md, "Add a log message").
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import msgspec

_DIRECTORY = resources.files("bridge.log_messages")


class LogMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The explanation of a log message."""

    #: The text, with words in capitals for the client, queue, error and so on.
    text: str
    happened: str
    why: str
    do: str


def catalogue() -> Mapping[str, LogMessage]:
    """Return the messages by identifier, in order."""
    messages: dict[str, LogMessage] = {}
    for file in (_DIRECTORY / "explanations").iterdir():
        messages |= msgspec.yaml.decode(file.read_bytes(), type=dict[str, LogMessage])
    return dict(sorted(messages.items()))


def reasons() -> Mapping[str, str]:
    """Return explanations of common MQ reason codes, by name."""
    return msgspec.yaml.decode((_DIRECTORY / "reasons.yaml").read_bytes(), type=dict[str, str])


def mqtt_reasons() -> Mapping[str, str]:
    """Return explanations of reason codes of MQTT 5, by name (bridge/mqtt/reason_codes.py)."""
    return msgspec.yaml.decode((_DIRECTORY / "mqtt_reasons.yaml").read_bytes(), type=dict[str, str])
