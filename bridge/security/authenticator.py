"""The interfaces of authenticators and of authentication methods (MQTT 5 enhanced authentication).

Plug-ins are entry points of the groups `mqbridge.authenticators` and `mqbridge.authentication_methods`. Each is called
with the `options` of the channel's YAML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Protocol

import msgspec

from bridge.security.failed_connects import Attempt

AUTHENTICATOR_GROUP = "mqbridge.authenticators"
#: Why an attempt is not judged, where that is so.
OTHERS_FAILED = "too many other attempts of its user or network have failed meanwhile (failed_connects)"


class Certificate(msgspec.Struct, frozen=True):
    """What the verified certificate of a client says of its owner."""

    #: the whole distinguished name, the most specific part first, as MQ writes it: `CN=pump-7,OU=plant,O=Example`
    subject: str = ""
    #: Common Name
    common_name: str = ""
    #: Subject Alternative Names: of DNS, mail addresses, URIs
    alternative_names: tuple[str, ...] = ()
    #: the distinguished name of who issued it, in the same form
    issuer: str = ""


class Presented(msgspec.Struct, frozen=True):
    """What a client has shown at CONNECT, and what is known of its connection."""

    client_id: str
    user_name: str | None = None
    password: bytes | None = msgspec.field(default=None)
    #: None where it has shown none
    certificate: Certificate | None = None
    #: IP address, without port; "" on a Unix socket
    address: str = ""
    channel: str = ""
    #: counts failures; None if nobody does
    attempt: Attempt | None = None

    def __repr__(self) -> str:
        """Return what may stand in a log: no password."""
        return f"Presented(client_id={self.client_id!r}, user_name={self.user_name!r}, address={self.address!r})"


class Authenticated(msgspec.Struct, frozen=True):
    """The client is a user."""

    #: "": nobody in particular; None: the one of its CONNECT, for whom the method vouches
    user_name: str | None = None
    #: Authentication Data that it is told at the end (enhanced authentication of MQTT 5)
    data: bytes | None = None
    #: POSIX time when this ends to be true, and the connection with it; None: never
    expires: float | None = None
    #: the client proved this; if False, its user name is blank or merely claimed
    verified: bool = True


class AuthenticationFailed(Exception):
    """The client is not let in; words for the log, of which the client is told nothing. They hold no secret."""


class AuthenticatorUnavailable(Exception):
    """Who the client is cannot be found out now: a file cannot be read, a directory does not answer; words for the log."""


class Authenticator(Protocol):
    """Finds out who a client is by credentials of one kind."""

    def judges(self, presented: Presented) -> bool:
        """Return whether the client has presented credentials of this kind, however wrong they are."""

    async def authenticate(self, presented: Presented) -> Authenticated:
        """Return who the client is. Nothing here may hold up the event loop.

        Raises AuthenticationFailed or AuthenticatorUnavailable; either way the client is refused.
        """


class MakesAuthenticator(Protocol):
    """What an entry point of the group names."""

    def __call__(self, options: Mapping[str, object]) -> Authenticator:
        """Make the authenticator of a channel. Raises ValueError with words for a person where an option is wrong."""


METHOD_GROUP = "mqbridge.authentication_methods"


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
    installed = {one.name: one for one in entry_points(group=METHOD_GROUP)}
    found: dict[str, AuthenticationMethod] = {}
    for name in names:
        if name not in installed:
            known = ", ".join(sorted(installed)) or "none"
            raise UnknownMethod(f"authentication method {name!r} is not installed (entry points of {METHOD_GROUP}: {known})")
        try:
            found[name] = installed[name].load()()
        except Exception as error:
            raise UnknownMethod(
                f"authentication method {name!r} ({installed[name].value}) cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    return found
