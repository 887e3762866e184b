"""The log: one line per event on standard error as text or JSON, or an entry of systemd's journal.

Clients choose topics and names, and how many errors there are. Lines are therefore limited in length, in number, and to
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

from bridge.config import LogConfig, LogLevel
from bridge.log_messages.identifier import divided
from bridge.transport.peer import Peer

#: Characters of a message at most.
LINE_LENGTH = 1_000

_REASON = re.compile(r"MQRC_[A-Z_]+[A-Z]")
#: Control characters, and what has no width or turns the direction of writing.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """Return a text as one line: what cannot be seen as escapes, cut where it is long."""
    if len(text) > LINE_LENGTH:
        text = f"{text[:LINE_LENGTH]} … ({len(text)} characters)"
    return _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def peer_of(record: logging.LogRecord) -> Peer | None:
    """Return the client that a record is about; None where it is about none, or names it otherwise."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    stated: Peer | None = getattr(record, "peer", None)
    return next((one for one in arguments if isinstance(one, Peer)), stated)


def fields_of(record: logging.LogRecord, message: str) -> dict[str, str]:
    """Return the fields of a record that are known, of `id`, `client`, `address`, `reason`; `message` is its message.

    `id` is the identifier of the message, `client` a client identifier, `reason` the name of an MQRC that the message tells.
    """
    found = {"id": divided(message)[0]}
    if (peer := peer_of(record)) is not None:
        found |= {"client": printable(peer.client_id), "address": peer.address}
    if (reason := _REASON.search(message)) is not None:
        found["reason"] = reason[0]
    return {name: value for name, value in found.items() if value or name == "client"}


#: Levels, and the priorities of syslog that they are.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


def priority_of(level: int) -> int:
    """Return the priority of syslog that a level is."""
    return next(priority for least, priority in _PRIORITIES if level >= least)


#: Lines of one kind (same identifier, or same place in the code) in one interval, and its seconds.
KIND_LINES, KIND_INTERVAL = 50, 10.0
#: Equal lines in an interval, before more of them are gathered. Not one: of "lost", "back", "lost", "back" the order counts,
#: and the last word is to be the last line.
EQUAL_LINES = 3
#: Characters that the count takes at most, of a line that is told with how often it was repeated.
_COUNT_LENGTH = 100


class _Line(msgspec.Struct):
    """A line that was let through so often; how often it came again since, and what tells of that."""

    passed: int = 0
    repeated: int = 0
    told: logging.LogRecord | None = None


class _Kind(msgspec.Struct):
    """The lines of a kind in the interval that began at `begun`."""

    begun: float
    lines: int = 0
    left_out: int = 0
    #: the last one left out
    last: logging.LogRecord | None = None
    #: those with an identifier that were let through
    known: dict[str, _Line] = {}


class Flood(logging.Filter):
    """Gathers equal lines; of the others lets so many of a kind through in an interval, and counts the rest.

    What was gathered and left out is told in lines of their own when the interval is over, whether or not another of the kind
    comes. Only lines with an identifier are gathered: of what another package says nobody knows what a repetition means.
    """

    def __init__(self) -> None:
        super().__init__()
        #: False: all lines go through
        self.at_work = True
        self._kinds: dict[str | tuple[str, int], _Kind] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.at_work or getattr(record, "is_count", False):
            return True
        try:
            message = record.getMessage()
            line = printable(message)
            if record.exc_info:
                line = f"{line}\n{printable(repr(record.exc_info[1]))}"
        except Exception:
            return True  # its arguments do not fit its text, which the handler behind this one says
        identifier, _ = divided(message)
        with self._lock:
            kind = self._kinds.setdefault(identifier or (record.pathname, record.lineno), _Kind(record.created))
            known = kind.known.get(line)
            if kind.lines < KIND_LINES and (known is None or known.passed < EQUAL_LINES):
                kind.lines += 1
                if identifier:
                    kind.known.setdefault(line, _Line()).passed += 1
                return True
            if known is None:
                kind.left_out += 1
                kind.last = record
            else:
                known.repeated += 1
                known.told = known.told or _told(record, line.partition("\n")[0])
            return False

    def due(self, now: float) -> list[logging.LogRecord]:
        """Return lines for each kind whose interval is over, of which some were gathered or left out; the next ones begin."""
        with self._lock:
            over = [kind for kind, state in self._kinds.items() if now - state.begun >= KIND_INTERVAL]
            states = [self._kinds.pop(kind) for kind in over]
        found = []
        for state in states:
            for line in state.known.values():
                if line.told is not None:
                    times = "once more" if line.repeated == 1 else f"{line.repeated} more times"
                    text = str(line.told.msg)[: LINE_LENGTH - _COUNT_LENGTH]
                    line.told.msg = f"{text} (repeated {times} in {KIND_INTERVAL:g} s)"
                    found.append(line.told)
            if state.last is not None:
                identifier, rest = divided(state.last.getMessage())
                text = f"{state.left_out} more lines like this were left out, the last: {rest}"
                found.append(_told(state.last, f"{identifier} {text}" if identifier else text))
        return found


