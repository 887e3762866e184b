"""Methods of enhanced authentication (MQTT 5 section 4.12), and how they are found.

A method is an entry point of the group `mqbridge.authentication_methods`: its name is the Authentication Method of CONNECT,
and its object, called without arguments, makes an `AuthenticationMethod`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Protocol

import msgspec

from bridge.security.authenticator import Authenticated, Presented

GROUP = "mqbridge.authentication_methods"


class Challenge(msgspec.Struct, frozen=True):
    """Authentication Data that the client has to respond to."""

    data: bytes | None = None


class Exchange(Protocol):
    """The server's side of one authentication."""

    async def respond(self, data: bytes | None) -> Challenge | Authenticated:
        """Take the client's Authentication Data, first those of CONNECT. Raises AuthenticationFailed."""


class AuthenticationMethod(Protocol):
    """Makes exchanges of one method, for all clients."""

    def begin(self, presented: Presented) -> Exchange:
        """Begin the authentication of a client."""


class UnknownMethod(Exception):
    """A method that a channel names is not installed, or cannot be loaded; words for a person."""


def load(names: Iterable[str]) -> dict[str, AuthenticationMethod]:
    """Return authentication methods by name. Raises UnknownMethod."""
    installed = {one.name: one for one in entry_points(group=GROUP)}
    found: dict[str, AuthenticationMethod] = {}
    for name in names:
        if name not in installed:
            known = ", ".join(sorted(installed)) or "none"
            raise UnknownMethod(f"authentication method {name!r} is not installed (entry points of {GROUP}: {known})")
        try:
            found[name] = installed[name].load()()
        except Exception as error:
            raise UnknownMethod(
                f"authentication method {name!r} ({installed[name].value}) cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    return found
