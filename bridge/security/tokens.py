"""The tokens of the admin port, their rights, and their file."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from bridge.security.secret_file import readable_by_others

log = logging.getLogger(__name__)

#: Maximum size of a token file in bytes, and minimum length of a token: a shorter one could be guessed.
FILE_SIZE, MIN_LENGTH = 65_536, 16


class Right(StrEnum):
    """A right at the admin port."""

    READ = "read"
    #: to read, disconnect clients, pause, resume and start, test and connect links, and retry dead letters
    OPERATE = "operate"
    CHANGE = "change"
    #: to publish and to call devices as an application of the configuration, and nothing else
    APPLICATION = "application"

    @property
    def included(self) -> frozenset[Right]:
        """All rights that this right includes."""
        return _INCLUDED[self]


_INCLUDED: Final = {
    Right.READ: frozenset({Right.READ}),
    Right.OPERATE: frozenset({Right.READ, Right.OPERATE}),
    Right.CHANGE: frozenset({Right.READ, Right.OPERATE, Right.CHANGE}),
    Right.APPLICATION: frozenset({Right.APPLICATION}),
}
_EXPECTED: Final = f"NAME:RIGHT:TOKEN, with RIGHT {', '.join(Right)} and a TOKEN of {MIN_LENGTH} characters or more"


class Token(msgspec.Struct, frozen=True):
    """A token, of which only a digest is kept."""

    name: str
    right: Right
    digest: bytes


class TokenFile:
    """The tokens of a file, which is read again after changes. An unreadable file contains no tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []

    def holder(self, token_text: str) -> Token | None:
        """Return the matching token, or None. All comparisons take the same time."""
        self._reload_if_changed()
        digest = digest_of(token_text)
        holder = None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                holder = token
        return holder

    def has(self, token: Token) -> bool:
        """Return whether the file still contains a token. Otherwise its logins end."""
        self._reload_if_changed()
        return token in self._tokens

    def names(self, right: Right) -> set[str]:
        """Return the names of the tokens with a right."""
        self._reload_if_changed()
        return {token.name for token in self._tokens if token.right is right}

    def _reload_if_changed(self) -> None:
        try:
            with self.path.open("rb") as file:
                state = os.fstat(file.fileno())
                stamp = state.st_ino, state.st_mtime_ns, state.st_size
                if stamp == self._stamp:
                    return
                content = file.read(FILE_SIZE + 1)
        except OSError as error:
            if self._stamp is not None or self._tokens:
                log.error("MQB9206E reading token file %s failed, rejecting all tokens: %s", self.path, error)
            self._stamp, self._tokens = None, []
            return
        self._stamp = stamp
        self._tokens = list(self._read(content))
        for line in readable_by_others(self.path):
            log.warning("MQB9207W token file: %s", line)

    def _read(self, content: bytes) -> list[Token]:
        if len(content) > FILE_SIZE:
            log.error("MQB9208E token file %s is longer than %d bytes: rejecting all tokens", self.path, FILE_SIZE)
            return []
        tokens = []
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            # The content of the line must not be disclosed.
            name, _, right_and_token = text.partition(":")
            right, _, token = right_and_token.partition(":")
            if not name or right not in tuple(Right) or len(token) < MIN_LENGTH:
                log.error(
                    "MQB9209E token file %s, line %d: expected %s. The line is ignored", self.path, number, _EXPECTED
                )
                continue
            tokens.append(Token(name, Right(right), digest_of(token)))
        return tokens


def make_token_file(path: Path) -> None:
    """Create a token file with one token, `admin`, with the right `change`, unless the file exists. Raises OSError."""
    # With the same mode as the queue manager uses for its data directory, which may not exist yet.
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(
            f"# NAME:RIGHT:TOKEN, where RIGHT is {', '.join(Right)}\nadmin:{Right.CHANGE}:{secrets.token_urlsafe(32)}\n"
        )


def digest_of(token: str) -> bytes:
    """Return the digest of a token."""
    # The time of a look-up by a digest reveals nothing about the token.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