def _told(record: logging.LogRecord, text: str) -> logging.LogRecord:
    """Return a record that tells of others like this one. It keeps no arguments and no traceback of it."""
    told = logging.LogRecord(
        record.name, record.levelno, record.pathname, record.lineno, text, (), None, record.funcName
    )  # fmt: skip
    told.is_count = True
    told.peer = peer_of(record)
    return told


class FloodHandler(logging.Handler):
    """Hands records on to another handler, and, once a second, tells it what was gathered and left out."""

    def __init__(self, output: logging.Handler) -> None:
        super().__init__()
        self._output = output
        self.flood = Flood()
        self.addFilter(self.flood)
        self._ended = threading.Event()
        threading.Thread(target=self._count, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        self._output.handle(record)

    def guard(self, wanted: bool) -> None:
        """Gather and leave out lines from now on, or hand all of them on."""
        self.flood.at_work = wanted
        if not wanted:
            self.tell(float("inf"))

    def _count(self) -> None:
        while not self._ended.wait(1.0):
            self.tell(time.time())

    def tell(self, now: float) -> None:
        """Hand on what is due."""
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


class TextFormatter(logging.Formatter):
    """A record as a line of text; a traceback follows it."""

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
    """A record as one JSON object: time (RFC 3339, UTC), level, logger, message, and the traceback if there is one.

    `id` is the identifier of the message, which does not have it, then. Of a message about a client also `client` (its
    identifier) and `address`; where it tells an MQRC, `reason` is its name.
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
    """Return whether standard error goes to systemd's journal, which then says so (systemd.exec(5), JOURNAL_STREAM)."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


def configure(config: LogConfig) -> None:
    """Send the log to where the configuration says: to standard error, or, where that is systemd's journal, to that.

    JSON lines go to standard error in any case: who asks for them reads them there.
    """
    output: logging.Handler = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    if config.format == "text" and is_journal():
        output = JournalHandler(otherwise=output)
    root = logging.getLogger()
    # At once: while the bridge runs, other threads write lines meanwhile.
    former, root.handlers = root.handlers, [FloodHandler(output)]
    set_level(config.level)
    for handler in former:
        handler.close()


def set_level(level: LogLevel) -> None:
    """Write lines of this level and above from now on; at `debug`, each of them, however many."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in root.handlers:
        if isinstance(handler, FloodHandler):
            handler.guard(level != "debug")


#: Lines kept.
LINES: Final = 500
#: Whose records are kept: the bridge's, and what Python's event loop has to say.
_LOGGERS: Final = ("bridge", "asyncio")


class Line(msgspec.Struct, frozen=True):
    """A line of the log."""

    number: int
    #: seconds since the epoch
    time: float
    #: severity, as `logging` has it
    level: int
    text: str


class LogTail(logging.Handler):
    """Keeps the last lines of the log, those that are as severe as the log's level."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[Line] = deque(maxlen=LINES)
        self._number = 0
        self._lines_lock = threading.Lock()

    def begin(self) -> None:
        """Keep what is written to the log from now on."""
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def end(self) -> None:
        """Keep nothing more."""
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = printable(record.getMessage())
            if record.exc_info and record.exc_info[1] is not None:
                # The traceback is in the log itself: paths of this machine are no one's business here.
                text += printable(f" ({type(record.exc_info[1]).__name__}: {record.exc_info[1]})")
        except Exception:
            self.handleError(record)
            return
        with self._lines_lock:
            self._number += 1
            self._lines.append(Line(self._number, record.created, record.levelno, text))

    def lines(self, level: int, wanted: str = "") -> list[Line]:
        """Return the lines that are so severe, and have a text in them, the newest first."""
        with self._lines_lock:
            kept = list(self._lines)
        folded = wanted.casefold()
        return [one for one in reversed(kept) if one.level >= level and folded in one.text.casefold()]
