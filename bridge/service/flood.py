"""The log is bounded in number: lines that are repeated are gathered, and of a kind so many are written in an interval."""

from __future__ import annotations

import logging
import threading
import time

import msgspec

from bridge.log_messages.identifier import divided
from bridge.service.log_fields import LINE_LENGTH, peer_of, printable

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
