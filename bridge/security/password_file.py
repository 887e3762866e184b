"""Password files, as `mqbridge passwd` writes them: reading, verification, and the cache of verified passwords.

A line is `user:HASH`. HASH is argon2id (RFC 9106). After another colon, a line may contain SCRAM credentials
(`bridge.security.scram`). Empty lines and comments (`#`) are ignored, except `# scram-key`: its secret provides salts
for unknown users. Changed files are read again. The file of a listener for MQ applications may also contain lines
`user:password`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import threading
import time
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bridge.files import durable_file
from bridge.security.authenticator import Authenticated, AuthenticationFailed, AuthenticatorUnavailable, Presented
from bridge.security.verification_queue import VerificationQueue

log = logging.getLogger(__name__)

#: Maximum number of passwords in memory, and in the file. The least recently used ones are forgotten.
MAX_PASSWORDS: Final = 100_000
#: Days after the last use that a password stays in the file. The day is renewed at the first login after a restart only, so
#: this has to be longer than the time between two restarts.
EXPIRY_DAYS: Final = 180
#: Parameters of argon2id: iterations, KiB of memory, lanes.
_TIME_COST, _MEMORY_COST, _LANES = 1, 8_192, 1
_ID_LENGTH, _HASH_LENGTH = 16, 32
_SECONDS_PER_DAY: Final = 86_400
_HEADER: Final = "# Verified passwords (argon2id). To forget them, remove this file while the bridge is stopped."


class _Verified(NamedTuple):
    """A verified password in the file."""

    hash: bytes
    #: day of the last use, in days since the epoch
    day: int


class PasswordCache:
    """The verified passwords, each with its user and its verifier: the hash in the password file.

    A changed or removed line of the password file thus invalidates the cached password. All methods but `is_known` are for
    worker threads.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Create a cache; without `path`, in memory only. The file is read at the first use."""
        self._path = path
        #: marks of verified passwords in memory, the least recently used first
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._key = secrets.token_bytes(32)
        #: the contents of the file by user and verifier, or None until it is read
        self._file: OrderedDict[bytes, _Verified] | None = None
        #: lines in the file, some of which are superseded by later ones
        self._lines = 0
        #: whether the last write failed, which is logged once
        self._failing = False
        self._known_lock, self._file_lock = threading.Lock(), threading.Lock()

    def is_known(self, user: str, verifier: str, password: bytes) -> bool:
        """Return whether this process has verified a password before."""
        mark = self._mark(user, verifier, password)
        with self._known_lock:
            is_known = mark in self._known
            if is_known:
                self._known.move_to_end(mark)
        return is_known

    def hash(self, user: str, verifier: str, password: bytes) -> bytes | None:
        """Return the hash of a password for the file, or None if there is no file. Takes 0.004 CPU seconds."""
        if self._path is None:
            return None
        from argon2.low_level import Type, hash_secret_raw

        salt = _derived(user, verifier)[_ID_LENGTH:]
        return hash_secret_raw(password, salt, _TIME_COST, _MEMORY_COST, _LANES, _HASH_LENGTH, Type.ID)

    def contains(self, user: str, verifier: str, hashed: bytes | None) -> bool:
        """Return whether the file contains a hash."""
        if hashed is None:
            return False
        with self._file_lock:
            entry = self._contents().get(_derived(user, verifier)[:_ID_LENGTH])
        return entry is not None and hmac.compare_digest(entry.hash, hashed)

    def add(self, user: str, verifier: str, password: bytes, hashed: bytes | None) -> None:
        """Remember a verified password, in memory and, unless `hashed` is None, in the file."""
        mark = self._mark(user, verifier, password)
        with self._known_lock:
            self._known[mark] = None
            if len(self._known) > MAX_PASSWORDS:
                self._known.popitem(last=False)
        if hashed is not None:
            identifier, entry = _derived(user, verifier)[:_ID_LENGTH], _Verified(hashed, _today())
            with self._file_lock:
                if self._contents().get(identifier) != entry:
                    self._append(identifier, entry)

    def _mark(self, user: str, verifier: str, password: bytes) -> bytes:
        return hmac.digest(self._key, _derived(user, verifier) + password, "sha256")

    def _contents(self) -> OrderedDict[bytes, _Verified]:
        if self._file is None:
            assert self._path is not None
            self._file = _read(self._path)
            self._rewrite()
        return self._file

    def _append(self, identifier: bytes, entry: _Verified) -> None:
        """Add a line to the file, without fsync, because a lost line only costs CPU time."""
        contents = self._contents()
        contents[identifier] = entry
        contents.move_to_end(identifier)
        if len(contents) > MAX_PASSWORDS:
            contents.popitem(last=False)
        if self._lines >= 2 * MAX_PASSWORDS:
            self._rewrite()
            return
        assert self._path is not None
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            try:
                # The line break comes first, so that an incomplete line before it damages that line only.
                os.write(descriptor, f"\n{_line(identifier, entry)}".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            self._write_failed(error)
        else:
            self._failing = False
        self._lines += 1

    def _rewrite(self) -> None:
        """Replace the file with one that contains each password once."""
        assert self._path is not None and self._file is not None
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            with contextlib.suppress(FileNotFoundError):
                new.unlink()
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(
                    "\n".join([_HEADER, *(_line(identifier, entry) for identifier, entry in self._file.items())])
                )
            new.replace(self._path)
        except OSError as error:
            self._write_failed(error)
        self._lines = len(self._file)

    def _write_failed(self, error: OSError) -> None:
        if not self._failing:
            log.warning("MQB1210W writing to password cache %s failed: %s", self._path, error.strerror or error)
        self._failing = True


def _derived(user: str, verifier: str) -> bytes:
    """Return 32 bytes for a user and verifier: the identifier in the file, and the salt, which the file does not contain."""
    return hashlib.sha256(f"{len(user)}:{user}{verifier}".encode("utf-8", "surrogatepass")).digest()


def _today() -> int:
    return int(time.time()) // _SECONDS_PER_DAY


def _line(identifier: bytes, entry: _Verified) -> str:
    # The hash, of a fixed length, comes last: an incomplete line is recognized by its length.
    return f"{entry.day}:{b64encode(identifier).decode()}:{b64encode(entry.hash).decode()}"


def _read(path: Path) -> OrderedDict[bytes, _Verified]:
    """Return the lines of a file that are neither expired nor damaged, the least recently used first."""
    contents: OrderedDict[bytes, _Verified] = OrderedDict()
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PermissionError("other users own it or can access it")
            lines = file.read().decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return contents
    except OSError as error:
        log.warning("MQB1209W ignored password cache %s: %s", path, error.strerror or error)
        return contents
    damaged = 0
    oldest = _today() - EXPIRY_DAYS
    for line in lines:
        if not line or line.startswith("#"):
            continue
        try:
            day, *encoded = line.split(":")
            identifier, hashed = (b64decode(field, validate=True) for field in encoded)
            entry = _Verified(hashed, int(day))
            if (len(identifier), len(hashed)) != (_ID_LENGTH, _HASH_LENGTH):
                raise ValueError("wrong length")
        except ValueError:
            damaged += 1
            continue
        contents.pop(identifier, None)
        if entry.day >= oldest:
            contents[identifier] = entry
    if damaged:
        log.warning("MQB1211W ignored %d damaged lines of password cache %s", damaged, path)
    while len(contents) > MAX_PASSWORDS:
        contents.popitem(last=False)
    return contents


#: The prefix of argon2id hashes, as written by argon2-cffi and the command `argon2 -e`.
HASHED: Final = "$argon2id$"
#: The prefix of the line with the key for the salts of unknown users.
SCRAM_KEY: Final = "# scram-key "


class PasswordEntry(msgspec.Struct, frozen=True):
    """A user's line in the file."""

    #: the hash, or a plain password if the file may contain them
    hash: str
    #: SCRAM credentials, or "" if there are none
    scram: str = ""


