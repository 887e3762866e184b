"""Files of users and passwords: lines `user:HASH`, as `mqbridge passwd` writes them, and who a password vouches for.

HASH is of argon2id (RFC 9106). Behind it, and a colon, may stand what verifies SCRAM (`bridge.security.scram`). Empty lines
and those that begin with `#` count for nothing, but for `# scram-key`, behind which stands a secret: by it who is not in the
file has a salt, too. A file that changes is read again. That of a listener may have lines `user:password`, too.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.password_cache import PasswordCache
from bridge.security.verification_queue import VerificationQueue

log = logging.getLogger(__name__)

#: How a hash of argon2id begins, as argon2-cffi and the command `argon2 -e` write it.
HASHED: Final = "$argon2id$"
#: How the line begins that has the key of the salts of users that are not there.
SCRAM_KEY: Final = "# scram-key "


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
    """Verifies passwords against their hashes, in threads of its own."""

    def __init__(self, cache_file: Path | None = None) -> None:
        """Create it with a cache of verified passwords, which outlives the process if it has a file."""
        self._cache = PasswordCache(cache_file)
        # One thread for each core. A verification takes as much memory as its hash says: 64 MiB by default.
        threads = len(os.sched_getaffinity(0))
        self.executor: Final = ThreadPoolExecutor(threads, "passwords")
        self._queue = VerificationQueue(self.executor, threads)

    @staticmethod
    def fits(right: str, password: bytes) -> bool:
        """Return whether a password fits a hash. Takes 0.2 CPU seconds."""
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            PasswordHasher().verify(right, password)
        except (VerificationError, InvalidHashError):
            return False
        return True

    async def fits_soon(self, right: str, presented: Presented) -> bool:
        """Return whether a client's password fits a hash, or is that very password, without holding up the event loop.

        Raises AuthenticatorUnavailable as VerificationQueue.run.
        """
        user, password = presented.user_name or "", presented.password or b""
        if not right.startswith(HASHED):
            return hmac.compare_digest(right.encode(), password)
        if self._cache.is_known(user, right, password):
            return True
        return await self._queue.run(presented, self._verify, user, right, password)

    def _verify(self, user: str, right: str, password: bytes) -> bool:
        """Return whether a password fits a hash, by the cache if possible. Runs in a thread.

        The cheaper hash is computed for each password: the time that a rejection takes does not show who is in the cache. A
        verified password is cached even if its client has left meanwhile, and so its next attempt succeeds at once.
        """
        hashed = self._cache.hash(user, right, password)
        fits = self._cache.contains(user, right, hashed) or self.fits(right, password)
        if fits:
            self._cache.add(user, right, password, hashed)
        return fits


class PasswordAuthenticator:
    """User names and passwords by a file."""

    def __init__(self, file: PasswordFile, hashes: PasswordHashes) -> None:
        self._file = file
        self._hashes = hashes

    def judges(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        entries = self._file.entries()
        user = presented.user_name or ""
        entry = entries.get(user)
        # Of a user that is not there a hash is computed as well: how long an answer takes tells nothing.
        right = entry or max(entries.values(), key=lambda one: one.hash.startswith(HASHED), default=None)
        if right is None or presented.password is None:
            raise AuthenticationFailed("there is no user in the file" if right is None else "it gives no password")
        fits = await self._hashes.fits_soon(right.hash, presented)
        if entry is None:
            raise AuthenticationFailed(f"user {user[:40]!r} is not in {self._file.path}")
        if not fits:
            raise AuthenticationFailed(f"the password of user {user[:40]!r} is wrong")
        return Authenticated(user)
