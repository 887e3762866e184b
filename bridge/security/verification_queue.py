"""A queue for slow credential checks (a hash, an LDAP bind), which run in threads and take turns between networks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from bridge.security.authenticator import OTHERS_FAILED, Attempt, AuthenticatorUnavailable, Presented, network_of

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
    network, the newest check runs first. If clients arrive faster than the threads can check them, the oldest ones are about
    to time out, so their checks would be useless. Clients on Unix sockets count as one network without a limit of its own.
    """

    def __init__(self, executor: Executor, threads: int) -> None:
        """Create a queue that runs at most `threads` checks at a time."""
        self._executor = executor
        self._free = threads
        #: queued checks by network, oldest first. The network whose turn is next comes first
        self._queued: OrderedDict[str, list[_Check]] = OrderedDict()
        self._count = 0

    async def run(self, presented: Presented, function: Callable[..., T], *arguments: object) -> T:
        """Return the result of `function`, which checks credentials of a client in a thread.

        A check that is cancelled while it is queued never runs. Raises AuthenticatorUnavailable in this case, if the queue
        is full, and if too many other attempts of the user or network have failed while the check was queued.
        """
        network = network_of(presented.address)
        if self._count >= MAX_QUEUED:
            raise AuthenticatorUnavailable(f"{self._count} credential checks are queued")
        checks = self._queued.setdefault(network, [])
        if network and len(checks) >= MAX_QUEUED_PER_NETWORK:
            raise AuthenticatorUnavailable(f"{len(checks)} credential checks of {network} are queued")
        future = asyncio.get_running_loop().create_future()
        check = _Check(partial(function, *arguments), future, presented.attempt)
        if check.attempt is not None:
            check.attempt.queue()
        checks.append(check)
        self._count += 1
        self._start()
        try:
            outcome: T = await check.result
        except asyncio.CancelledError:
            if not check.started:
                self._withdraw(network, check)
                raise AuthenticatorUnavailable("credentials not checked in time: too many checks are queued") from None
            raise
        return outcome

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
