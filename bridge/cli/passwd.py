"""`mqbridge passwd`: the file of users and passwords of a channel."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer

from bridge.cli.failures import Failure


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The password file; it is made where it is not there.")],
    user: Annotated[str | None, typer.Argument(metavar="USER", help="The user.", show_default=False)] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the password from the first line of standard input, and do not ask.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
    scram_iterations: Annotated[
        int,
        typer.Option(
            min=4096,
            metavar="N",
            help="Iterations of SCRAM-SHA-256: a device computes them at each CONNECT; fewer protect a stolen file less.",
        ),
    ] = 600_000,
    show: Annotated[bool, typer.Option("--list", help="Print the users of the file.")] = False,
) -> None:
    """Set the password of a user in a password file.

    The file is for `method: password` and `method: scram` of a channel's `authentication`. It gets a hash of the
    password (argon2id), and what verifies SCRAM-SHA-256; the password itself is nowhere kept. A running bridge
    uses the file as it is from then on.
    """
    from bridge.security.password_file import (
        Entry,
        PasswordFileError,
        hash_of,
        read_password_file,
        write_password_file,
    )
    from bridge.security.scram import verifier_of

    try:
        entries = read_password_file(file) if file.exists() else {}
        if show:
            for name in entries:
                typer.echo(name)
            return
        if not user or not user.isprintable() or ":" in user or user.startswith("#") or user != user.strip():
            raise Failure("a user has a name without a colon, blanks at its ends, or # before it")
        if delete:
            if entries.pop(user, None) is None:
                raise Failure(f"{file} has no user {user!r}")
        else:
            password = sys.stdin.readline().rstrip("\r\n") if stdin else _ask(user)
            if not password:
                raise Failure("an empty password is none")
            entries[user] = Entry(hash_of(password), verifier_of(password, scram_iterations))
        write_password_file(file, entries)
    except PasswordFileError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise Failure(f"{file}: {error.strerror or error}") from error
    typer.echo(f"{file}: user {user} {'is removed' if delete else 'has a new password'}")


def _ask(user: str) -> str:
    first = getpass(f"Password of {user}: ")
    if first != getpass("Again: "):
        raise Failure("the two are not the same; nothing has changed")
    return first
