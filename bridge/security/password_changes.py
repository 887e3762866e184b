"""Changes of password files: setting the password of a user, and deleting a user."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from bridge.security.password_file import PasswordEntry, hash_of, read_password_file, write_password_file
from bridge.security.scram import ITERATIONS, verifier_of

#: Maximum length of a password in characters.
MAX_PASSWORD_LENGTH: Final = 1_000
#: Held while a file is read, changed and written.
_changing: Final = threading.Lock()


class InvalidUser(ValueError):
    """A password file cannot contain this user name or password. The message is for display."""


def set_password(path: Path, user: str, password: str, iterations: int = ITERATIONS, *, plain: bool = False) -> bool:
    """Set the password of a user in a file, which is created if it does not exist. Return whether the user is new.

    `plain` allows plain passwords of other users. Raises InvalidUser, OSError, PasswordFileError.
    """
    check_user(user)
    if not password or len(password) > MAX_PASSWORD_LENGTH:
        raise InvalidUser("the password is empty" if not password else "the password is too long")
    try:
        entry = PasswordEntry(hash_of(password), verifier_of(password, iterations))
    except ValueError as error:
        raise InvalidUser(f"the password is not valid: {error}") from error
    with _changing:
        entries = read_password_file(path, plain=plain) if path.exists() else {}
        is_new = user not in entries
        entries[user] = entry
        write_password_file(path, entries)
    return is_new


def delete_user(path: Path, user: str, *, plain: bool = False) -> bool:
    """Delete a user from a file. Return whether the file had the user. Raises InvalidUser, OSError, PasswordFileError."""
    check_user(user)
    with _changing:
        entries = read_password_file(path, plain=plain) if path.exists() else {}
        if entries.pop(user, None) is None:
            return False
        write_password_file(path, entries)
    return True


def check_user(user: str) -> None:
    """Raise InvalidUser unless a file can contain a user with this name."""
    if not user or len(user) > 1_000 or not user.isprintable() or ":" in user or user[0] == "#" or user != user.strip():
        raise InvalidUser("expected a user name without colons, # at the start, or blanks at start or end")
