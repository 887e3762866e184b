"""What goes wrong in a command, in words: one or more lines on standard error and an exit status, no traceback."""

from __future__ import annotations

import errno

#: A command could not do what it was asked for.
FAILED = 1
#: The command, or a configuration file, is not what it should be.
WRONG_USAGE = 2


class Failure(Exception):
    """The end of a command that failed: what to tell (any number of lines, also none), and the exit status."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


def failure_of(error: Exception) -> Failure | None:
    """Return the failure that an error is to a user.

    Returns None where nobody expects the error, and for what typer tells itself.
    """
    if isinstance(error, Failure):
        return error
    if isinstance(error, OSError):
        if error.errno == errno.EPIPE:
            return None
        place = f"{error.filename}: " if error.filename is not None else ""
        return Failure(f"{place}{error.strerror or error}")
    if isinstance(error, UnicodeEncodeError):  # the shell passed bytes that are none, which Python keeps as surrogates
        return Failure(f"expected arguments in UTF-8, found {error.object!r}", WRONG_USAGE)
    # Imported only now: a command that does not fail, or has nothing to do with MQ, shall not wait for them.
    from bridge.mq.mqi import MQError

    if isinstance(error, MQError):
        return Failure(str(error))
    return None
