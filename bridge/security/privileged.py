"""Users of the operating system with privileges towards MQ (IBM MQ, "Authority to administer IBM MQ")."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import pwd
import threading
import time
from collections.abc import Callable
from typing import Final

from bridge.telemetry.identity import user_identifier

#: The user and the group that may do everything.
ADMINISTRATORS = "mqm"
#: Who has no name, and the group that everybody is a member of.
NOBODY = "nobody"
#: Seconds for which it is remembered who is in the group of administrators.
_ASKED_EVERY: Final = 60.0

log = logging.getLogger(__name__)


def user_of_this_process() -> str:
    """Return the name of the user that runs the bridge, or the user's number where there is no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def groups_of(user: str) -> frozenset[str]:
    """Return the groups of a user: those of the operating system, where that knows the user, and `nobody`."""
    found = {NOBODY}
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, ValueError):  # ValueError: a name with a NUL
        numbers = []
    for number in numbers:
        with contextlib.suppress(KeyError):
            found.add(grp.getgrgid(number).gr_name)
    return frozenset(found)


def members_of_administrators() -> frozenset[str]:
    """Return the members of group `mqm`, also those whose first group it is."""
    try:
        group = grp.getgrnam(ADMINISTRATORS)
    except KeyError:
        return frozenset()
    return frozenset([*group.gr_mem, *(one.pw_name for one in pwd.getpwall() if one.pw_gid == group.gr_gid)])


def as_mq_has_it(user: str) -> str:
    """Return a user as MQMD.UserIdentifier carries it, by which MQ compares: 12 bytes at most, without blanks at the end."""
    # A name of the operating system may be no text in UTF-8.
    return user_identifier("", user.encode("utf-8", "replace").decode()).decode()


class PrivilegedUsers:
    """Who may do everything: `mqm`, the members of that group, who runs the bridge, and those that are named.

    Members are those that the operating system lists. It may take long to ask it, so a thread does, once a minute where
    somebody wants to know; until it has the answer the one before counts.
    """

    def __init__(
        self,
        *named: str,
        clock: Callable[[], float] = time.monotonic,
        members: Callable[[], frozenset[str]] = members_of_administrators,
    ) -> None:
        """Ask the operating system for the first time."""
        self._clock = clock
        self._members_now = members
        self._named = frozenset(as_mq_has_it(one) for one in (ADMINISTRATORS, user_of_this_process(), *named) if one)
        self._members: frozenset[str] = frozenset()
        self._asks = threading.Lock()
        self._asks.acquire()
        self._ask()

    def include(self, user: str) -> bool:
        """Return whether a user is one of them; `user` may be cut to the 12 bytes of MQMD.UserIdentifier."""
        if self._clock() >= self._until and self._asks.acquire(blocking=False):
            threading.Thread(target=self._ask, name="privileged users", daemon=True).start()
        known = as_mq_has_it(user)
        return known in self._named or known in self._members

    def _ask(self) -> None:
        try:
            self._members = frozenset(map(as_mq_has_it, self._members_now()))
        except OSError as error:
            log.error("MQB1207E the operating system does not say who is in group %s: %s", ADMINISTRATORS, error)
        finally:
            self._until = self._clock() + _ASKED_EVERY
            self._asks.release()
