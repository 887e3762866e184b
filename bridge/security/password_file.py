"""Files of users and passwords: lines `user:HASH`, as `mqbridge passwd` writes them, and who a password vouches for.

HASH is of argon2id (RFC 9106). Behind it, and a colon, may stand what verifies SCRAM (`bridge.security.scram`). Empty lines
and those that begin with `#` count for nothing, but for `# scram-key`, behind which stands a secret: by it who is not in the
file has a salt, too. A file that changes is read again. That of a listener may have lines `user:password`, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.waiting_places import WaitingPlaces

log = logging.getLogger(__name__)

#: How a hash of argon2id begins, as argon2-cffi and the command `argon2 -e` write it.
HASHED: Final = "$argon2id$"
#: How the line begins that has the key of the salts of users that are not there.
SCRAM_KEY: Final = "# scram-key "
#: Passwords that are known to fit their hash, at most: to find that out takes a tenth of a second of all cores, and 64 MiB.
_MOST_VERIFIED: Final = 1000


class Entry(msgspec.Struct, frozen=True):
    """What the file has of a user."""

    #: or the password itself, where the file may have that
    hash: str
    #: what verifies SCRAM; "" where there is none
    scram: str = ""


class PasswordFileError(ValueError):
    """A line is none of a password file; the message says which, and shows nothing of it."""


def read_password_file(path: Path, *, plain: bool = False) -> dict[str, Entry]:
    """Return what a file has of each user; `plain` lets it have passwords. Raises OSError, PasswordFileError."""
    return _entries(path, _text(path), plain=plain)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PasswordFileError(f"{path}: it is no text in UTF-8") from None


def _scram_key(text: str) -> bytes:
    """Return the key of a file's text; where the file has none, one that is as secret, and changes with the file."""
    for line in text.splitlines():
        if line.startswith(SCRAM_KEY):
            return line.encode()
    return hashlib.sha256(text.encode()).digest()


def _entries(path: Path, text: str, *, plain: bool) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, rest = line.partition(":")
        right, _, scram = rest.partition(":") if rest.startswith(HASHED) or not plain else (rest, "", "")
        if not colon or not user or not (plain or right.startswith(HASHED)):
            raise PasswordFileError(f"{path}:{number}: it is no line user:{HASHED}..., as `mqbridge passwd` writes them")
        if user in found:
            raise PasswordFileError(f"{path}:{number}: user {user!r} stands in the file twice")
        found[user] = Entry(right, scram)
    return found


def write_password_file(path: Path, entries: Mapping[str, Entry]) -> None:
    """Replace the lines of a file, or make one that its owner alone may read; comments at its top stay. Raises OSError.

    One that root makes is the directory's group's to read, where that is not root's: root makes it for a service. It gets a
    key for SCRAM where it has none.
    """
    comments = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                break
            comments.append(line)
    if not any(line.startswith(SCRAM_KEY) for line in comments):
        comments.append(f"{SCRAM_KEY}{secrets.token_hex(32)}")
    lines = [":".join(filter(None, (user, one.hash, one.scram))) for user, one in entries.items()]
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in (*comments, *lines))
            file.flush()
            if path.exists():
                status = path.stat()
                os.fchmod(file.fileno(), status.st_mode & 0o777)
                if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
            elif os.geteuid() == 0 and (group := path.absolute().parent.stat().st_gid):
                os.fchown(file.fileno(), -1, group)
                os.fchmod(file.fileno(), 0o640)
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def hash_of(password: str) -> str:
    """Return the hash of a password."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)


class PasswordFile:
    """A password file as it is now."""

    def __init__(self, path: Path, *, plain: bool = False) -> None:
        self.path = path
        self._plain = plain
        self._seen: object = None
        self._entries: dict[str, Entry] = {}
        #: by which who is not in the file has a salt that is always the same
        self.scram_key = b""

    def entries(self) -> Mapping[str, Entry]:
        """Return what it has of each user. Raises AuthenticatorUnavailable where it cannot be read."""
        try:
            status = self.path.stat()
            seen = status.st_ino, status.st_size, status.st_mtime_ns
            if seen != self._seen:
                text = _text(self.path)
                self._entries = _entries(self.path, text, plain=self._plain)
                self.scram_key = _scram_key(text)
                self._seen = seen
        except PasswordFileError as error:
            raise AuthenticatorUnavailable(str(error)) from None
        except OSError as error:
            raise AuthenticatorUnavailable(f"{self.path} cannot be read: {error.strerror or error}") from error
        return self._entries


class PasswordHashes:
    """Finds out whether passwords fit their hashes, in a thread of its own."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        #: marks of passwords that fit, the one used last at the end
        self._verified: OrderedDict[bytes, None] = OrderedDict()
        self._waiting = WaitingPlaces()
        #: one thread, so that whoever tries passwords keeps one core busy and no client waiting
        self.executor: Final = ThreadPoolExecutor(1, "passwords")

    @staticmethod
    def fits(right: str, password: bytes) -> bool:
        """Return whether a password fits a hash; it takes a tenth of a second."""
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            PasswordHasher().verify(right, password)
        except (VerificationError, InvalidHashError):
            return False
        return True

    async def fits_soon(self, right: str, password: bytes, address: str = "") -> bool:
        """Return whether a password fits a hash, or is that very password, without holding up the event loop.

        Raises AuthenticatorUnavailable where too many wait for that.
        """
        if not right.startswith(HASHED):
            return hmac.compare_digest(right.encode(), password)
        if self._is_known(right, password):
            return True
        with self._waiting.place(address, "their passwords to be verified"):
            fits = await asyncio.get_running_loop().run_in_executor(self.executor, self.fits, right, password)
        if fits:
            self._verified[self._mark(right, password)] = None
            if len(self._verified) > _MOST_VERIFIED:
                self._verified.popitem(last=False)
        return fits

    def _is_known(self, right: str, password: bytes) -> bool:
        mark = self._mark(right, password)
        known = mark in self._verified
        if known:
            self._verified.move_to_end(mark)
        return known

    def _mark(self, right: str, password: bytes) -> bytes:
        return hmac.digest(self._key, right.encode() + b"\0" + password, "sha256")


class PasswordAuthenticator:
    """User names and passwords by a file."""

    def __init__(self, file: PasswordFile, hashes: PasswordHashes) -> None:
        self._file = file
        self._hashes = hashes

    def judges(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        entries = self._file.entries()
        user, password = presented.user_name or "", presented.password
        entry = entries.get(user)
        # Of a user that is not there a hash is computed as well: how long an answer takes tells nothing.
        right = entry or max(entries.values(), key=lambda one: one.hash.startswith(HASHED), default=None)
        if right is None or password is None:
            raise AuthenticationFailed("there is no user in the file" if right is None else "it gives no password")
        fits = await self._hashes.fits_soon(right.hash, password, presented.address)
        if entry is None:
            raise AuthenticationFailed(f"user {user[:40]!r} is not in {self._file.path}")
        if not fits:
            raise AuthenticationFailed(f"the password of user {user[:40]!r} is wrong")
        return Authenticated(user)
