"""The last lines of the log, for who looks at it from elsewhere."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

import msgspec

from bridge.service.log_fields import printable

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
