"""Expected errors of commands: an error message, a hint, and the exit status."""

from __future__ import annotations

import errno

#: The command failed, or found a problem.
FAILED = 1
#: The command line or a configuration file is wrong.
WRONG_USAGE = 2
#: The object does not exist, or no message matches.
NOT_FOUND = 3
#: No bridge or queue manager can be reached.
UNREACHABLE = 4

#: Exit statuses and their meaning, for the help and the manual page.
EXIT_STATUSES = {
    "0": "The command succeeded.",
    "1": "The command failed, or found a problem (status, check, audit, verify).",
    "2": "The command line or a configuration file is wrong.",
    "3": "The object does not exist, or nothing matches. For `try`: the mapping does not apply to the message.",
    "4": "No bridge or queue manager can be reached.",
    "130": "Interrupted (Ctrl-C).",
}

#: Exceptions that commands do not handle, with module and name -> exit status, also that of subclasses. Most commands do not
#: import these modules.
_STATUSES = {
    "bridge.administration.control_socket.NoBridge": UNREACHABLE,
    "bridge.archive.completeness.ArchiveDamaged": FAILED,
    "bridge.archive.database.NoRows": NOT_FOUND,
    "bridge.mq.data_directory.StoreError": FAILED,
    "bridge.mq.ibm.parameters.LibraryMissing": FAILED,
    "bridge.security.password_file.PasswordFileError": FAILED,
}
#: Packages of the optional dependencies.
_EXTRAS = {"duckdb": "archive", "pyarrow": "archive", "pandas": "spark", "pyspark": "spark", "opentelemetry": "otel"}


class Failure(Exception):
    """The end of a command that failed.

    `text` is the error message. An empty text means that the command has already reported the failure. `lines` are printed
    before it, as they are. `hint` is what to do about it.
    """

    def __init__(self, text: str, status: int = FAILED, *, hint: str = "", lines: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.status = status
        self.hint = hint
        self.lines = lines


def failure_of(error: Exception) -> Failure | None:
    """Return the failure that an exception means to a user, or None if it is unexpected."""
    if isinstance(error, Failure):
        return error
    for kind in type(error).__mro__:
        if (status := _STATUSES.get(f"{kind.__module__}.{kind.__name__}")) is not None:
            return Failure(str(error), status)
    if isinstance(error, OSError):
        if error.errno == errno.EPIPE:
            return None
        place = f"{error.filename}: " if error.filename is not None else ""
        return Failure(f"{place}{error.strerror or error}")
    if isinstance(error, UnicodeEncodeError):  # Python represents invalid bytes of the shell as surrogates
        return Failure(f"expected arguments in UTF-8, found {error.object!r}", WRONG_USAGE)
    if isinstance(error, ModuleNotFoundError):
        package = str(error.name).partition(".")[0]
        if package not in _EXTRAS:
            return None
        from bridge.extras import install

        return Failure(f"{package} is not installed: `{install(_EXTRAS[package])}` installs it", WRONG_USAGE)
    # Imported only now, because most commands do not fail.
    from bridge.mq.mqi import MQError
    from bridge.wire import cmqc

    if not isinstance(error, MQError):
        return None
    if error.reason in (cmqc.MQRC_NO_MSG_AVAILABLE, cmqc.MQRC_UNKNOWN_OBJECT_NAME):
        return Failure(str(error), NOT_FOUND)
    if error.reason in (
        cmqc.MQRC_CONNECTION_BROKEN,
        cmqc.MQRC_HOST_NOT_AVAILABLE,
        cmqc.MQRC_Q_MGR_NOT_AVAILABLE,
        cmqc.MQRC_Q_MGR_QUIESCING,
        cmqc.MQRC_Q_MGR_STOPPING,
    ):
        return Failure(str(error), UNREACHABLE)
    return Failure(str(error))
