"""Operating system users with MQ administration privileges (IBM MQ, "Authority to administer IBM MQ")."""

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

#: The user and the group with all privileges.
ADMINISTRATORS = "mqm"
#: The unnamed user, and the group that every user belongs to.
NOBODY = "nobody"
#: Seconds for which the members of the administrators' group are cached.
_REFRESH_INTERVAL: Final = 60.0

log = logging.getLogger(__name__)


def user_of_this_process() -> str:
    """Return the name of the user that runs the bridge, or the user ID if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def groups_of(user: str) -> frozenset[str]:
    """Return the operating system groups of a user, if known, and `nobody`."""
    names = {NOBODY}
    try:
        numbers = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except (KeyError, ValueError):  # ValueError: the name contains a NUL
        numbers = []
    for number in numbers:
        with contextlib.suppress(KeyError):
            names.add(grp.getgrgid(number).gr_name)
    return frozenset(names)


def members_of_administrators() -> frozenset[str]:
    """Return the members of group `mqm`, including users whose primary group it is."""
    try:
        group = grp.getgrnam(ADMINISTRATORS)
    except KeyError:
        return frozenset()
    return frozenset(
        [*group.gr_mem, *(account.pw_name for account in pwd.getpwall() if account.pw_gid == group.gr_gid)]
    )


def as_mq_has_it(user: str) -> str:
    """Return a user as in MQMD.UserIdentifier, which IBM MQ compares: at most 12 bytes, without trailing blanks."""
    # Operating system names may not be valid UTF-8.
    return user_identifier("", user.encode("utf-8", "replace").decode()).decode()


class PrivilegedUsers:
    """Users with all privileges: `mqm`, the members of that group, the bridge's own user, and configured users.

    Asking the operating system for the members may take long. So a thread does that, at most once a minute and on demand. The
    previous members apply until the thread has finished.
    """

    def __init__(
        self,
        *names: str,
        clock: Callable[[], float] = time.monotonic,
        members: Callable[[], frozenset[str]] = members_of_administrators,
    ) -> None:
        """Read the members for the first time. This may block."""
        self._clock = clock
        self._read_members = members
        self._named = frozenset(as_mq_has_it(name) for name in (ADMINISTRATORS, user_of_this_process(), *names) if name)
        self._members: frozenset[str] = frozenset()
        self._asking = threading.Lock()
        self._asking.acquire()
        self._refresh()

    def include(self, user: str) -> bool:
        """Return whether a user is privileged. `user` may be truncated to the 12 bytes of MQMD.UserIdentifier."""
        if self._clock() >= self._until and self._asking.acquire(blocking=False):
            threading.Thread(target=self._refresh, name="privileged users", daemon=True).start()
        name = as_mq_has_it(user)
        return name in self._named or name in self._members

    def _refresh(self) -> None:
        try:
            self._members = frozenset(map(as_mq_has_it, self._read_members()))
        except OSError as error:
            log.error("MQB1207E listing the members of group %s failed: %s", ADMINISTRATORS, error)
        finally:
            self._until = self._clock() + _REFRESH_INTERVAL
            self._asking.release()
