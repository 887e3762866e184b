"""The log: one line an event on standard error, as text for people or JSON for programs.

Whoever sends messages chooses topics, names and how many errors there are, so lines are bounded: in length, in number, and
to characters that print.
"""

from __future__ import annotations

import logging
import re
import sys
import time

import msgspec

from bridge.config import LogConfig

#: Characters of a message at most.
LINE_LENGTH = 1_000
#: Lines of one kind (same place in the code) in one interval, and its seconds.
KIND_LINES, KIND_INTERVAL = 50, 10.0

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: str) -> str:
    """One line: control characters as escapes, cut where it is long."""
    if len(text) > LINE_LENGTH:
        text = f"{text[:LINE_LENGTH]} … ({len(text)} characters)"
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


class Flood(logging.Filter):
    """Lets so many lines of a kind through in an interval; the first after it tells how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        #: kind -> (begin of the interval, lines in it)
        self._kinds: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.pathname, record.lineno)
        begun, lines = self._kinds.get(kind, (0.0, 0))
        if record.created - begun >= KIND_INTERVAL:
            if lines > KIND_LINES:
                record.msg = f"{record.getMessage()} ({lines - KIND_LINES} more like this were left out)"
                record.args = ()
            begun, lines = record.created, 0
        self._kinds[kind] = (begun, lines + 1)
        return lines < KIND_LINES


class TextFormatter(logging.Formatter):
    """A record as a line of text; a traceback follows it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time (RFC 3339, UTC), level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def configure(config: LogConfig) -> None:
    """Send the log to standard error as the configuration says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else TextFormatter())
    if config.level != "debug":
        handler.addFilter(Flood())
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
