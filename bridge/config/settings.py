"""The settings of a configuration, one by one: their paths and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from bridge.config.effective import effective
from bridge.config.models import Configuration
from bridge.config.problems import Location, dotted


class Setting(msgspec.Struct, frozen=True):
    """An option of the configuration, with the value that is in effect."""

    #: the path of the option, such as `channels[0].port`
    key: str
    #: the value as YAML, in which secrets are hidden
    value: str


def settings_of(configuration: Configuration) -> Iterator[Setting]:
    """Yield all settings of a configuration, in its order. A large configuration takes a second."""
    for location, value in _leaves(effective(configuration), ()):
        yield Setting(dotted(location), _text(value))


def _leaves(value: Any, location: Location) -> Iterator[tuple[Location, Any]]:
    if isinstance(value, dict) and value:
        for key, element in value.items():
            yield from _leaves(element, (*location, key))
    elif isinstance(value, list) and any(isinstance(element, dict | list) for element in value):
        for index, element in enumerate(value):
            yield from _leaves(element, (*location, index))
    else:
        yield location, value


def _text(value: Any) -> str:
    """Return a value as YAML on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case dict():
            return "{}"
    return str(value)
