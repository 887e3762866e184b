"""The event queue of the archive: passes events to the archive process without delaying traffic.

A thread sends the events in large batches through a pipe. It tracks the batches that are not yet in a finished file. If the
process dies, the next process records their rows as a gap. Session events in these batches are sent again, because there are
few of them and the archive depends on them.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from bridge.archive import events
from bridge.archive.writer import ROW_BYTES, prepare
from bridge.clock import now_us
from bridge.telemetry.outcome import Outcome

if TYPE_CHECKING:
    from bridge.config.operations import ArchiveConfig

#: The module that runs in the process.
MODULE: Final = "bridge.archive.process"
#: Requested size of the pipe for batches, in bytes.
PIPE: Final = 1024 * 1024
#: Size of the length prefix of each batch, in bytes.
LENGTH: Final = 4
#: Maximum number of events written without copying: writev accepts 1024 buffers, two of which precede the events.
EVENTS: Final = 1022


class ProcessReport(msgspec.Struct, omit_defaults=True):
    """A report of the process, written as one line of JSON."""

    #: number of batches no longer held in memory
    taken: int = 0
    #: number of batches with all rows in finished files
    durable: int = 0
    #: number of rows that could not be written
    lost: int = 0
    #: a sentence about files that are missing at the end of the archive
    damage: str = ""
    #: for log records: the level and the name of the logger
    level: int = 0
    logger: str = ""
    text: str = ""


_decode = msgspec.json.Decoder(ProcessReport).decode


class Child:
    """An archive process. Raises OSError if it cannot be started.

    Reading and writing block, each in its own thread, without holding the GIL. For the event loop, each reacquisition of the
    GIL costs more than the work done with it.
    """

    def __init__(
        self,
        config: ArchiveConfig,
        progress: Callable[[int, int, int], None],
        damaged: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        """Start the process, and a thread that reads its reports.

        `progress` is called with the number of batches no longer held in memory, the number in finished files, and the number
        of rows that could not be written. `damaged` is called with a sentence about files that are missing at the start.
        `ended` is called when the process closes its output.
        """
        # -P: do not import modules from the working directory.
        command = [sys.executable, "-P", "-m", MODULE, config.model_dump_json()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # the size may exceed the limit for unprivileged users
                fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, PIPE)
        self._progress = progress
        self._damaged = damaged
        self._ended = ended
        #: a batch is being written (the pipe may be full)
        self.sending = False
        #: the process has closed its output
        self.ended = False
        self._reader = threading.Thread(target=self._read, name="archive reports", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    def send(self, encoded: list[bytes]) -> None:
        """Write events as one batch. Blocks while the pipe is full. If the process has ended, sets `ended` and returns."""
        head = events.together(encoded)
        if len(encoded) > EVENTS:
            encoded = [b"".join(encoded)]
        length = len(head) + sum(map(len, encoded))
        self.sending = True
        try:
            count = os.writev(self._in.fileno(), [length.to_bytes(LENGTH, "big"), head, *encoded])
            if count < LENGTH + length:  # interrupted by a signal
                unsent = memoryview(b"".join((length.to_bytes(LENGTH, "big"), head, *encoded)))[count:]
                while unsent:
                    unsent = unsent[os.write(self._in.fileno(), unsent) :]
        except BrokenPipeError:
            self._reader.join()  # process the remaining reports
        finally:
            self.sending = False

    def close(self) -> None:
        """Close the input, and wait until the process has written everything and ended."""
        self._in.close()
        self._reader.join()

    def _read(self) -> None:
        for line in self._lines():
            report = _decode(line)
            if report.text:
                logging.getLogger(report.logger).log(report.level, "%s", report.text)
            elif report.damage:
                self._damaged(report.damage)
            else:
                self._progress(report.taken, report.durable, report.lost)
        self.ended = True
        self._ended()

    def _lines(self) -> Iterator[bytes]:
        partial_line = b""
        while output := os.read(self._out.fileno(), 65_536):
            *lines, partial_line = (partial_line + output).split(b"\n")
            yield from lines

    def reap(self) -> str:
        """Wait until the process has ended. Returns a description of its exit status."""
        self._reader.join()
        self._in.close()
        self._out.close()
        status = self._process.wait()
        if status < 0:
            return f"(pid {self.pid}) was ended by {signal.Signals(-status).name}"
        return f"(pid {self.pid}) ended with status {status}"


log = logging.getLogger(__name__)

#: Seconds for which the first event waits for others to join its batch. If the service is killed, these events are lost.
GATHER: Final = 0.1
#: Size of a full batch in bytes.
BATCH_BYTES: Final = 1024 * 1024
#: First and maximum delay, in seconds, before the process is restarted after one that finished no file.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

#: Events that are sent again if the process dies before they are in a finished file.
Kept = events.SessionEvent | events.ArchiveEvent


#: Time, encoded event, number of rows, size in bytes, and the event itself if it is kept.
QueuedEvent = tuple[int, bytes, int, int, Kept | None]


class EventBatch(msgspec.Struct):
    """Events sent together, with the information needed until they are in a finished file."""

    #: number of missing rows if the batch is lost, and the start of the gap in microseconds since the epoch
    rows: int
    since: int
    #: events that are sent again if the batch is lost
    kept: list[Kept]


class ArchiveLoss(msgspec.Struct):
    """Rows and files that are missing from the archive, as detected since the start of the service."""

    rows: int = 0
    #: when rows were lost for the first and the last time, in seconds since the epoch
    first: float = 0.0
    last: float = 0.0
    #: a sentence about finished files that are missing, and when the archive process noticed that
    files: str = ""
    noticed: float = 0.0

    def add(self, rows: int) -> None:
        """Count lost rows."""
        if rows:
            self.last = time.time()
            self.first = self.first or self.last
            self.rows += rows


class EventProducer:
    """Adds the events of one thread to the queue. Only that thread may call `add` and `keep`, which never block."""

    def __init__(self, queue: EventQueue) -> None:
        self._event_queue = queue
        #: bytes accepted; rows rejected because the queue was full, and since when. Written by the producer's thread
        self.handed = 0
        self.missed = 0
        self.missed_since = 0
        #: number of the missed rows that are already reported to the archive. Written by the queue's thread
        self.reported = 0

    def add(self, now: int, encoded: bytes, rows: int, kept_event: Kept | None = None) -> None:
        """Add an encoded event of the time `now` that produces `rows` rows. If the queue is full, count them as a gap."""
        size = len(encoded) + rows * ROW_BYTES
        queue = self._event_queue
        if queue.waiting() + size > queue.config.memory:
            if self.missed == self.reported:
                self.missed_since = now
            self.missed += rows
            return
        self.handed += size
        queue.put((now, encoded, rows, size, kept_event))

    def keep(self, event: Kept) -> None:
        """Add an event that is sent again if the archive process dies."""
        self.add(event.now, events.encode(event), event.rows, event)


class EventQueue:
    """The queue from the threads of a service to the archive process.

    Raises ArchiveError if pyarrow is not installed or the directory is not writable.
    """

    def __init__(self, config: ArchiveConfig) -> None:
        prepare(config)
        self.config = config
        self._queue: deque[QueuedEvent] = deque()
        self._producers: tuple[EventProducer, ...] = ()
        #: number of bytes that no longer wait, of all producers
        self._taken = 0
        #: the thread is waiting for events
        self._idle = False
        #: batches that are sent but not in a finished file, and the sizes of those that the process holds in memory
        self._batches: deque[EventBatch] = deque()
        self._sizes: deque[int] = deque()
        #: open sessions, according to the events sent
        self._open_sessions = events.OpenSessions(itertools.count())
        #: lost batches, which are reported to the next process first
        self._lost: EventBatch | None = None
        self._stopping = False
        #: number of batches that the current process no longer holds in memory, and number of those in finished files
        self._freed = self._finished = 0
        self.child: Child | None = None
        self.loss = ArchiveLoss()
        #: rows that the current process could not write
        self._unwritten = 0
        self._ending = threading.Event()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    # The callers' threads --------------------------------------------------------------------------------------------

    def producer(self) -> EventProducer:
        """Create a producer for another thread. Must be called on the thread that calls `start`."""
        producer = EventProducer(self)
        self._producers = (*self._producers, producer)
        return producer

    def start(self) -> None:
        """Start the thread that sends events."""
        self._thread.start()

    def waiting(self) -> int:
        """Return the number of bytes that are not written yet, including those in the archive process."""
        waiting = -self._taken
        for producer in self._producers:
            waiting += producer.handed
        return waiting

    def put(self, event: QueuedEvent) -> None:
        """Append an event. The caller has checked the memory limit."""
        self._queue.append(event)
        if self._idle:
            self._idle = False
            self._work.set()

    def close(self, timeout: float) -> bool:
        """Write all events and stop. Returns False if that takes longer than `timeout` seconds."""
        self._ending.set()
        if self._thread.ident is None:
            return True
        self._work.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # Its own thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        while not self._written:
            if pause:
                self._sleep(pause)
            self._freed = self._finished = self._unwritten = 0
            try:
                self.child = Child(self.config, self._progress, self._damaged, self._work.set)
            except OSError as error:
                log.error("MQB7002E archive: starting the writer process failed: %s", error)
            else:
                self._serve(self.child)
            pause = 0.0 if self._finished else min(max(FIRST_PAUSE, pause * 2), LONGEST_PAUSE)

    @property
    def _written(self) -> bool:
        return self._stopping and not self._batches and self._lost is None

    def _sleep(self, seconds: float) -> None:
        if self._ending.is_set():
            time.sleep(FIRST_PAUSE)
        else:
            self._ending.wait(seconds)

    def _serve(self, child: Child) -> None:
        """Send events until the process ends."""
        while not child.ended:
            if self._send_on(child):
                if len(self._queue) < EVENTS:
                    self._ending.wait(GATHER)
            elif self._stopping:
                child.close()
            else:
                self._await_work(child)
        self._died(child)

    def _await_work(self, child: Child) -> None:
        self._work.clear()
        self._idle = True
        if not self._queue and not self._ending.is_set() and not child.ended:
            self._work.wait()
            self._ending.wait(GATHER)
        self._idle = False

    def _progress(self, rows_taken: int, durable: int, rows_lost: int) -> None:
        """Update the progress of the process. Called on the thread that reads its reports."""
        self.loss.add(rows_lost - self._unwritten)
        self._unwritten = rows_lost
        while self._freed < rows_taken:
            self._taken += self._sizes.popleft()
            self._freed += 1
        while self._finished < durable:
            self._batches.popleft()
            self._finished += 1

    def _damaged(self, damage: str) -> None:
        """Record that files are missing. Called on the thread that reads the reports."""
        self.loss.files, self.loss.noticed = damage, time.time()

    def _send_on(self, child: Child) -> bool:
        """Send the next batch. Returns False if there is nothing to send."""
        encoded: list[bytes] = []
        batch = EventBatch(0, 0, [])
        length = size = 0
        lost_batch, self._lost = self._lost, None
        if lost_batch is not None:
            encoded = self._again(lost_batch)
            batch = lost_batch
        while self._queue and length < BATCH_BYTES and len(encoded) < EVENTS:
            now, encoded_event, rows, counted, event = self._queue.popleft()
            encoded.append(encoded_event)
            length += len(encoded_event)
            size += counted
            batch.since = batch.since or now
            if event is None:
                batch.rows += rows
            else:
                batch.kept.append(event)
                if isinstance(event, events.SessionEvent):
                    self._open_sessions.follow(event)
        encoded += [
            events.encode(self._gap(producer, batch))
            for producer in self._producers
            if producer.missed != producer.reported
        ]
        if not encoded and self._ending.is_set() and not self._stopping:
            self._stopping = True
            batch.kept.append(events.ArchiveEvent(now_us(), Outcome.STOPPED))
            encoded.append(events.encode(batch.kept[-1]))
        if not encoded:
            return False
        self._batches.append(batch)
        self._sizes.append(size)
        child.send(encoded)
        return True

    def _again(self, lost_batch: EventBatch) -> list[bytes]:
        now = now_us()
        encoded = [events.encode(events.SessionSnapshot(now, self._open_sessions.sessions))]
        if lost_batch.rows:
            encoded.append(events.encode(events.ArchiveEvent(now, Outcome.GAP, lost_batch.since, lost_batch.rows)))
        return encoded + [events.encode(event) for event in lost_batch.kept]

    def _gap(self, producer: EventProducer, batch: EventBatch) -> events.ArchiveEvent:
        """Return the gap for rows that did not fit into memory since the last report."""
        missed, since = producer.missed - producer.reported, producer.missed_since
        producer.reported += missed
        self.loss.add(missed)
        batch.rows += missed
        batch.since = min(batch.since, since) if batch.since else since
        log.warning(
            "MQB7001W archive: %d rows are missing, because %d bytes were waiting to be written (archive.memory)",
            missed,
            self.config.memory,
        )
        return events.ArchiveEvent(now_us(), Outcome.GAP, since, missed)

    def _died(self, child: Child) -> None:
        """Collect the lost batches of a process that has ended, to be reported by the next one."""
        exit_status = child.reap()
        self._taken += sum(self._sizes)
        self._sizes.clear()
        if not self._batches:
            if not self._written:
                log.error(
                    "MQB7003E archive: the writer process %s and is restarted, and no rows were lost", exit_status
                )
            return
        lost_batch = EventBatch(
            sum(batch.rows for batch in self._batches), min(batch.since for batch in self._batches), []
        )
        for batch in self._batches:
            lost_batch.kept += batch.kept
        self._batches.clear()
        self._lost = lost_batch
        self.loss.add(lost_batch.rows)
        log.error(
            "MQB7004E archive: the writer process %s and is restarted, and %d rows were lost",
            exit_status,
            lost_batch.rows,
        )
