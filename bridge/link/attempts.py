"""Attempts to connect to the addresses of a broker, with exponential back-off, and the wake-up of a network thread."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence

from bridge.config.values import endpoint
from bridge.link.state import LinkLost, LinkRefused

#: First and longest pause between connection attempts, in seconds. The pause doubles. Jitter lengthens it by up to 50 %.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
#: The shortest pause, in seconds, after a refusal that is probably permanent, such as a wrong password.
REFUSED_PAUSE = 10.0


class Attempts:
    """The attempts to connect since the last settled connection. `reset` may be called on any thread."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._addresses = addresses
        #: index of the current address
        self.index = 0
        self._number = 0
        #: rounds of attempts since the back-off began
        self._rounds = 0
        #: the shortest pause that errors of this round require, in seconds
        self._shortest = 0.0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the current address."""
        return self._addresses[self.index]

    @property
    def place(self) -> str:
        """The current address for display."""
        return endpoint(*self.address)

    @property
    def number(self) -> int:
        """The number of the last attempt at the current address."""
        return (self._number - 1) // len(self._addresses) + 1

    def failed(self, error: LinkLost) -> float:
        """Return the seconds until the next attempt, 0.0 unless all addresses were tried."""
        self._number += 1
        if isinstance(error, LinkRefused):
            self._shortest = REFUSED_PAUSE
        if self._number % len(self._addresses):
            return 0.0
        exponential = min(FIRST_PAUSE * 2.0 ** min(self._rounds, 30), LONGEST_PAUSE)
        self._rounds += 1
        shortest, self._shortest = self._shortest, 0.0
        return max(exponential, shortest) * random.uniform(1, 1.5)

    def next_address(self) -> None:
        """Select the next address."""
        self.index = (self.index + 1) % len(self._addresses)

    def settled(self) -> None:
        """Forget the failed attempts, because a connection lasted."""
        self._rounds = self._number = 0

    def reset(self) -> None:
        """Restart the back-off with the shortest pause."""
        self._rounds = 0


class WakeUp:
    """Wakes a thread that waits for `listener` in a selector. `ring` is called on any thread."""

    def __init__(self) -> None:
        self.listener, self._sender = socket.socketpair()
        self.listener.setblocking(False)
        self._sender.setblocking(False)
        self._rung = False

    def ring(self) -> None:
        """Wake the thread."""
        if not self._rung:
            self._rung = True
            # If the socket is full, a wake-up is already pending. If it is closed, the thread has ended.
            with contextlib.suppress(OSError):
                self._sender.send(b"\0")

    def answer(self) -> None:
        """Clear the wake-up, on the thread that it woke."""
        with contextlib.suppress(BlockingIOError):
            self.listener.recv(4096)
        self._rung = False

    def close(self) -> None:
        """Close both ends."""
        self.listener.close()
        self._sender.close()
