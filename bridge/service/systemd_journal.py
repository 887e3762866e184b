"""The log under systemd: records with their fields, sent to its journal.

Source: systemd's documentation, "Native Journal Protocol". An entry is a datagram of fields, each `NAME=value` in a line; of
a value with several lines, the name in a line, its length (64 bits, little-endian), the value. A datagram that is too long
goes as a file in memory, sealed so that nobody can change it any more.
"""

from __future__ import annotations

import array
import errno
import fcntl
import logging
import os
import socket
import struct
from typing import Final

from bridge.service.log_fields import fields_of, printable, priority_of

SOCKET: Final = "/run/systemd/journal/socket"

_TOO_LONG: Final = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_TRACEBACKS: Final = logging.Formatter()


class JournalHandler(logging.Handler):
    """Sends records to the journal; those that cannot be sent go to another handler, whole."""

    def __init__(self, otherwise: logging.Handler, address: str = SOCKET) -> None:
        super().__init__()
        self._otherwise = otherwise
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(entry_of(record))
        except OSError:
            self._otherwise.handle(record)
        except Exception:
            self.handleError(record)

    def _send(self, entry: bytes) -> None:
        try:
            # Not connected: the journal may be restarted.
            self._socket.sendto(entry, self._address)
        except OSError as error:
            if error.errno not in _TOO_LONG:
                raise
        else:
            return
        file = os.memfd_create("mqbridge-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(file, "wb") as memory:
            memory.write(entry)
            memory.flush()
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file]))
            self._socket.sendmsg([], [rights], 0, self._address)

    def close(self) -> None:
        self._socket.close()
        self._otherwise.close()
        super().close()


def entry_of(record: logging.LogRecord) -> bytes:
    """Return a record as an entry of the journal; a traceback is part of its MESSAGE."""
    message = record.getMessage()
    text = printable(message)
    if record.exc_info:
        text = f"{text}\n{_TRACEBACKS.formatException(record.exc_info)}"
    fields: dict[str, object] = {
        "MESSAGE": text,
        "PRIORITY": priority_of(record.levelno),
        "SYSLOG_IDENTIFIER": "mqbridge",
        "CODE_FILE": record.pathname,
        "CODE_LINE": record.lineno,
        "CODE_FUNC": record.funcName or "",
        "LOGGER": record.name,
    }
    for name, value in fields_of(record, message).items():
        fields[f"MQBRIDGE_{name.upper()}"] = value
    return b"".join(_field(name, str(value)) for name, value in fields.items())


def _field(name: str, value: str) -> bytes:
    data = value.encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(data)), data)
