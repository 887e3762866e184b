"""The limit of messages that were sent to a client and are still on the transmission queue (limits.removal_backlog)."""

from __future__ import annotations

import sys
from typing import Final

#: Seconds from the submission of a removal to its commit above which the limit is halved, and below which it is doubled.
LONG_LAG: Final = 1.0
SHORT_LAG: Final = 0.3
#: Seconds between changes of the limit.
INTERVAL: Final = 0.5
#: The limit is not lowered below this number of messages.
MIN_LIMIT: Final = 8


class RemovalLimit:
    """`limits.removal_backlog`, lower while removals lag. All clients share it.

    Removals of all clients share the time of the queue manager with deliveries. If removals lag, clients with many messages
    must wait for them. A client with few messages receives its messages at once.
    """

    __slots__ = ("_due", "configured", "value")

    def __init__(self, configured: int = sys.maxsize) -> None:
        #: limits.removal_backlog
        self.configured = configured
        #: maximum number of messages of a client that may be unacknowledged or unremoved
        self.value = configured
        self._due = 0.0

    def configure(self, configured: int) -> None:
        """Apply limits.removal_backlog."""
        self.configured = self.value = configured

    def note_lag(self, seconds: float, now: float) -> None:
        """Adapt the limit to the lag of a removal that was committed at `now`."""
        if now < self._due:
            return
        if seconds > LONG_LAG:
            lowered = max(self.value // 2, min(MIN_LIMIT, self.configured))
        elif seconds < SHORT_LAG:
            lowered = min(self.value * 2, self.configured)
        else:
            return
        self.value, self._due = lowered, now + INTERVAL


#: For queue managers whose removals keep up with acknowledgements.
NO_LIMIT: Final = RemovalLimit()
