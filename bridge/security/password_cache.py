"""The password cache: which passwords were verified, in memory and in a file that outlives the process.

The argon2id hashes of a password file are expensive on purpose (0.2 CPU seconds each): a fleet of 1,000 devices would need
minutes to reconnect after a restart. The cache file has a cheaper argon2id hash (0.004 CPU seconds) of each verified
password.

Access to the cache file alone allows neither to guess a password nor to add one: identifiers and salts are derived from the
lines of the password file, which have random salts of their own. An attacker who reads both files can guess passwords at
the cost of the cheaper hash. That is why the file has no keyed digest: its key would have to be kept next to it, and a
guess would cost a microsecond and no memory. A truncated digest would not help: the few passwords that it leaves over can
be tried with the expensive hash.
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
from pathlib import Path
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

#: Maximum number of passwords in memory, and in the file; the least recently used ones are forgotten.
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
    #: when it was last used, in days since the epoch
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
        #: the contents of the file by user and verifier; None until it is read
        self._file: OrderedDict[bytes, _Verified] | None = None
        #: lines in the file, some of which are superseded by later ones
        self._lines = 0
        #: whether the last write failed, which is logged once
        self._failing = False
        self._known_lock, self._file_lock = threading.Lock(), threading.Lock()

    def is_known(self, user: str, verifier: str, password: bytes) -> bool:
        """Return whether this process has verified a password before. Takes no time."""
        mark = self._mark(user, verifier, password)
        with self._known_lock:
            known = mark in self._known
            if known:
                self._known.move_to_end(mark)
        return known

    def hash(self, user: str, verifier: str, password: bytes) -> bytes | None:
        """Return the hash of a password for the file; None if there is no file. Takes 0.004 CPU seconds."""
        if self._path is None:
            return None
        from argon2.low_level import Type, hash_secret_raw

        salt = _derived(user, verifier)[_ID_LENGTH:]
        return hash_secret_raw(password, salt, _TIME_COST, _MEMORY_COST, _LANES, _HASH_LENGTH, Type.ID)

    def contains(self, user: str, verifier: str, hashed: bytes | None) -> bool:
        """Return whether the file has a hash."""
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
        """Add a line to the file, without fsync: what a power failure takes costs CPU time only."""
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
        """Replace the file by one that has each password once."""
        assert self._path is not None and self._file is not None
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            with contextlib.suppress(FileNotFoundError):
                new.unlink()
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write("\n".join([_HEADER, *(_line(*item) for item in self._file.items())]))
            new.replace(self._path)
        except OSError as error:
            self._write_failed(error)
        self._lines = len(self._file)

    def _write_failed(self, error: OSError) -> None:
        if not self._failing:
            log.warning("MQB1210W writing to password cache %s failed: %s", self._path, error.strerror or error)
        self._failing = True


def _derived(user: str, verifier: str) -> bytes:
    """Return 32 bytes for a user and verifier: the identifier in the file, and the salt, which the file does not have."""
    return hashlib.sha256(f"{len(user)}:{user}{verifier}".encode("utf-8", "surrogatepass")).digest()


def _today() -> int:
    return int(time.time()) // _SECONDS_PER_DAY


def _line(identifier: bytes, entry: _Verified) -> str:
    # The hash, of a fixed length, comes last: an incomplete line is recognized by its length.
    return f"{entry.day}:{b64encode(identifier).decode()}:{b64encode(entry.hash).decode()}"


def _read(path: Path) -> OrderedDict[bytes, _Verified]:
    """Return the contents of a file that are not expired, the least recently used first; without damaged lines."""
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

