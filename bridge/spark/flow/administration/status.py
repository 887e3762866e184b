"""The status of a pipeline: what its process writes down in its directory, for `mqbridge pipeline show`.

It is a file, because the last batch and the last error are asked for when no process is there any more, too. Who has the
lock of the directory runs the pipeline: so one that was killed is not taken for one that runs.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from bridge.files import holder

#: Files of a pipeline's directory: the one that the process which runs it has locked, and its status.
LOCK: Final = "lock"
STATUS: Final = "status.json"
#: Seconds that rates are of.
RATE_PERIOD: Final = 60.0
#: Batches that are kept for them at most.
_RECENT: Final = 500

State = Literal["starting", "running", "failing", "stopped", "done", "given up"]


class BatchSummary(msgspec.Struct, frozen=True):
    """A batch that is done: when, how long it took in seconds, and its rows."""

    number: int
    at: float
    seconds: float
    rows_in: int
    rows_out: int
    dead_letters: int
    #: rows that came too late for the watermark (of a join of streams at least)
    late: int
    #: messages behind it at the source; None: the source does not tell
    waiting: int | None
    #: since when the first of those waits, seconds since 1970; None: none does, or the source does not tell
    oldest: float | None = None


class Failure(msgspec.Struct, frozen=True):
    """What went wrong last: when, what, and what there is to do ("": nobody knows)."""

    at: float
    what: str
    remedy: str = ""


class Status(msgspec.Struct, frozen=True):
    """What a pipeline does, or did. Times are seconds since 1970; sums are of one run of the command."""

    process: int
    host: str
    since: float
    state: State = "starting"
    #: when it ended; None: it runs, or was killed
    until: float | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    late: int = 0
    #: of this run or one before
    last_batch: BatchSummary | None = None
    last_error: Failure | None = None
    #: when a batch was done, its rows in and out: for rates
    recent: tuple[tuple[float, int, int], ...] = ()

    def rate(self, now: float) -> tuple[float, float]:
        """Return the rows per second, in and out, of the last minute, or since the run began where that is shorter."""
        seconds = max(min(now - self.since, RATE_PERIOD), 1.0)
        rows = [one for one in self.recent if one[0] > now - RATE_PERIOD]
        return sum(one[1] for one in rows) / seconds, sum(one[2] for one in rows) / seconds


def read_status(directory: Path) -> Status | None:
    """Return the status that a pipeline has left; None where it has not run. Raises OSError, msgspec.DecodeError."""
    try:
        return msgspec.json.decode((directory / STATUS).read_bytes(), type=Status)
    except FileNotFoundError:
        return None


def runs(directory: Path) -> str | None:
    """Return the number of the process that runs a pipeline; None: none does. Raises OSError.

    The look takes a shared lock for a moment: who wants to run the pipeline waits for that.
    """
    return holder(directory / LOCK)


class StatusRecord:
    """Writes the status of a pipeline that this process runs, at each change. From any thread; what fails is told once."""

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        self._file = directory / STATUS
        self._tell = tell
        self._changing = threading.Lock()
        self._told = False
        try:
            before = read_status(directory)
        except (OSError, msgspec.DecodeError):
            before = None  # it is written anew
        self._status = Status(os.getpid(), socket.gethostname(), time.time())
        if before is not None:
            self._status = replace(self._status, last_batch=before.last_batch, last_error=before.last_error)
        self._change()

    def running(self) -> None:
        """Note that the query has started."""
        self._change(state="running")

    def done(self, batch: BatchSummary) -> None:
        """Note a batch."""
        status = self._status
        recent = [one for one in status.recent if one[0] > batch.at - RATE_PERIOD][1 - _RECENT :]
        self._change(
            state="running",
            batches=status.batches + 1,
            rows_in=status.rows_in + batch.rows_in,
            rows_out=status.rows_out + batch.rows_out,
            dead_letters=status.dead_letters + batch.dead_letters,
            late=status.late + batch.late,
            last_batch=batch,
            recent=(*recent, (batch.at, batch.rows_in, batch.rows_out)),
        )

    def failed(self, what: str, remedy: str = "") -> None:
        """Note an error, after which the pipeline is tried again."""
        self._change(state="failing", last_error=Failure(time.time(), what, remedy))

    def ended(self, state: State) -> None:
        """Note the end."""
        self._change(state=state, until=time.time())

    def _change(self, **changes: Any) -> None:
        with self._changing:
            self._status = replace(self._status, **changes)
            unfinished = self._file.with_suffix(".new")
            try:
                unfinished.write_bytes(msgspec.json.encode(self._status))
                unfinished.rename(self._file)
            except OSError as error:
                if not self._told:
                    self._tell(f"{self._file} is not written, so that `mqbridge pipeline show` does not know: {error}")
                self._told = True
            else:
                self._told = False