class PasswordFileError(ValueError):
    """A line of a password file is invalid. The message contains its number but not its contents."""


def read_password_file(path: Path, *, plain: bool = False) -> dict[str, PasswordEntry]:
    """Return the entries of a file by user. `plain` allows plain passwords. Raises OSError, PasswordFileError."""
    return _entries(path, _text(path), plain=plain)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PasswordFileError(f"{path}: it is not UTF-8") from None


def _scram_key(text: str) -> bytes:
    """Return the SCRAM key of a file.

    If the file has none, return a hash of its text, which is as secret but changes with the file.
    """
    for line in text.splitlines():
        if line.startswith(SCRAM_KEY):
            return line.encode()
    return hashlib.sha256(text.encode()).digest()


def _entries(path: Path, text: str, *, plain: bool) -> dict[str, PasswordEntry]:
    entries: dict[str, PasswordEntry] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, colon, credentials = line.partition(":")
        has_hash = credentials.startswith(HASHED) or not plain
        password_hash, _, scram = credentials.partition(":") if has_hash else (credentials, "", "")
        if not colon or not user or not (plain or password_hash.startswith(HASHED)):
            raise PasswordFileError(
                f"{path}:{number}: expected a line user:{HASHED}..., as `mqbridge passwd` writes them"
            )
        if user in entries:
            raise PasswordFileError(f"{path}:{number}: user {user!r} occurs twice")
        entries[user] = PasswordEntry(password_hash, scram)
    return entries


