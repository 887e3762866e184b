"""The thread that writes the archive. Traffic never waits for it: what does not fit into its memory is counted as a gap."""

from __future__ import annotations

import fcntl
import itertools
import logging
import math
import threading
import time
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.archive import directory as archive_directory
from bridge.archive.rows import Rows
from bridge.archive.schema import Direction, Outcome, Row, row
from bridge.archive.standing import Expansion, Standing
from bridge.config.archive import ArchiveConfig

if TYPE_CHECKING:
    from bridge.archive.parquet import ArchiveFile

log = logging.getLogger(__name__)

INSTALL = "pip install 'mq-mqtt-bridge[archive]' (in a checkout: pip install '.[archive]')"
#: File of the directory that the process which writes there has locked.
LOCK = ".lock"
#: Seconds between looks for what was handed over.
LOOK_INTERVAL = 0.2
#: Rows, and bytes of their messages, of a row group.
GROUP_ROWS, GROUP_BYTES = 50_000, 16 * 1024 * 1024
#: Rows that are made into Arrow's columns at a time: so few that the event loop never waits long for the interpreter's lock.
SLICE_ROWS = 500
#: Bytes that a row counts for besides its payload.
ROW_BYTES = 256
#: Seconds between attempts to remove what is older than the retention.
RETENTION_INTERVAL = 3600.0


class ArchiveError(Exception):
    """The archive cannot be written; the message says what is missing and what to do."""


def now_us() -> int:
    """The time as rows have it: microseconds since the epoch."""
    return time.time_ns() // 1000


