"""The writer of the archive, in its own process: converts events to rows, and writes rows to files."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import logging
import math
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bridge.archive import events
from bridge.archive.completeness import FileNumbers
from bridge.archive.rows import Rows
from bridge.archive.schema import UNFINISHED, Direction, Row, expired_days, partition, row, unfinished_files
from bridge.clock import now_us
from bridge.config.operations import ArchiveConfig
from bridge.extras import install
from bridge.files import Locked, lock
from bridge.telemetry.outcome import Outcome

if TYPE_CHECKING:
    from bridge.archive.parquet import ArchiveFile

log = logging.getLogger(__name__)

#: Lock file of the directory, held by the process that writes there.
LOCK = ".lock"
#: Seconds between attempts to lock the directory.
POLL_INTERVAL = 0.2
#: Size of a row group: number of rows, and bytes of their messages.
GROUP_ROWS, GROUP_BYTES = 50_000, 16 * 1024 * 1024
#: Number of rows converted to Arrow columns at a time. Rows need more memory than columns.
SLICE_ROWS = 2_000
#: Memory counted for each row in addition to its event, in bytes.
ROW_BYTES = 256
#: An hour in microseconds.
HOUR = 3_600_000_000
#: Seconds between removals of expired files.
RETENTION_INTERVAL = 3600.0


class ArchiveError(Exception):
    """The archive cannot be written. The message states the cause and the solution."""


def prepare(config: ArchiveConfig) -> None:
    """Create the directory of the archive.

    Raises ArchiveError if pyarrow is not installed or the directory is not writable.
    """
    directory = config.directory
    assert directory is not None
    if importlib.util.find_spec("pyarrow") is None:
        raise ArchiveError(
            f"archive.directory is set, but pyarrow is not installed: `{install('archive')}` installs it"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / LOCK).open("ab").close()
    except OSError as error:
        message = f"the archive cannot be written to {directory}: {error.strerror}; see archive.directory"
        raise ArchiveError(message) from error


class ArchiveWriter:
    """Converts events to rows and writes them. Raises ArchiveError, and ImportError if pyarrow is broken."""

    def __init__(
        self,
        config: ArchiveConfig,
        report: Callable[[int, int, int], None] = lambda rows_taken, durable, rows_lost: None,
        damaged: Callable[[str], None] = lambda damage: None,
    ) -> None:
        """Prepare to write the archive.

        `report` is called with the number of event batches no longer held in memory, the number in finished files, and the
        number of rows that could not be written. `damaged` is called with a sentence about files that are missing at the
        start.
        """
        prepare(config)
        self._lock: IO[str] | None = None
        import bridge.archive.parquet as parquet

        assert config.directory is not None
        # The first array makes pyarrow look for pandas. Do that at start-up.
        parquet.record_batch([])
        self._parquet = parquet
        self.config = config
        self.directory: Path = config.directory
        self._report = report
        self._damaged = damaged
        # Numbers are greater than those of earlier runs, unless a run created more than a million rows per second of its
        # life.
        numbers = itertools.count(now_us())
        self.rows = Rows(numbers, payloads=config.payloads)
        self.open_sessions = events.OpenSessions(numbers)
        self._numbers = numbers
        #: numbers of event batches: received, with all rows in row groups, and with all rows in finished files. Then the last
        #: report
        self._event_batches = self._grouped = self._durable = 0
        self._reported = (0, 0, 0)
        #: rows not yet in a file, the size of their events in bytes, and the number of rows that could not be written
        self._waiting: list[Row] = []
        self._batches: list[Any] = []
        self._batch_rows = 0
        self._waiting_bytes = 0
        self._unwritten = 0
        #: rows that could not be written since the start
        self._lost = 0
        self._file: ArchiveFile | None = None
        self._file_numbers: FileNumbers | None = None
        self._file_since = 0.0
        self._partition: Path | None = None
        self._day = ""
        self._hour = -1
        self._swept = -math.inf

    def claim_directory(self, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait until no other process writes to the directory, then remove the unfinished files of killed processes.

        Returns False if `give_up` returns True first.
        """
        waits = False
        while True:
            try:
                self._lock = lock(self.directory / LOCK)
                break
            except Locked:
                if not waits:
                    log.warning("MQB7006W archive: another process writes to %s; waiting until it ends", self.directory)
                waits = True
            if give_up():
                return False
            time.sleep(POLL_INTERVAL)
        for file in unfinished_files(self.directory):
            file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # `_make_visible` tries again, and reports the error
            self._open_numbers()
        return True

    def take(self, batch: list[events.Event], size: int) -> None:
        """Process a batch of events with a total size of `size` bytes."""
        self._waiting_bytes += size
        for event in batch:
            if isinstance(event, events.SessionSnapshot):
                self.open_sessions.sessions = event.sessions
                continue
            self._turn(event.now)
            try:
                self._waiting += self._rows_of(event)
            except Exception:
                log.exception("MQB7007E archive: rows are missing, because converting %r failed", event)
                self._unwritten += 1
                self._lost += 1
            if len(self._waiting) >= SLICE_ROWS:
                self._slice()
            if self._batch_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
                self._group()
        self._event_batches += 1
        self._report_progress()

    def _rows_of(self, event: events.Event) -> list[Row]:
        match event:
            case events.PublishedEvent():
                return self.rows.published(event)
            case events.SettledEvent():
                return self.rows.settled(event)
            case events.MappedEvent():
                return self.rows.mapped(event)
            case events.ArchiveEvent():
                return [self._own_row(event)]
            case events.SessionEvent():
                return self.open_sessions.follow(event)
            case events.SessionSnapshot():  # no rows: see `take`
                return []

    def maintain(self) -> None:
        """Finish the file, and remove expired files, if it is time."""
        if self._unfinished and time.monotonic() - self._file_since >= self.config.roll.time:
            self._finish()
            self._report_progress()
        if self.config.retention_days is not None and time.monotonic() - self._swept >= RETENTION_INTERVAL:
            self._swept = time.monotonic()
            self._sweep(timedelta(days=self.config.retention_days))

    def due(self) -> float | None:
        """Return the seconds until the next call of `maintain` is due, or None if none is due before the next event."""
        moments = []
        if self._unfinished:
            moments.append(self._file_since + self.config.roll.time)
        if self.config.retention_days is not None:
            moments.append(self._swept + RETENTION_INTERVAL)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def close(self) -> None:
        """Write the remaining rows, and unlock the directory."""
        self._finish()
        self._report_progress()
        if self._file_numbers is not None:
            self._file_numbers.close()
            self._file_numbers = None
        if self._lock is not None:
            self._lock.close()

    @property
    def _unfinished(self) -> bool:
        return bool(self._file is not None or self._waiting or self._batches or self._unwritten)

    def _report_progress(self) -> None:
        if not self._waiting and not self._batches:
            self._grouped = self._event_batches
            if self._file is None and not self._unwritten:
                self._durable = self._event_batches
        progress = (self._grouped, self._durable, self._lost)
        if progress != self._reported:
            self._reported = progress
            self._report(*progress)

    def _turn(self, now: int) -> None:
        """Start a new file for a new hour. On a new day, repeat the rows of the open sessions."""
        if not self._unfinished:
            self._file_since = time.monotonic()
        hour = now // HOUR
        if hour == self._hour:
            return
        self._hour = hour
        moment = datetime.fromtimestamp(now / 1_000_000, UTC)
        directory = partition(self.directory, moment)
        if directory != self._partition:
            self._finish()
            self._partition = directory
            self._file_since = time.monotonic()
        day = f"{moment:%Y-%m-%d}"
        if day != self._day:
            self._day = day
            self._waiting += self.open_sessions.again()

    def _own_row(self, event: events.ArchiveEvent) -> Row:
        """Return a row about the archive itself."""
        return row(
            sequence=next(self._numbers),
            direction=Direction.ARCHIVE,
            outcome=event.outcome,
            size=event.size,
            received=event.now if event.received is None else event.received,
            settled=event.now,
        )

    def _slice(self) -> None:
        """Convert the waiting rows to columns."""
        rows, self._waiting = self._waiting, []
        if rows:
            self._batches.append(self._parquet.record_batch(rows))
            self._batch_rows += len(rows)

    def _group(self) -> None:
        """Write the waiting rows as a row group. On an error they are missing, and the archive continues."""
        self._slice()
        batches, self._batches = self._batches, []
        self._waiting_bytes = 0
        rows = self._batch_rows + (self._file.rows if self._file is not None else 0)
        self._batch_rows = 0
        # The current batch of events is not counted, because it may have more rows.
        self._grouped = self._event_batches
        try:
            if batches:
                if self._file is None:
                    assert self._partition is not None
                    self._file = self._parquet.ArchiveFile(self._partition, batches[0]["sequence"][0].as_py())
                self._file.write(batches)
                if self._file.rows >= self.config.roll.rows or self._file.size >= self.config.roll.size:
                    self._make_visible(self._file)
                    self._file = None
                    self._file_since = time.monotonic()
                    self._finished()
        except (OSError, self._parquet.ArrowException) as error:
            self._failed(error, rows)

    def _open_numbers(self) -> FileNumbers:
        """Return the numbers of files. Raises OSError."""
        if self._file_numbers is None:
            self._file_numbers = FileNumbers(self.directory)
            if self._file_numbers.damage:
                log.error("MQB7012E %s", self._file_numbers.damage)
                self._damaged(self._file_numbers.damage)
        return self._file_numbers

    def _make_visible(self, file: ArchiveFile) -> None:
        """Finish a file. Raises OSError and pyarrow.ArrowException."""
        numbers = self._open_numbers()
        file.finish(numbers)
        try:
            numbers.record()
        except OSError as error:
            log.error("MQB7013E archive: recording the number of a file failed: %s", error)

    def _finished(self) -> None:
        """Update the progress after a file is finished, unless a gap is not recorded yet."""
        if not self._unwritten:
            self._durable = self._event_batches

    def _failed(self, error: Exception, rows: int) -> None:
        if self._file is not None:
            self._file.abandon()
            self._file = None
        log.error("MQB7008E archive: writing %d rows to %s failed, they are missing: %s", rows, self.directory, error)
        self._unwritten += rows
        self._lost += rows
        self._file_since = time.monotonic()

    def _finish(self) -> None:
        """Finish the current file, so that readers can see its rows."""
        missing = 0
        if self._unwritten and self._partition is not None:
            missing, self._unwritten = self._unwritten, 0
            self._waiting.append(self._own_row(events.ArchiveEvent(now_us(), Outcome.GAP, size=missing)))
        self._group()
        if self._file is not None:
            rows = self._file.rows
            try:
                self._make_visible(self._file)
            except (OSError, self._parquet.ArrowException) as error:
                self._failed(error, rows)
            else:
                self._finished()
            self._file = None
        if self._unwritten and missing:
            # The gap row itself is one of the failed rows.
            self._unwritten += missing - 1
            self._lost -= 1

    def _sweep(self, retention: timedelta) -> None:
        try:
            for path in self.directory.glob(f"{UNFINISHED}date=*"):
                shutil.rmtree(path)
            expired = expired_days(self.directory, retention, datetime.now(UTC))
            if expired and expired == sorted(self.directory.glob("date=*")):
                self._open_numbers().forget()
            for day in expired:
                # Readers see all files of a day, or none.
                shutil.rmtree(day.rename(day.with_name(f"{UNFINISHED}{day.name}")))
                log.info("MQB7009I archive: removed %s, which is older than %d days", day, retention.days)
        except OSError as error:
            log.error("MQB7010E archive: removing old days failed: %s", error)
