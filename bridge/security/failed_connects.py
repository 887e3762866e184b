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
    """Return the network that an IP address counts for: the address for IPv4 (including IPv4-mapped), the /64 for IPv6.

    Other values, such as "" for a Unix socket, are returned unchanged.
    """
    if ":" not in address:
        return address
    there = ipaddress.IPv6Address(address.partition("%")[0])
    if there.ipv4_mapped is not None:
        return str(there.ipv4_mapped)
    return str(ipaddress.ip_network((there, 64), strict=False))


#: Seconds after the last failure until failures are forgotten.
PERIOD: Final = 60.0
#: Ratio of failures without delay per network to those per user: a whole plant may share one address.
USERS_OF_A_NETWORK: Final = 10
#: Maximum number of remembered counters. The oldest are forgotten.
_REMEMBERED: Final = 20_000


class _Slate(msgspec.Struct):
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

    def __init__(self, clock: Callable[[], float], limits: tuple[tuple[_Slate, int], ...], delay: float) -> None:
        """Start an attempt. `limits` contains counters with the number of failures allowed without delay."""
        self._clock = clock
        self._limits = limits
        self._ended = self._pending = False
        #: seconds to wait before checking the credentials
        self.delay = delay
        for slate, _ in limits:
            slate.attempts += 1
        if delay:
            self._count(1)

    def start(self) -> bool:
        """Note that the check begins and return whether it is allowed.

        It is not allowed if too many other attempts have failed since the attempt began, unless it was delayed for such
        failures. Otherwise many passwords could be tried concurrently before the first failure counts.
        """
        if self._ended or self._pending:
            return True
        if not self.delay and any(slate.failed and slate.failed + slate.pending >= most for slate, most in self._limits):
            return False
        self._count(1)
        return True

    def queue(self) -> None:
        """Note that the attempt is queued and will not be checked before another call of `start`."""
        if self._pending:
            self._count(-1)

    def _count(self, change: int) -> None:
        self._pending = change > 0
        for slate, _ in self._limits:
            slate.pending += change

    def end(self, succeeded: bool) -> None:
        """Record the result. Further calls are ignored."""
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
        #: counters by network, and by network and user
        self._slates: dict[tuple[str, str | None], _Slate] = {}

    def begin(self, address: str, user: str, free: int, longest: float) -> Attempt | None:
        """Start an attempt. Return None if too many attempts are delayed already, so that it must be rejected.

        `user` is the claimed user. After `free` failures of a user, further attempts are delayed by 1 s, 2 s, 4 s and so on,
        but at most `longest` seconds.
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
