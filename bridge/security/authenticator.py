"""Interfaces of authenticators and of authentication methods (MQTT 5 enhanced authentication).

Plug-ins are entry points of the groups `mqbridge.authenticators` and `mqbridge.authentication_methods`. Authenticators are
called with the `options` of the channel's YAML, methods without arguments.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, TypeVar

import msgspec

from bridge.security.failed_connects import Attempt, network_of

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
    #: IP address, without port; "" on a Unix socket
    address: str = ""
    channel: str = ""
    #: counts failures; None if failures are not counted
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

    def judges(self, presented: Presented) -> bool:
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


T = TypeVar("T")

#: Maximum number of queued checks. A queued check costs a few kilobytes, and its client gives up after `connect_timeout`.
MAX_QUEUED: Final = 10_000
#: Maximum number of queued checks per network: a whole fleet may be behind one NAT gateway or load balancer.
MAX_QUEUED_PER_NETWORK: Final = 2_500


class _Check(msgspec.Struct, eq=False):
    """A queued check, and the future of its result."""

    run: Callable[[], Any]
    result: asyncio.Future[Any]
    attempt: Attempt | None
    started: bool = False


class VerificationQueue:
    """Runs checks in the threads of an executor.

    Networks take turns, so that a flood of wrong passwords from one network does not delay the clients of another. Within a
    network the newest check runs first: if clients arrive faster than they can be checked, the oldest ones are about to give
    up, and their checks would be wasted. Clients on Unix sockets count as one network that has no limit of its own.
    """

    def __init__(
        self,
        executor: Executor,
        threads: int,
        *,
        max_queued: int = MAX_QUEUED,
        max_queued_per_network: int = MAX_QUEUED_PER_NETWORK,
    ) -> None:
        """Create a queue that runs at most `threads` checks at a time."""
        self._executor = executor
        self._free = threads
        self._max_queued = max_queued
        self._max_queued_per_network = max_queued_per_network
        #: queued checks by network, oldest first; the network whose turn it is comes first
        self._queued: OrderedDict[str, list[_Check]] = OrderedDict()
        self._count = 0

    async def run(self, presented: Presented, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of `function`, which checks credentials of a client in a thread.

        A check that is cancelled while it is queued never runs. Raises AuthenticatorUnavailable in this case, if the queue
        is full, and if too many other attempts of the user or network have failed while the check was queued.
        """
        network = network_of(presented.address)
        if self._count >= self._max_queued:
            raise AuthenticatorUnavailable(f"{self._count} credential checks are queued")
        checks = self._queued.setdefault(network, [])
        if network and len(checks) >= self._max_queued_per_network:
            raise AuthenticatorUnavailable(f"{len(checks)} credential checks of {network} are queued")
        result_of_check = asyncio.get_running_loop().create_future()
        check = _Check(partial(function, *arguments), result_of_check, presented.attempt)
        if check.attempt is not None:
            check.attempt.queue()
        checks.append(check)
        self._count += 1
        self._start()
        try:
            result: T = await check.result
        except asyncio.CancelledError:
            if not check.started:
                self._withdraw(network, check)
                raise AuthenticatorUnavailable("credentials not checked in time: too many checks are queued") from None
            raise
        return result

    def _withdraw(self, network: str, check: _Check) -> None:
        """Remove a check from the queue, unless `_start` has just found that it is cancelled."""
        checks = self._queued.get(network, [])
        if check in checks:
            checks.remove(check)
            self._count -= 1
            if not checks:
                del self._queued[network]

    def _start(self) -> None:
        """Start as many queued checks as there are free threads."""
        while self._free and self._queued:
            network, checks = self._queued.popitem(last=False)
            check = checks.pop()
            self._count -= 1
            if checks:
                self._queued[network] = checks
            if check.result.done():
                continue  # cancelled
            if check.attempt is not None and not check.attempt.start():
                check.result.set_exception(AuthenticatorUnavailable(OTHERS_FAILED))
                continue
            self._free -= 1
            check.started = True
            self._executor.submit(check.run).add_done_callback(partial(self._report, check))

    def _report(self, check: _Check, future: Future[Any]) -> None:
        """Pass the result of a check to the event loop. Runs in the thread of the check."""
        with suppress(RuntimeError):  # the event loop is closed: the bridge has stopped
            check.result.get_loop().call_soon_threadsafe(self._finished, check, future)

    def _finished(self, check: _Check, future: Future[Any]) -> None:
        self._free += 1
        if not check.result.done():  # otherwise the client has disconnected
            if future.cancelled():
                check.result.cancel()
            elif (error := future.exception()) is not None:
                check.result.set_exception(error)
            else:
                check.result.set_result(future.result())
        self._start()
