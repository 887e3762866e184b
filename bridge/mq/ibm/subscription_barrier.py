"""Order between workers after a loss: nobody publishes before the subscriptions stand again.

The subscriptions of clean sessions live as long as the connection that made them. When the queue manager was away, the
publications of a publisher that is back first would be acknowledged, and never come to the clients that are connected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class SubscriptionBarrier:
    """Counts losses, and up to which of them the subscriptions are known to stand. Callable on any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._losses = 0
        self._assured = 0

    @property
    def losses(self) -> int:
        """Return the number of losses so far. Read it before the look that `assure` tells of."""
        with self._changed:
            return self._losses

    def lost(self) -> int:
        """Count a loss; returns its number."""
        with self._changed:
            self._losses += 1
            return self._losses

    def assure(self, number: int) -> None:
        """Tell that the subscriptions stand as they did before the loss of that number."""
        with self._changed:
            self._assured = max(self._assured, number)
            self._changed.notify_all()

    def wait(self, number: int, is_given_up: Callable[[], bool]) -> bool:
        """Wait until the subscriptions stand again after a loss; False where that is given up."""
        with self._changed:
            while self._assured < number:
                if is_given_up():
                    return False
                self._changed.wait(0.25)
            return True
