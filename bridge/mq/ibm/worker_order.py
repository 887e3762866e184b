"""Order between workers: publishers wait for the subscriber after a lost connection, and for passes of the browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: Seconds that a publisher waits for the end of a pass. A pass is longer only if applications fill the transmission queue
#: faster than the bridge reads it.
LONGEST_PASS = 5.0
#: Seconds after the last commit of a publisher from which on the browser waits in MQGET; before, it polls.
QUIET = 1.0
#: Seconds between the passes of a browser that polls.
LEAST_PAUSE, POLL_INTERVAL = 0.001, 0.005


class SubscriptionBarrier:
    """Lets publishers wait, after a lost connection, until the subscriptions stand again. Callable on any thread.

    The subscriptions of clean sessions live as long as the connection that made them. After an outage of the queue manager,
    a publisher that reconnected first would publish messages that no connected client receives.
    """

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


class BrowsePasses:
    """Keeps the publications of a client in order while the browser reads from its cursor. Callable on any thread.

    A pass of the browser begins at the front of the queue (MQGMO_BROWSE_FIRST) and goes on from the cursor
    (MQGMO_BROWSE_NEXT) to the end. It does not see a message that is committed behind the cursor; the next pass does. If two
    units of work of one publisher were committed during one pass, the first of them behind the cursor, their order would be
    reversed. So a publisher commits once during a pass and then waits for the next one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        self._under_way = False
        #: A publisher waits for the next pass, or has committed since the present one began.
        self._wanted = False
        #: time.monotonic() of the last commit
        self._committed = 0.0

    def begin(self) -> None:
        """Begin a pass. Called before the MQGET that begins at the front."""
        with self._changed:
            self._number += 1
            self._under_way, self._wanted = True, False
            self._changed.notify_all()

    def end(self) -> None:
        """End a pass: the next MQGET begins another one."""
        with self._changed:
            self._under_way = False
            self._changed.notify_all()

    @property
    def quiet(self) -> bool:
        """Whether no publisher has committed for a while. Then the browser can wait in MQGET without holding one up."""
        return time.monotonic() - self._committed >= QUIET

    def rest(self) -> None:
        """Wait until the next pass is wanted, between LEAST_PAUSE and POLL_INTERVAL."""
        time.sleep(LEAST_PAUSE)
        with self._changed:
            self._changed.wait_for(lambda: self._wanted, POLL_INTERVAL - LEAST_PAUSE)

    def want(self, last: int) -> None:
        """Ask for another pass if a publisher has committed during the present one, of number `last`, already."""
        with self._changed:
            if self._number <= last:
                self._wanted = True
                self._changed.notify_all()

    def before_commit(self, last: int, is_given_up: Callable[[], bool]) -> None:
        """Wait until a publisher may commit that committed before during the pass of number `last`."""
        until = time.monotonic() + LONGEST_PASS
        with self._changed:
            while self._under_way and self._number <= last and not is_given_up() and time.monotonic() < until:
                self._changed.wait(0.25)

    def after_commit(self) -> int:
        """Note a commit; return the number of the present pass."""
        with self._changed:
            self._committed = time.monotonic()
            self._wanted = True
            self._changed.notify_all()
            return self._number
