"""Interfaces of authenticators and of authentication methods (MQTT 5 enhanced authentication).

Plug-ins are entry points of the groups `mqbridge.authenticators` and `mqbridge.authentication_methods`. Authenticators are
called with the `options` of the channel's YAML, methods without arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Protocol

import msgspec

from bridge.security.failed_connects import Attempt

AUTHENTICATOR_GROUP = "mqbridge.authenticators"
#: Why an attempt is rejected without checking its credentials.
OTHERS_FAILED = "too many other attempts of its user or network have failed meanwhile (failed_connects)"


class Certificate(msgspec.Struct, frozen=True):
    """Contents of a client's verified certificate."""

    #: distinguished name, most specific part first, in the format of IBM MQ: `CN=pump-7,OU=plant,O=Example`
    subject: str = ""
    #: Common Name
    common_name: str = ""
    #: Subject Alternative Names: DNS names, mail addresses and URIs
    alternative_names: tuple[str, ...] = ()
    #: distinguished name of the issuer, in the same format
    issuer: str = ""


class Presented(msgspec.Struct, frozen=True):
    """The credentials in CONNECT, and facts about the connection."""

    client_id: str
    user_name: str | None = None
    password: bytes | None = msgspec.field(default=None)
    #: None without a certificate
    certificate: Certificate | None = None
    #: IP address, without port, or "" on a Unix socket
    address: str = ""
    channel: str = ""
    #: counts failures, or None if failures are not counted
    attempt: Attempt | None = None

    def __repr__(self) -> str:
        """Omit the password: the result may be logged."""
        return f"Presented(client_id={self.client_id!r}, user_name={self.user_name!r}, address={self.address!r})"


class Authenticated(msgspec.Struct, frozen=True):
    """The result of a successful authentication."""

    #: "": no particular user; None: the user name of CONNECT, confirmed by the method
    user_name: str | None = None
    #: Authentication Data for the client in the final response (MQTT 5 enhanced authentication)
    data: bytes | None = None
    #: POSIX time at which the authentication expires and the connection is closed; None: never
    expires: float | None = None
    #: the client proved its identity; if False, its user name is blank or merely claimed
    verified: bool = True


class AuthenticationFailed(Exception):
    """The client is rejected. The message is for the log, is not sent to the client, and contains no secrets."""


class AuthenticatorUnavailable(Exception):
    """Authentication is not possible now: a file is unreadable or a directory does not answer. The message is for the log."""


class Authenticator(Protocol):
    """Authenticates clients with credentials of one kind."""

    def applies_to(self, presented: Presented) -> bool:
        """Return whether the client presented credentials of this kind, valid or not."""

    async def authenticate(self, presented: Presented) -> Authenticated:
        """Return the authenticated user. Must not block the event loop.

        Raises AuthenticationFailed or AuthenticatorUnavailable. The client is rejected in both cases.
        """


class MakesAuthenticator(Protocol):
    """The type of the group's entry points."""

    def __call__(self, options: Mapping[str, object]) -> Authenticator:
        """Create the authenticator of a channel. Raises ValueError, with a message for display, for invalid options."""


METHOD_GROUP = "mqbridge.authentication_methods"


class Challenge(msgspec.Struct, frozen=True):
    """Authentication Data that the client must respond to."""

    data: bytes | None = None


class Exchange(Protocol):
    """The server side of one authentication exchange."""

    async def respond(self, data: bytes | None) -> Challenge | Authenticated:
        """Process the client's Authentication Data, beginning with that of CONNECT. Raises AuthenticationFailed."""


class AuthenticationMethod(Protocol):
    """Creates the exchanges of one method, for all clients."""

    def begin(self, presented: Presented) -> Exchange:
        """Start the authentication of a client."""


class UnknownMethod(Exception):
    """A configured method is not installed or cannot be loaded. The message is for display."""


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
