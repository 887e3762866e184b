"""Users of the operating system with privileges towards MQ (IBM MQ, "Authority to administer IBM MQ")."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import time
from collections.abc import Callable
from typing import Final

#: The user and the group that may do everything.
ADMINISTRATORS = "mqm"
#: Who has no name, and the group that everybody is a member of.
NOBODY = "nobody"
#: Seconds, and users, for which an answer is remembered: to ask the operating system may take long.
_REMEMBERED_FOR: Final = 60.0
_REMEMBERED: Final = 10_000


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


class PrivilegedUsers:
    """Who may do everything: `mqm`, the members of that group, and who runs the bridge."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._own = user_of_this_process()
        self._known: dict[str, bool] = {}
        self._until = 0.0

    def include(self, user: str) -> bool:
        """Return whether a user is one of them; `user` may be cut to the 12 bytes of MQMD.UserIdentifier."""
        now = self._clock()
        if now >= self._until or len(self._known) >= _REMEMBERED:
            self._known.clear()
            self._until = now + _REMEMBERED_FOR
        if user not in self._known:
            self._known[user] = self._ask(user)
        return self._known[user]

    def _ask(self, user: str) -> bool:
        if user in (ADMINISTRATORS, self._own, self._own[:12]):
            return True
        try:
            members = grp.getgrnam(ADMINISTRATORS).gr_mem
        except KeyError:
            return False
        return any(member[:12] == user for member in members) or ADMINISTRATORS in groups_of(user)
