"""The log: one line an event on standard error, as text for people or JSON for programs.

Whoever sends messages chooses topics, names and how many errors there are, so lines are bounded: in length, in number, and
to characters that print.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from datetime import datetime
from typing import TextIO

import msgspec

from bridge.config import LogConfig
from bridge.mqtt.transport.peer import Peer

#: Characters of a message at most.
LINE_LENGTH = 1_000
#: Lines of one kind (same place in the code) in one interval, and its seconds.
KIND_LINES, KIND_INTERVAL = 50, 10.0

_REASON = re.compile(r"MQRC_[A-Z_]+[A-Z]")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: str) -> str:
    """Return a text as one line: control characters as escapes, cut where it is long."""
    if len(text) > LINE_LENGTH:
        text = f"{text[:LINE_LENGTH]} … ({len(text)} characters)"
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


class Flood(logging.Filter):
    """Lets so many lines of a kind through in an interval, and counts the rest.

    What was left out is told in a line of its own when the interval is over, whether or not another of the kind comes.
    """

    def __init__(self) -> None:
        super().__init__()
        #: kind -> (begin of the interval, lines in it, the last one left out)
        self._kinds: dict[tuple[str, int], tuple[float, int, logging.LogRecord | None]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_count", False):
            return True
        kind = (record.pathname, record.lineno)
        with self._lock:
            begun, lines, last = self._kinds.get(kind, (record.created, 0, None))
            passes = lines < KIND_LINES
            self._kinds[kind] = (begun, lines + 1, last if passes else record)
        return passes

    def due(self, now: float) -> list[logging.LogRecord]:
        """Return a line for each kind whose interval is over, and of which some were left out; the next ones begin."""
        found: list[logging.LogRecord] = []
        with self._lock:
            for kind, (begun, lines, last) in list(self._kinds.items()):
                if now - begun < KIND_INTERVAL:
                    continue
                del self._kinds[kind]
                if last is not None:
                    text = f"{lines - KIND_LINES} more lines like this were left out, the last: {last.getMessage()}"
                    told = logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, text, (), None)
                    told.is_count = True
                    found.append(told)
        return found


class FloodHandler(logging.StreamHandler[TextIO]):
    """Writes records, and, once a second, how many were left out of a kind."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.flood = Flood()
        self.addFilter(self.flood)
        self._ended = threading.Event()
        threading.Thread(target=self._count, name="log", daemon=True).start()

    def _count(self) -> None:
        while not self._ended.wait(1.0):
            self.tell(time.time())

    def tell(self, now: float) -> None:
        """Write what is due."""
        for record in self.flood.due(now):
            self.handle(record)

    def close(self) -> None:
        self._ended.set()
        self.tell(float("inf"))
        super().close()


class TextFormatter(logging.Formatter):
    """A record as a line of text; a traceback follows it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        #: under systemd, each line begins with its priority (sd-daemon(3))
        self._is_journal = _is_journal()

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._is_journal:
            return text
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time (RFC 3339, UTC), level, logger, message, and the traceback if there is one.

    Of a message about a client also `client` (its identifier) and `address`; where it tells an MQRC, `reason` is its name.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage()
        entry = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(message),
        }
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, Peer):
                entry |= {"client": printable(argument.client_id), "address": argument.address}
        if (reason := _REASON.search(message)) is not None:
            entry["reason"] = reason[0]
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


#: Levels, and the priorities of syslog that they are.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))


def _is_journal() -> bool:
    """Return whether standard error goes to systemd's journal, which then says so (systemd.exec(5), JOURNAL_STREAM)."""
    stream = os.environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return stream == f"{found.st_dev}:{found.st_ino}"


def configure(config: LogConfig) -> None:
    """Send the log to standard error as the configuration says."""
    handler = logging.StreamHandler(sys.stderr) if config.level == "debug" else FloodHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
