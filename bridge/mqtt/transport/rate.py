"""How much one client may send: what it has sent too much it makes up for by not being read for a while."""

from __future__ import annotations

#: Seconds' worth that a client may send at once, when it has been silent before.
BURST = 2.0


class Rate:
    """A budget that grows with time, and may be overdrawn (a token bucket)."""

    __slots__ = ("_at", "_left", "per_second")

    def __init__(self, per_second: float, now: float) -> None:
        self.per_second = per_second
        self._left = per_second * BURST
        self._at = now

    def spend(self, amount: float, now: float) -> float:
        """Take an amount; return after how many seconds the budget is in credit again, 0.0 where it is."""
        full = self.per_second * BURST
        self._left = min(full, self._left + (now - self._at) * self.per_second) - amount
        self._at = now
        return 0.0 if self._left >= 0 else -self._left / self.per_second
