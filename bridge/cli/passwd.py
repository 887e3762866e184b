"""`mqbridge passwd`: password files."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.failures import FAILED, NOT_FOUND, WRONG_USAGE, Failure
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
    from bridge.security.password_changes import InvalidUser, check_user, delete_user, set_password
    from bridge.security.password_file import read_password_file

    if show:
        for name in read_password_file(file) if file.exists() else {}:
            typer.echo(name)
        return
    try:
        check_user(user or "")
        assert user is not None
        if delete:
            confirm(f"Delete user {user}?")
            if not delete_user(file, user):
                raise Failure(f"{file} has no user {user!r}", NOT_FOUND)
        else:
            set_password(file, user, ask_password(user, stdin), scram_iterations)
    except InvalidUser as error:
        status = WRONG_USAGE if str(error).startswith("expected") else FAILED
        raise Failure(str(error), status) from error
    say(f"{file}: {'deleted user' if delete else 'set the password of user'} {user}")


def ask_password(user: str, stdin: bool) -> str:
    """Return the password from the first line of standard input, or ask twice for it. Raises Failure."""
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass(f"Password of {user}: ")
    if first != getpass("Again: "):
        raise Failure("the passwords differ; nothing was changed")
    return first