class ArchiveWriter:
    """Takes events from one thread (`add`), makes rows of them in its own, and writes them.

    Raises ArchiveError when pyarrow is not installed or the directory cannot be written.
    """

    def __init__(self, config: ArchiveConfig) -> None:
        assert config.directory is not None
        try:
            import bridge.archive.parquet as parquet
        except ImportError as error:
            raise ArchiveError(f"archive.directory is set, but pyarrow is not installed: {INSTALL} brings it") from error
        self._parquet = parquet
        self.config = config
        self.directory: Path = config.directory
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / LOCK).open("ab")
        except OSError as error:
            raise ArchiveError(
                f"the archive cannot be written to {self.directory}: {error.strerror}; see archive.directory"
            ) from error
        # Numbers begin behind those of every earlier run, as long as no run made a million rows each second of its life.
        numbers = itertools.count(now_us())
        self.rows = Rows(numbers, payloads=config.payloads)
        self.standing = Standing(numbers)
        self._numbers = numbers
        self._events: deque[tuple[int, int, Expansion, tuple[Any, ...]]] = deque()
        # Each of these has one thread that writes it: the caller's `_handed` and `_missed`, this one's the others.
        self._handed = 0
        self._missed = 0
        self._missed_since = 0
        self._taken = 0
        self._told = 0
        #: rows not yet in a file, the events' bytes that they stand for, and rows that could not be written
        self._waiting: list[Row] = []
        self._batches: list[Any] = []
        self._batch_rows = 0
        self._waiting_bytes = 0
        self._unwritten = 0
        self._file: ArchiveFile | None = None
        self._file_since = 0.0
        self._partition: Path | None = None
        self._day = ""
        self._began = 0
        self._swept = -math.inf
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    # The caller's thread ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        self._began = now_us()
        self._thread.start()

    def add(self, count: int, size: int, expand: Expansion, *arguments: Any) -> None:
        """Have `expand(now, *arguments)` make `count` rows later, of messages with `size` bytes of payloads."""
        size += count * ROW_BYTES
        if self._handed - self._taken + size > self.config.memory:
            if self._missed == self._told:
                self._missed_since = now_us()
            self._missed += count
            return
        self._handed += size
        self._events.append((now_us(), size, expand, arguments))

    def close(self, timeout: float) -> bool:
        """Write all that was handed over; False when that takes longer than `timeout` seconds."""
        self._ending.set()
        if self._thread.ident is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # Its own thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._take_over():
            return
        self._own(Outcome.STARTED, self._began)
        while not self._ending.wait(LOOK_INTERVAL):
            self._look()
        self._look()
        self._own(Outcome.STOPPED, now_us())
        self._finish()
        self._lock.close()

    def _take_over(self) -> bool:
        """Wait until no other process writes to the directory, then remove what one that was killed left half done."""
        waits = False
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waits:
                    log.warning("archive: another process writes to %s; waiting until it ends", self.directory)
                waits = True
            if self._ending.wait(LOOK_INTERVAL):
                return False
        for left in archive_directory.unfinished(self.directory):
            left.unlink(missing_ok=True)
        return True

    def _look(self) -> None:
        """Take what was handed over, and finish the file when it is time."""
        events = self._events
        while events:
            now, size, expand, arguments = events.popleft()
            self._turn(now)
            try:
                self._waiting += expand(now, *arguments)
            except Exception:
                log.exception("archive: rows are missing, because they cannot be made of %r", arguments)
                self._unwritten += 1
            self._waiting_bytes += size
            if len(self._waiting) >= SLICE_ROWS:
                self._slice()
            if self._batch_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
                self._group()
            time.sleep(0)
        self._tell_gap()
        unfinished = self._file is not None or self._waiting or self._batches
        if unfinished and time.monotonic() - self._file_since >= self.config.roll.time:
            self._finish()
        if self.config.retention_days is not None and time.monotonic() - self._swept >= RETENTION_INTERVAL:
            self._swept = time.monotonic()
            self._sweep(timedelta(days=self.config.retention_days))

    def _turn(self, now: int) -> None:
        """Rows of another hour go to another file; a day begins with what stands from the day before."""
        moment = datetime.fromtimestamp(now / 1_000_000, UTC)
        partition = archive_directory.partition(self.directory, moment)
        if partition != self._partition:
            self._finish()
            self._partition = partition
        if not self._waiting and not self._batches and self._file is None:
            self._file_since = time.monotonic()
        day = f"{moment:%Y-%m-%d}"
        if day != self._day:
            self._day = day
            self._waiting += self.standing.again()

    def _own(self, outcome: Outcome, now: int, since: int | None = None, count: int = 0) -> None:
        """A row about the archive itself."""
        self._turn(now)
        self._waiting.append(self._own_row(outcome, now, since, count))

    def _own_row(self, outcome: Outcome, now: int, since: int | None = None, count: int = 0) -> Row:
        return row(
            sequence=next(self._numbers), direction=Direction.ARCHIVE, outcome=outcome, size=count,
            received=now if since is None else since, settled=now,
        )  # fmt: skip

    def _tell_gap(self) -> None:
        missed = self._missed - self._told
        if not missed:
            return
        since = self._missed_since
        self._told += missed
        self._own(Outcome.GAP, now_us(), since, missed)
        log.warning(
            "archive: %d rows are missing, because %d bytes were waiting to be written (archive.memory)",
            missed,
            self.config.memory,
        )

    def _slice(self) -> None:
        """Make columns of the rows that wait."""
        rows, self._waiting = self._waiting, []
        if rows:
            self._batches.append(self._parquet.record_batch(rows))
            self._batch_rows += len(rows)

    def _group(self) -> None:
        """Write the rows that wait; where that fails they are missing, and the archive goes on."""
        self._slice()
        batches, self._batches = self._batches, []
        size, self._waiting_bytes = self._waiting_bytes, 0
        held = self._batch_rows + (self._file.rows if self._file is not None else 0)
        self._batch_rows = 0
        try:
            if batches:
                if self._file is None:
                    assert self._partition is not None
                    # In the order of the rows, and never the name of a file that is there, should the clock be set back.
                    name = f"{batches[0]['sequence'][0].as_py():016d}-{uuid4().hex[:8]}"
                    self._file = self._parquet.ArchiveFile(self._partition, name)
                self._file.write(batches)
                if self._file.rows >= self.config.roll.rows or self._file.size >= self.config.roll.size:
                    self._file.finish()
                    self._file = None
                    self._file_since = time.monotonic()
        except (OSError, self._parquet.ArrowException) as error:
            self._failed(error, held)
        self._taken += size

    def _failed(self, error: Exception, rows: int) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None
        log.error("archive: %d rows cannot be written to %s and are missing: %s", rows, self.directory, error)
        self._unwritten += rows

    def _finish(self) -> None:
        """Let readers have what was written so far."""
        if self._unwritten and self._partition is not None:
            missing, self._unwritten = self._unwritten, 0
            self._waiting.append(self._own_row(Outcome.GAP, now_us(), count=missing))
        self._group()
        if self._file is None:
            return
        held = self._file.rows
        try:
            self._file.finish()
        except (OSError, self._parquet.ArrowException) as error:
            self._failed(error, held)
        self._file = None

    def _sweep(self, retention: timedelta) -> None:
        try:
            for day in archive_directory.expired(self.directory, retention, datetime.now(UTC)):
                archive_directory.remove(day)
                log.info("archive: %s is older than %d days and removed", day, retention.days)
        except OSError as error:
            log.error("archive: what is older than the retention cannot be removed: %s", error)
