"""`mqbridge passwd`: password files."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.failures import NOT_FOUND, WRONG_USAGE, Failure
from bridge.cli.options import YES, argument, flag, option, takes
from bridge.cli.output import confirm, say


@takes(YES)
def passwd(
    file: Annotated[Path, argument("FILE", "The password file. It is created if it does not exist.")],
    user: Annotated[str | None, argument("[USER]", "The user.")] = None,
    stdin: Annotated[bool, flag("Read the password from the first line of standard input.", "--stdin")] = False,
    delete: Annotated[bool, flag("Remove the user.", "--delete")] = False,
    scram_iterations: Annotated[
        int,
        option(
            "N",
            "Iterations of SCRAM-SHA-256, which clients"
            " compute at each CONNECT. Fewer iterations make it easier to guess passwords from a stolen file.",
            show_default=True,
            min=4096,
        ),
    ] = 600_000,
    show: Annotated[bool, flag("Print the users in the file.", "--list")] = False,
) -> None:
    """Set the password of a user in a password file.

    The file is for `method: password` and `method: scram` of a channel's `authentication`. It contains a hash of the
    password (argon2id) and a SCRAM-SHA-256 verifier, but not the password. A running bridge uses the new file immediately.
    """
    from bridge.security.password_file import PasswordEntry, hash_of, read_password_file, write_password_file
    from bridge.security.scram import verifier_of

    entries = read_password_file(file) if file.exists() else {}
    if show:
        for name in entries:
            typer.echo(name)
        return
    if not user or not user.isprintable() or ":" in user or user.startswith("#") or user != user.strip():
        raise Failure("expected a user name without colons, # at the start, or blanks at start or end", WRONG_USAGE)
    if delete:
        confirm(f"Delete user {user}?")
        if entries.pop(user, None) is None:
            raise Failure(f"{file} has no user {user!r}", NOT_FOUND)
    else:
        password = sys.stdin.readline().rstrip("\r\n") if stdin else _ask(user)
        if not password:
            raise Failure("the password is empty")
        entries[user] = PasswordEntry(hash_of(password), verifier_of(password, scram_iterations))
    write_password_file(file, entries)
    say(f"{file}: {'deleted user' if delete else 'set the password of user'} {user}")


def _ask(user: str) -> str:
    first = getpass(f"Password of {user}: ")
    if first != getpass("Again: "):
        raise Failure("the passwords differ; nothing was changed")
    return first
