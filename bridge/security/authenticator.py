"""Interfaces of authenticators and of authentication methods (MQTT 5 enhanced authentication), and delays after failures.

Plug-ins are entry points of the groups `mqbridge.authenticators` and `mqbridge.authentication_methods`. Authenticators are
called with the `options` of the channel's YAML, methods without arguments.

After failed authentications of a network or user, further attempts are delayed, so that passwords cannot be tried by the
thousand. The delay precedes the check, for correct and wrong credentials alike. If only rejections were delayed, an attacker
would not need to wait for them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

import msgspec


@lru_cache(10_000)
def network_of(address: str) -> str:
    """Return the network that an IP address counts for: the address for IPv4 (including IPv4-mapped), the /64 for IPv6.

    Other values, such as "" for a Unix socket, are returned unchanged.
    """
    if ":" not in address:
        return address
    ip_address = ipaddress.IPv6Address(address.partition("%")[0])
    if ip_address.ipv4_mapped is not None:
        return str(ip_address.ipv4_mapped)
    return str(ipaddress.ip_network((ip_address, 64), strict=False))


#: Seconds after the last failure until failures are forgotten.
PERIOD: Final = 60.0
#: Ratio of failures without delay per network to those per user: a whole plant may share one address.
USERS_OF_A_NETWORK: Final = 10
#: Maximum number of remembered counters. The oldest are forgotten.
_REMEMBERED: Final = 20_000


class _FailureCounters(msgspec.Struct):
    """Failure counters of a network, or of a claimed user in a network."""

    last: float = 0.0
    failed: int = 0
    #: attempts in progress
    attempts: int = 0
    #: attempts being checked or delayed, but not queued ones
    pending: int = 0
    #: earliest time of the next check
    next_at: float = 0.0


class Attempt:
    """One authentication attempt. It counts as failed unless it is reported as successful."""

    __slots__ = ("_clock", "_ended", "_limits", "_pending", "delay")

    def __init__(
        self, clock: Callable[[], float], limits: tuple[tuple[_FailureCounters, int], ...], delay: float
    ) -> None:
        """Start an attempt. `limits` contains counters with the number of failures allowed without delay."""
        self._clock = clock
        self._limits = limits
        self._ended = self._pending = False
        #: seconds to wait before checking the credentials
        self.delay = delay
        for counters, _ in limits:
            counters.attempts += 1
        if delay:
            self._count(1)

    def start(self) -> bool:
        """Note that the check begins and return whether it is allowed.

        It is not allowed if too many other attempts have failed since the attempt began, unless it was delayed for such
        failures. Otherwise many passwords could be tried concurrently before the first failure counts.
        """
        if self._ended or self._pending:
            return True
        if not self.delay and any(
            counters.failed and counters.failed + counters.pending >= allowed for counters, allowed in self._limits
        ):
            return False
        self._count(1)
        return True

    def queue(self) -> None:
        """Note that the attempt is queued and will not be checked before another call of `start`."""
        if self._pending:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._pending = change > 0
        for counters, _ in self._limits:
            counters.pending += change

    def end(self, succeeded: bool) -> None:
        """Record the result. Further calls are ignored."""
        if self._ended:
            return
        self._ended = True
        self.queue()
        now = self._clock()
        for counters, _ in self._limits:
            counters.attempts -= 1
            if not succeeded:
                counters.failed += 1
                counters.last = now


class FailedConnects:
    """Counts failed attempts by network and user."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: counters by network, and by network and user
        self._counters: dict[tuple[str, str | None], _FailureCounters] = {}

    def begin(self, address: str, user: str, free: int, max_delay: float) -> Attempt | None:
        """Start an attempt. Return None if too many attempts are delayed already, so that it must be rejected.

        `user` is the claimed user. After `free` failures of a user, further attempts are delayed by 1 s, 2 s, 4 s and so on,
        but at most `max_delay` seconds.
        """
        network, now = network_of(address), self._clock()
        limits = (
            (self._counters_of((network, user), now), free),
            (self._counters_of((network, None), now), free * USERS_OF_A_NETWORK),
        )
        delay, delayed = 0.0, []
        for counters, allowed in limits:
            excess = counters.failed + counters.pending - allowed
            if not counters.failed or excess < 0:
                continue
            wait = max(counters.next_at - now, 0.0)
            if wait >= max_delay:
                return None
            delay = max(delay, min(wait + 2.0 ** min(excess, 20), max_delay))
            delayed.append(counters)
        for counters in delayed:
            counters.next_at = now + delay
        return Attempt(self._clock, limits, delay)

    def _counters_of(self, key: tuple[str, str | None], now: float) -> _FailureCounters:
        counters = self._counters.pop(key, None)
        if counters is None or (now - counters.last > PERIOD and not counters.attempts):
            counters = _FailureCounters()
        while len(self._counters) >= _REMEMBERED:
            del self._counters[next(iter(self._counters))]
        self._counters[key] = counters
        return counters


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


class UnknownPlugin(Exception):
    """A configured plug-in is not installed or cannot be created. The message is for display."""


#: Groups of entry points by the kind of plug-in.
GROUPS: Final = {
    "authenticator": "mqbridge.authenticators",
    "authentication method": "mqbridge.authentication_methods",
}


def plugin(kind: str, name: str, *arguments: object) -> Any:
    """Call the entry point of a plug-in with the arguments, and return the result. Raises UnknownPlugin."""
    installed = {entry_point.name: entry_point for entry_point in entry_points(group=GROUPS[kind])}
    if name not in installed:
        names = ", ".join(sorted(installed)) or "none"
        raise UnknownPlugin(f"{kind} {name!r} is not installed (entry points of {GROUPS[kind]}: {names})")
    try:
        return installed[name].load()(*arguments)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise UnknownPlugin(f"{kind} {name!r} ({installed[name].value}) cannot be loaded: {cause}") from error
