"""Passwords: never in the configuration file, but in a file of their own or in the environment."""

from collections.abc import Mapping
from pathlib import Path

PASSWORD_VARIABLE = "MQBRIDGE_PASSWORD"
"""The environment variable that has the password of a queue manager's user, unless the file names another, or a file."""


class NoPassword(OSError):
    """A password cannot be had; the message says whose, and where it was looked for. It never holds the password."""


def read_password(whose: str, file: Path | None, variable: str | None, environment: Mapping[str, str]) -> str:
    """Return the first line of `file` if a file is given, else the value of the environment variable `variable`.

    `whose` begins the message of NoPassword, which is raised where neither gives a password: "user mqbridge".
    """
    if file is not None:
        try:
            password = file.read_text(encoding="utf-8").split("\n", 1)[0].rstrip("\r")
        except OSError as error:
            raise NoPassword(f"no password for {whose}: password_file {file}: {error.strerror or error}") from error
        except UnicodeDecodeError:
            # Its own text shows the bytes that it found.
            raise NoPassword(f"no password for {whose}: password_file {file} is no text in UTF-8") from None
        place = f"the first line of password_file {file} is empty"
    elif variable is not None:
        password = environment.get(variable, "")
        place = f"there is no password_file, and the environment variable {variable} is not set"
    else:
        password, place = "", "neither password_file nor password_variable is given"
    if not password:
        raise NoPassword(f"no password for {whose}: {place}")
    return password