def write_password_file(path: Path, entries: Mapping[str, PasswordEntry]) -> None:
    """Replace the entries of a file, keeping the comments at its top, or create a file. Raises OSError.

    A new file is readable only by its owner. If root creates it, the directory's group may read it as well, unless that is
    root's group: root creates files for services. A SCRAM key is added if there is none.
    """
    comments = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                break
            comments.append(line)
    if not any(line.startswith(SCRAM_KEY) for line in comments):
        comments.append(f"{SCRAM_KEY}{secrets.token_hex(32)}")
    lines = [":".join(filter(None, (user, entry.hash, entry.scram))) for user, entry in entries.items()]
    with durable_file(path.absolute(), 0o600) as file:
        file.write("".join(f"{line}\n" for line in (*comments, *lines)).encode())
        if path.exists():
            status = path.stat()
            os.fchmod(file.fileno(), status.st_mode & 0o777)
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
        elif os.geteuid() == 0 and (group := path.absolute().parent.stat().st_gid):
            os.fchown(file.fileno(), -1, group)
            os.fchmod(file.fileno(), 0o640)


def hash_of(password: str) -> str:
    """Return the hash of a password."""
    from argon2 import PasswordHasher

    return PasswordHasher().hash(password)


class PasswordFile:
    """A password file, reloaded when it changes."""

    def __init__(self, path: Path, *, plain: bool = False) -> None:
        self.path = path
        self._plain = plain
        self._stamp: object = None
        self._entries: dict[str, PasswordEntry] = {}
        #: key for deriving constant salts for unknown users
        self.scram_key = b""

    def entries(self) -> Mapping[str, PasswordEntry]:
        """Return the current entries by user. Raises AuthenticatorUnavailable if the file is unreadable or invalid."""
        try:
            status = self.path.stat()
            stamp = status.st_ino, status.st_size, status.st_mtime_ns
            if stamp != self._stamp:
                text = _text(self.path)
                self._entries = _entries(self.path, text, plain=self._plain)
                self.scram_key = _scram_key(text)
                self._stamp = stamp
        except PasswordFileError as error:
            raise AuthenticatorUnavailable(str(error)) from None
        except OSError as error:
            raise AuthenticatorUnavailable(f"{self.path} cannot be read: {error.strerror or error}") from error
        return self._entries


class PasswordHashes:
    """Verifies passwords against their hashes, in a thread pool."""

    def __init__(self, cache_file: Path | None = None) -> None:
        """Create it with a cache of verified passwords, which is persistent if it has a file."""
        self._cache = PasswordCache(cache_file)
        # One thread per core. A verification needs the memory that the hash specifies, by default 64 MiB.
        threads = len(os.sched_getaffinity(0))
        self.executor: Final = ThreadPoolExecutor(threads, "passwords")
        self._queue = VerificationQueue(self.executor, threads)

    @staticmethod
    def matches(password_hash: str, password: bytes) -> bool:
        """Return whether a password matches a hash. Takes 0.2 CPU seconds."""
        from argon2 import PasswordHasher
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            PasswordHasher().verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False
        return True

    async def check(self, password_hash: str, presented: Presented) -> bool:
        """Return whether a client's password matches a hash (or a plain password) without blocking the event loop.

        Raises AuthenticatorUnavailable, as VerificationQueue.run does.
        """
        user, password = presented.user_name or "", presented.password or b""
        if not password_hash.startswith(HASHED):
            return hmac.compare_digest(password_hash.encode(), password)
        if self._cache.is_known(user, password_hash, password):
            return True
        return await self._queue.run(presented, self._verify, user, password_hash, password)

    def _verify(self, user: str, password_hash: str, password: bytes) -> bool:
        """Return whether a password matches a hash, using the cache if possible. Runs in a thread.

        The cheaper hash is always computed, so that the duration of a rejection does not show which users are cached. A
        verified password is cached even if its client has disconnected, so that its next attempt succeeds at once.
        """
        hashed = self._cache.hash(user, password_hash, password)
        is_correct = self._cache.contains(user, password_hash, hashed) or self.matches(password_hash, password)
        if is_correct:
            self._cache.add(user, password_hash, password, hashed)
        return is_correct


class PasswordAuthenticator:
    """Authenticates user names and passwords with a password file."""

    def __init__(self, file: PasswordFile, hashes: PasswordHashes) -> None:
        self._file = file
        self._hashes = hashes

    def applies_to(self, presented: Presented) -> bool:
        return presented.user_name is not None or presented.password is not None

    async def authenticate(self, presented: Presented) -> Authenticated:
        entries = self._file.entries()
        user = presented.user_name or ""
        entry = entries.get(user)
        # Compute a hash for unknown users, too, so that the response time does not reveal which users exist.
        checked = entry or max(entries.values(), key=lambda entry: entry.hash.startswith(HASHED), default=None)
        if checked is None or presented.password is None:
            raise AuthenticationFailed("the user is not in the file" if checked is None else "it contains no password")
        is_correct = await self._hashes.check(checked.hash, presented)
        if entry is None:
            raise AuthenticationFailed(f"user {user[:40]!r} is not in {self._file.path}")
        if not is_correct:
            raise AuthenticationFailed(f"the password of user {user[:40]!r} is wrong")
        return Authenticated(user)
