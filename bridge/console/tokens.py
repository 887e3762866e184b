"""Tokens of the admin port and the file that contains them."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from enum import StrEnum
from pathlib import Path

import msgspec

from bridge.security.authenticators import readable_by_others

log = logging.getLogger(__name__)

#: Maximum size of a token file in bytes, and minimum length of a token: a shorter one could be guessed.
FILE_SIZE, SHORTEST = 65_536, 16
_EXPECTED = f"NAME:RIGHT:TOKEN, with RIGHT read or change and a TOKEN of {SHORTEST} characters or more"


class Right(StrEnum):
    """A right at the admin port."""

    READ = "read"
    CHANGE = "change"


class Token(msgspec.Struct, frozen=True):
    """A token, of which only a digest is kept."""

    name: str
    right: Right
    digest: bytes


class TokenFile:
    """The tokens of a file, which is read again after changes. An unreadable file contains no tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []

    def holder(self, shown: str) -> Token | None:
        """Return the matching token, or None. All comparisons take the same time."""
        self._look()
        digest = _digest(shown)
        found = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def has(self, token: Token) -> bool:
        """Return whether the file still contains a token. Otherwise its logins end."""
        self._look()
        return token in self._tokens

    def _look(self) -> None:
        try:
            with self.path.open("rb") as file:
                state = os.fstat(file.fileno())
                seen = state.st_ino, state.st_mtime_ns, state.st_size
                if seen == self._seen:
                    return
                data = file.read(FILE_SIZE + 1)
        except OSError as error:
            if self._seen is not None or self._tokens:
                log.error("MQB9206E reading token file %s failed, rejecting all tokens: %s", self.path, error)
            self._seen, self._tokens = None, []
            return
        self._seen = seen
        self._tokens = list(self._read(data))
        for line in readable_by_others(self.path):
            log.warning("MQB9207W token file: %s", line)

    def _read(self, data: bytes) -> list[Token]:
        if len(data) > FILE_SIZE:
            log.error("MQB9208E token file %s is longer than %d bytes: rejecting all tokens", self.path, FILE_SIZE)
            return []
        found = []
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            # The content of the line must not be disclosed.
            name, _, rest = text.partition(":")
            right, _, token = rest.partition(":")
            if not name or right not in tuple(Right) or len(token) < SHORTEST:
                log.error("MQB9209E token file %s, line %d: expected %s; ignoring the line", self.path, number, _EXPECTED)
                continue
            found.append(Token(name, Right(right), _digest(token)))
        return found


def make_token_file(path: Path) -> None:
    """Create a token file with one token, `admin`, with the right `change`, unless the file exists. Raises OSError."""
    # With the same mode as the queue manager uses for its data directory, which may not exist yet.
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"# NAME:RIGHT:TOKEN, where RIGHT is read or change\nadmin:{Right.CHANGE}:{secrets.token_urlsafe(32)}\n")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
