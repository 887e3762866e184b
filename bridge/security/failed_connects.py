"""Delays after failed authentications, by network and by user, so that passwords cannot be tried by the thousand.

The delay precedes the check, for correct and wrong credentials alike. If only rejections were delayed, an attacker
would not need to wait for them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec


@lru_cache(10_000)
def network_of(address: str) -> str:
    """Return what an IP address is counted as: IPv4 as it is, also where it is mapped into IPv6; of IPv6 its /64.

    What is no IP address, such as "" on a Unix socket, is returned as it is.
    """
    if ":" not in address:
        return address
    there = ipaddress.IPv6Address(address.partition("%")[0])
    if there.ipv4_mapped is not None:
        return str(there.ipv4_mapped)
    return str(ipaddress.ip_network((there, 64), strict=False))


#: Seconds after its last failure in which somebody has a clean slate again.
PERIOD: Final = 60.0
#: So many times as many failures as of one user are free of one network: behind one address there may be a whole plant.
USERS_OF_A_NETWORK: Final = 10
#: Slates remembered, at most; the ones begun first are forgotten.
_REMEMBERED: Final = 20_000


class _Slate(msgspec.Struct):
    """The failures of a network, or of those there that say they are one user."""

    last: float = 0.0
    failed: int = 0
    #: attempts that have not ended
    attempts: int = 0
    #: those of them that are being judged, or wait for their delay to pass; not those that are queued
    pending: int = 0
    #: when the next attempt is judged, at the earliest
    next_at: float = 0.0


class Attempt:
    """One attempt to show who somebody is. It counts as failed unless it is said to have succeeded."""

    __slots__ = ("_clock", "_ended", "_limits", "_pending", "delay")

    def __init__(self, clock: Callable[[], float], limits: tuple[tuple[_Slate, int], ...], delay: float) -> None:
        """Begin; `limits` has slates, each with the number of failures that cause no delay."""
        self._clock = clock
        self._limits = limits
        self._ended = self._pending = False
        #: seconds to wait before it is judged
        self.delay = delay
        for slate, _ in limits:
            slate.attempts += 1
        if delay:
            self._count(1)

    def start(self) -> bool:
        """Note that the attempt is judged from now on; return whether it may be.

        It may not if too many others have failed since it began, unless it was delayed for such failures. Otherwise many
        passwords could be tried at a time before the first failure counts.
        """
        if self._ended or self._pending:
            return True
        if not self.delay and any(slate.failed and slate.failed + slate.pending >= most for slate, most in self._limits):
            return False
        self._count(1)
        return True

    def queue(self) -> None:
        """Note that the attempt is queued, and not judged before `start` is called again."""
        if self._pending:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._pending = change > 0
        for slate, _ in self._limits:
            slate.pending += change

    def end(self, succeeded: bool) -> None:
        """Count the attempt; only the first call counts."""
        if self._ended:
            return
        self._ended = True
        self.queue()
        now = self._clock()
        for slate, _ in self._limits:
            slate.attempts -= 1
            if not succeeded:
                slate.failed += 1
                slate.last = now


class FailedConnects:
    """Counts failed attempts by network and user."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: by network, and by network and user
        self._slates: dict[tuple[str, str | None], _Slate] = {}

    def begin(self, address: str, user: str, free: int, longest: float) -> Attempt | None:
        """Begin to judge an attempt; None: too many of them wait already, and it is refused without being judged.

        `user` is whom it says it is; `free` is how many failures of one user there may be before the next attempt waits,
        for 1 s, 2 s, 4 s and so on; none waits for longer than `longest`.
        """
        network, now = network_of(address), self._clock()
        limits = (
            (self._slate((network, user), now), free),
            (self._slate((network, None), now), free * USERS_OF_A_NETWORK),
        )
        delay, late_ones = 0.0, []
        for slate, most in limits:
            late = slate.failed + slate.pending - most
            if not slate.failed or late < 0:
                continue
            ahead = max(slate.next_at - now, 0.0)
            if ahead >= longest:
                return None
            delay = max(delay, min(ahead + 2.0 ** min(late, 20), longest))
            late_ones.append(slate)
        for slate in late_ones:
            slate.next_at = now + delay
        return Attempt(self._clock, limits, delay)

    def _slate(self, key: tuple[str, str | None], now: float) -> _Slate:
        slate = self._slates.pop(key, None)
        if slate is None or (now - slate.last > PERIOD and not slate.attempts):
            slate = _Slate()
        while len(self._slates) >= _REMEMBERED:
            del self._slates[next(iter(self._slates))]
        self._slates[key] = slate
        return slate
