"""Who has logged in to the console: kept in memory, until they log out, are idle, or their time is over."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Final

import msgspec

from bridge.console.tokens import Right, Token
from bridge.security.authenticators import ChannelAuthentication

#: Seconds without a request by hand after which a login ends, and seconds after which it ends in any case.
IDLE: Final = 30 * 60.0
LONGEST: Final = 12 * 3600.0
#: Logins at a time, all and of one name; with one more, the one of them that was idle longest ends.
MOST, MOST_OF_ONE = 100, 10


class Login(msgspec.Struct, eq=False):
    """Somebody who has logged in."""

    name: str
    right: Right
    #: that each form of it carries
    csrf_token: str
    began: float
    #: when the last request came that somebody made by hand
    seen: float
    #: when what it has shown ends to be true, by the clock of the logins; None: never
    until: float | None = None
    #: by which it has logged in; None: by user and password
    token: Token | None = None
    #: by which user and password were judged
    authentication: ChannelAuthentication | None = None
    #: what the next page says once: whether it went well, and lines
    said: tuple[bool, list[str]] | None = None


class Logins:
    """All logins, by the digest of the identifier that a cookie holds. `clock` is a monotonic one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logins: dict[bytes, Login] = {}

    def begin(
        self,
        name: str,
        right: Right,
        *,
        token: Token | None = None,
        authentication: ChannelAuthentication | None = None,
        seconds: float | None = None,
    ) -> str:
        """Note that somebody has logged in, for at most so many seconds; return the identifier for the cookie."""
        now = self._clock()
        for key in [key for key, one in self._logins.items() if self._is_over(one, now)]:
            del self._logins[key]
        own = [key for key, one in self._logins.items() if one.name == name]
        for keys, most in ((own, MOST_OF_ONE), (self._logins, MOST)):
            if len(keys) >= most:
                del self._logins[min(keys, key=lambda key: self._logins[key].seen)]
        identifier = secrets.token_urlsafe(32)
        until = None if seconds is None else now + seconds
        self._logins[_key(identifier)] = Login(
            name, right, secrets.token_urlsafe(32), now, now, until, token, authentication
        )
        return identifier

    def find(self, identifier: str, *, by_hand: bool = True) -> Login | None:
        """Return who has logged in with this identifier; None: nobody, or not any more.

        A request that a page makes by itself, not `by_hand`, does not keep a login from ending.
        """
        login = self._logins.get(_key(identifier))
        if login is None:
            return None
        now = self._clock()
        if self._is_over(login, now):
            del self._logins[_key(identifier)]
            return None
        if by_hand:
            login.seen = now
        return login

    def end(self, identifier: str) -> None:
        """End a login."""
        self._logins.pop(_key(identifier), None)

    @staticmethod
    def _is_over(login: Login, now: float) -> bool:
        late = login.until is not None and now >= login.until
        return late or now - login.seen > IDLE or now - login.began > LONGEST


def _key(identifier: str) -> bytes:
    # A digest, so that how long a look-up takes tells nothing of an identifier.
    return hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).digest()
