"""The log: one line an event on standard error, as text for people or JSON for programs, or an entry of systemd's journal.

Whoever sends messages chooses topics, names and how many errors there are, so lines are bounded: in length, in number, and
to characters that print.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from datetime import datetime

import msgspec

from bridge.config import LogConfig, LogLevel
from bridge.log_messages.identifier import divided
from bridge.service.flood import FloodHandler
from bridge.service.log_fields import fields_of, printable, priority_of
from bridge.service.systemd_journal import JournalHandler


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
