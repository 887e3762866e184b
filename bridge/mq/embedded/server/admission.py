"""Who may connect over TCP: by which channels, and with which passwords (IBM MQ, "Connection authentication")."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from bridge.mq.errors import MQError
from bridge.security.password_file import HASHED, PasswordHashes
from bridge.wire import cmqc

log = logging.getLogger(__name__)


class Admission:
    """What is asked of who connects over TCP: nothing, unless there are channels or a password file.

    The password file has lines `user:password`, or `user:$argon2id$...`, a hash of it; empty ones and those that begin with
    `#` count for nothing. It is read at each MQCONN, so a change needs no restart.
    """

    def __init__(self, channels: Sequence[str] = (), password_file: Path | None = None) -> None:
        self._channels = channels
        self._password_file = password_file
        self._hashes = PasswordHashes()
        #: for what takes long
        self.executor = self._hashes.executor

    @property
    def takes_long(self) -> bool:
        """Return whether `admit` may have to compute a hash: then it is for `executor`."""
        if self._password_file is None:
            return False
        try:
            return f":{HASHED}" in self._password_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False

    def admit(self, channel: str | None, user: str, password: bytes) -> str:
        """Return the user for whom a password vouches, or "" where none is asked for.

        `channel` is None for programs that have no channels. Raises MQError: MQRC_UNKNOWN_CHANNEL_NAME,
        MQRC_NOT_AUTHORIZED.
        """
        if channel is not None and self._channels and channel not in self._channels:
            log.warning("an application is refused: it connects by channel %r, which the listener has not", channel)
            raise MQError(cmqc.MQRC_UNKNOWN_CHANNEL_NAME, f"channel {channel!r}")
        if self._password_file is None:
            return ""
        if not self._vouches(self._password_file, user, password):
            log.warning("an application that says it is user %r is refused: it gave no password, or a wrong one", user)
            raise MQError(cmqc.MQRC_NOT_AUTHORIZED, "user or password is wrong")
        return user

    def _vouches(self, file: Path, user: str, password: bytes) -> bool:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            log.error("queue_manager.listener.password_file %s cannot be read, so nobody connects: %s", file, error)
            return False
        known = {name: right for name, colon, right in (line.partition(":") for line in lines) if colon and name[:1] != "#"}
        # Compared as well where there is no such user: how long that takes tells nothing.
        right = known.get(user) or _any_hash(known)
        if right.startswith(HASHED):
            return self._hashes.fits(right, password) and bool(known.get(user))
        return hmac.compare_digest(right.encode(), password) and bool(known.get(user))


def _any_hash(known: Mapping[str, str]) -> str:
    """Return a hash, where there is one, else an empty text."""
    return next((right for right in known.values() if right.startswith(HASHED)), "")
