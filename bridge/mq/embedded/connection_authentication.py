"""Connection authentication: whether applications over TCP have to show who they are (IBM MQ, AUTHINFO of type IDPWOS).

By what they show it, a password file or another method, the listener's configuration says; where it says nothing, nobody is
asked. The object says who may show nothing, and is `nobody` then: CHCKCLNT, "check clients".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

#: The one object, and the kind of the row that keeps what is altered of it.
NAME: Final = "SYSTEM.DEFAULT.AUTHINFO.IDPWOS"
AUTHINFO: Final = "AUTHINFO"
#: CHCKCLNT: nobody is asked; whoever gives a password has to give the right one; privileged users have to; all have to.
NONE, OPTIONAL, REQDADM, REQUIRED = CHECKS = ("NONE", "OPTIONAL", "REQDADM", "REQUIRED")


class ConnectionAuthentication:
    """The object as it is now."""

    def __init__(self, privileged: Callable[[str], bool]) -> None:
        """Begin; `privileged` says whether a user is privileged."""
        self.is_privileged: Final = privileged
        #: whether the listener has anything by which applications show who they are
        self.asks = False
        self.check_clients = REQUIRED
        self.description = ""

    @property
    def in_force(self) -> str:
        """Return CHCKCLNT as it is kept to."""
        return self.check_clients if self.asks else NONE

    def restore(self, values: Mapping[str, str]) -> None:
        """Take over what was altered, as MQSC has it."""
        self.check_clients, self.description = values["CHCKCLNT"], values["DESCR"]

    def may_show_nothing(self, user: str) -> bool:
        """Return whether who says that it is a user, and gives no password, is let in as `nobody`."""
        if self.in_force == REQDADM:
            return not self.is_privileged(user)
        return self.in_force in (NONE, OPTIONAL)
