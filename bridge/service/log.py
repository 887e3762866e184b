"""The log: text or JSON on standard error, or entries of systemd's journal.

Clients choose topics and names and can cause any number of errors. So lines are limited in length and number, and to
printable characters.
"""

from __future__ import annotations

import array
import errno
import fcntl
import logging
import os
import re
import socket
import struct
import sys
import threading
import time
from collections import deque
from datetime import datetime
from typing import Final

import msgspec

from bridge.administration.answers import LogLine
from bridge.config.operations import LogConfig, LogLevel
from bridge.log_messages.identifier import divided
from bridge.log_messages.printable import LINE_LENGTH, printable
from bridge.transport.layers import Peer

_REASON = re.compile(r"MQRC_[A-Z_]+[A-Z]")


def peer_of(record: logging.LogRecord) -> Peer | None:
    """Return the client that a record is about, or None if unknown."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    stated: Peer | None = getattr(record, "peer", None)
    return next((argument for argument in arguments if isinstance(argument, Peer)), stated)


def fields_of(record: logging.LogRecord, message: str) -> dict[str, str]:
    """Return the known fields of a record: `id`, `client`, `address`, `reason`, and those that it was logged with.

    `message` is the message of the record. `id` is the message identifier, `client` the client identifier, `reason` the name
    of an MQRC in the message. `extra={"fields": …}` of a logging call adds others.
    """
    fields = {"id": divided(message)[0]}
    # A topic of a client may be long, and contain anything.
    fields |= {name: printable(value) for name, value in getattr(record, "fields", {}).items()}
    if (peer := peer_of(record)) is not None:
        fields |= {"client": printable(peer.client_id), "address": peer.address}
    if (reason := _REASON.search(message)) is not None:
        fields["reason"] = reason[0]
    return {name: value for name, value in fields.items() if value or name == "client"}


#: Minimum log levels of syslog priorities.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


def priority_of(level: int) -> int:
    """Return the syslog priority of a log level."""
    return next(priority for least, priority in _PRIORITIES if level >= least)


#: Maximum number of lines per kind (same identifier, or same place in the code) in an interval, and its length in seconds.
KIND_LINES, KIND_INTERVAL = 50, 10.0
#: Equal lines per interval before further ones are aggregated. More than one, because in "lost", "back", "lost", "back" the
#: order and the last line matter.
EQUAL_LINES = 3
#: Maximum number of characters of the repeat count in an aggregated line.
_COUNT_LENGTH = 100


class _Line(msgspec.Struct):
    """The number of times that a line was logged and then suppressed, and the record that will report its repetitions."""

    passed: int = 0
    repeated: int = 0
    record: logging.LogRecord | None = None


class _Kind(msgspec.Struct):
    """The lines of one kind in the interval that began at `begun`."""

    begun: float
    lines: int = 0
    left_out: int = 0
    #: the last omitted line
    last: logging.LogRecord | None = None
    #: logged lines with an identifier
    known: dict[str, _Line] = {}


class Flood(logging.Filter):
    """Aggregates equal lines, and limits the number of other lines per kind and interval.

    When the interval is over, separate lines report the aggregated and omitted lines. Only lines with an identifier are
    aggregated: the meaning of repetitions in other packages' lines is unknown.
    """

    def __init__(self) -> None:
        super().__init__()
        #: False: pass all lines
        self.at_work = True
        self._kinds: dict[str | tuple[str, int], _Kind] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.at_work or getattr(record, "is_unlimited", False):
            return True
        try:
            message = record.getMessage()
            line = printable(message)
            if record.exc_info:
                line = f"{line}\n{printable(repr(record.exc_info[1]))}"
        except Exception:
            return True  # the arguments do not match the format; the next handler reports that
        identifier, _ = divided(message)
        with self._lock:
            kind = self._kinds.setdefault(identifier or (record.pathname, record.lineno), _Kind(record.created))
            line_state = kind.known.get(line)
            if kind.lines < KIND_LINES and (line_state is None or line_state.passed < EQUAL_LINES):
                kind.lines += 1
                if identifier:
                    kind.known.setdefault(line, _Line()).passed += 1
                return True
            if line_state is None:
                kind.left_out += 1
                kind.last = record
            else:
                line_state.repeated += 1
                line_state.record = line_state.record or _report(record, line.partition("\n")[0])
            return False

    def due(self, now: float) -> list[logging.LogRecord]:
        """Return the reports of all kinds whose interval is over, and start new intervals for them."""
        with self._lock:
            over = [kind for kind, state in self._kinds.items() if now - state.begun >= KIND_INTERVAL]
            states = [self._kinds.pop(kind) for kind in over]
        records = []
        for state in states:
            for line in state.known.values():
                if line.record is not None:
                    times = "once more" if line.repeated == 1 else f"{line.repeated} more times"
                    text = str(line.record.msg)[: LINE_LENGTH - _COUNT_LENGTH]
                    line.record.msg = f"{text} (repeated {times} in {KIND_INTERVAL:g} s)"
                    records.append(line.record)
            if state.last is not None:
                identifier, rest = divided(state.last.getMessage())
                text = f"{state.left_out} more lines like this were left out, the last: {rest}"
                records.append(_report(state.last, f"{identifier} {text}" if identifier else text))
        return records


def _report(record: logging.LogRecord, text: str) -> logging.LogRecord:
    """Return a record that reports lines like this one. It keeps neither the arguments nor the traceback."""
    summary = logging.LogRecord(
        record.name, record.levelno, record.pathname, record.lineno, text, (), None, record.funcName
    )
    summary.is_unlimited = True
    summary.peer = peer_of(record)
    return summary


class FloodHandler(logging.Handler):
    """Forwards records to another handler and reports aggregated and omitted lines once a second."""

    def __init__(self, output: logging.Handler) -> None:
        super().__init__()
        self._output = output
        self.flood = Flood()
        self.addFilter(self.flood)
        self._ended = threading.Event()
        threading.Thread(target=self._count, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        self._output.handle(record)

    def guard(self, is_wanted: bool) -> None:
        """Enable or disable the flood protection."""
        self.flood.at_work = is_wanted
        if not is_wanted:
            self.report(float("inf"))

    def _count(self) -> None:
        while not self._ended.wait(1.0):
            self.report(time.time())

    def report(self, now: float) -> None:
        """Log the reports that are due."""
        for record in self.flood.due(now):
            self.handle(record)

    def close(self) -> None:
        self._ended.set()
        self.guard(False)
        self._output.close()
        super().close()


SOCKET: Final = "/run/systemd/journal/socket"

_TOO_LONG: Final = (errno.EMSGSIZE, errno.ENOBUFS)
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_TRACEBACKS: Final = logging.Formatter()


class JournalHandler(logging.Handler):
    """Sends records to systemd's journal, or to another handler if that fails."""

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
            # Not connected, because the journal may be restarted.
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
    """Return a record as a journal entry. A traceback is part of its MESSAGE."""
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
    encoded = value.encode("utf-8", "backslashreplace")
    if b"\n" not in encoded:
        return b"%s=%s\n" % (name.encode(), encoded)
    return b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(encoded)), encoded)


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text, followed by the traceback, if any."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        #: under systemd, each line begins with its priority (sd-daemon(3))
        self._is_journal = is_journal()

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._is_journal:
            return text
        return "\n".join(f"<{priority_of(record.levelno)}>{line}" for line in text.split("\n"))

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time (RFC 3339, UTC), level, logger, message, and the traceback, if any.

    The fields of `fields_of` are added. `id` is then omitted from the message.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage()
        entry = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(divided(message)[1]),
        }
        entry |= fields_of(record, message)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def is_journal() -> bool:
    """Return whether standard error is connected to systemd's journal (systemd.exec(5), JOURNAL_STREAM)."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    try:
        journal_stat = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return stream == f"{journal_stat.st_dev}:{journal_stat.st_ino}"


def configure(config: LogConfig) -> None:
    """Send the log to standard error, or to systemd's journal if standard error is connected to it.

    JSON lines are always written to standard error, where their consumer expects them.
    """
    output: logging.Handler = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    if config.format == "text" and is_journal():
        output = JournalHandler(otherwise=output)
    root = logging.getLogger()
    # In a single assignment, because other threads may be logging.
    former, root.handlers = root.handlers, [FloodHandler(output)]
    set_level(config.level)
    for handler in former:
        handler.close()


def set_level(level: LogLevel) -> None:
    """Log messages of this level and above. At `debug`, the number of lines is not limited."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in root.handlers:
        if isinstance(handler, FloodHandler):
            handler.guard(level != "debug")


#: Number of lines kept.
LINES: Final = 500
#: Loggers whose records are kept: the bridge's and asyncio's.
_LOGGERS: Final = ("bridge", "asyncio")


class LogTail(logging.Handler):
    """Keeps the last lines of the log, subject to the log level."""

    def __init__(self) -> None:
        super().__init__()
        #: the lines with their levels
        self._lines: deque[tuple[int, LogLine]] = deque(maxlen=LINES)

    def begin(self) -> None:
        """Start keeping lines."""
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def end(self) -> None:
        """Stop keeping lines."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = printable(record.getMessage())
            if record.exc_info and record.exc_info[1] is not None:
                # The traceback is only in the log itself: local paths must not be disclosed here.
                text += printable(f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})")
        except Exception:
            self.handleError(record)
            return
        self._lines.append((record.levelno, LogLine(record.created, record.levelname.lower(), text)))

    def lines(self, level: int, text: str = "") -> list[LogLine]:
        """Return the lines of a minimum severity that contain a text, newest first."""
        folded = text.casefold()
        lines = self._lines.copy()
        return [line for severity, line in reversed(lines) if severity >= level and folded in line.text.casefold()]
