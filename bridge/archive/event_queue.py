"""The queue of events for the archive: hands them over to a process that writes them, and never holds back traffic.

A small thread sends what was handed over, in batches of many events. It keeps count of the batches that are in no finished
file: when the process dies, what they held is told as a gap by the next one, and their events about sessions, of which there
are few and on which the archive builds, are sent again.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from bridge.archive.child import EVENTS, Child
from bridge.archive.events import (
    Gap,
    SessionEvent,
    SessionSnapshot,
    Started,
    Stopped,
    Subscribed,
    Unsubscribed,
    encode,
    now_us,
)
from bridge.archive.open_sessions import OpenSessions
from bridge.archive.writer import ROW_BYTES, prepare

if TYPE_CHECKING:
    from bridge.config.operations import ArchiveConfig

log = logging.getLogger(__name__)

#: Seconds that the first event waits for others to go with it: what a service that is killed has not handed over.
GATHER: Final = 0.1
#: Bytes of events after which a batch is long enough.
BATCH_BYTES: Final = 1024 * 1024
#: Seconds before another process is started where the last one finished no file: at first, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0

#: What is sent again when the process dies before it is in a finished file.
Kept = SessionEvent | Started | Stopped


#: Time, encoded event, rows, bytes that it counts for, and what is kept of it.
QueuedEvent = tuple[int, bytes, int, int, Kept | None]


class EventBatch(msgspec.Struct):
    """Events that were sent together: what is known of them until they are in a finished file."""

    #: rows that are missing if it is lost, and since when, in microseconds since the epoch
    rows: int
    since: int
    #: what is sent again if it is lost
    kept: list[Kept]


class EventProducer:
    """Hands events over for one thread: `add` and `keep` are that thread's own, and do not wait."""

    def __init__(self, queue: EventQueue) -> None:
        self._event_queue = queue
        #: bytes that were taken; rows that were not, for want of room, and since when. The producer's thread writes these
        self.handed = 0
        self.missed = 0
        self.missed_since = 0
        #: of the rows missed, those that the archive was told of. The queue's thread writes this
        self.reported = 0

    def add(self, now: int, data: bytes, rows: int, kept: Kept | None = None) -> None:
        """Have an encoded event of the time `now` made into so many rows; where there is no room, they are a gap."""
        size = len(data) + rows * ROW_BYTES
        queue = self._event_queue
        if queue.waiting + size > queue.config.memory:
            if self.missed == self.reported:
                self.missed_since = now
            self.missed += rows
            return
        self.handed += size
        queue.put((now, data, rows, size, kept))

    def keep(self, event: Kept) -> None:
        """Hand an event over that is to survive the archive's process."""
        rows = 1
        if isinstance(event, Subscribed | Unsubscribed):
            rows = len(event.granted if isinstance(event, Subscribed) else event.filters)
        self.add(event.now, encode(event), rows, event)


class EventQueue:
    """Events of one service, to the archive's process.

    Raises ArchiveError when pyarrow is not installed or the directory cannot be written.
    """

    def __init__(self, config: ArchiveConfig) -> None:
        prepare(config).close()
        self.config = config
        self._queue: deque[QueuedEvent] = deque()
        self._producers: tuple[EventProducer, ...] = ()
        #: bytes of all producers that wait no more
        self._taken = 0
        #: it waits for something to do
        self._idle = False
        #: sent, and in no finished file; for those that the process still has in memory: the bytes that they count for
        self._batches: deque[EventBatch] = deque()
        self._sizes: deque[int] = deque()
        #: the sessions that are open, as far as events of them were sent
        self._open_sessions = OpenSessions(itertools.count())
        #: what the next process is told first: how much is lost, and what is kept of it
        self._lost: EventBatch | None = None
        self._stopping = False
        #: of the batches that the process got: those that it has no more in memory, and those in finished files
        self._freed = self._finished = 0
        self.child: Child | None = None
        self._ending = threading.Event()
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    # The callers' threads --------------------------------------------------------------------------------------------

    def producer(self) -> EventProducer:
        """Make the producer of one more thread. Called on the thread that calls `start`."""
        made = EventProducer(self)
        self._producers = (*self._producers, made)
        return made

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Return the bytes that are not written yet, wherever they are."""
        return sum([one.handed for one in self._producers]) - self._taken

    def put(self, event: QueuedEvent) -> None:
        """Take an event that there is room for."""
        self._queue.append(event)
        if self._idle:
            self._idle = False
            self._work.set()

    def close(self, timeout: float) -> bool:
        """Have all written that was handed over; return False when that takes longer than `timeout` seconds."""
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
                self._rest(pause)
            self._freed = self._finished = 0
            try:
                self.child = Child(self.config, self._progress, self._work.set)
            except OSError as error:
                log.error("MQB7002E archive: its process cannot be started: %s", error)
            else:
                self._serve(self.child)
            pause = 0.0 if self._finished else min(max(FIRST_PAUSE, pause * 2), LONGEST_PAUSE)

    @property
    def _written(self) -> bool:
        return self._stopping and not self._batches and self._lost is None

    def _rest(self, seconds: float) -> None:
        if self._ending.is_set():
            time.sleep(FIRST_PAUSE)
        else:
            self._ending.wait(seconds)

    def _serve(self, child: Child) -> None:
        """Send until the process ends."""
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

    def _progress(self, taken: int, durable: int) -> None:
        """Note how far the process says that it is; called by the thread that hears it."""
        while self._freed < taken:
            self._taken += self._sizes.popleft()
            self._freed += 1
        while self._finished < durable:
            self._batches.popleft()
            self._finished += 1

    def _send_on(self, child: Child) -> bool:
        """Send the next batch; return whether there is one."""
        encoded: list[bytes] = []
        batch = EventBatch(0, 0, [])
        length = size = 0
        lost, self._lost = self._lost, None
        if lost is not None:
            encoded = self._again(lost)
            batch = lost
        while self._queue and length < BATCH_BYTES and len(encoded) < EVENTS:
            now, data, rows, counted, kept = self._queue.popleft()
            encoded.append(data)
            length += len(data)
            size += counted
            batch.since = batch.since or now
            if kept is None:
                batch.rows += rows
            else:
                batch.kept.append(kept)
                if not isinstance(kept, Started | Stopped):
                    self._open_sessions.follow(kept)
        encoded += [encode(self._gap(one, batch)) for one in self._producers if one.missed != one.reported]
        if not encoded and self._ending.is_set() and not self._stopping:
            self._stopping = True
            batch.kept.append(Stopped(now_us()))
            encoded.append(encode(batch.kept[-1]))
        if not encoded:
            return False
        self._batches.append(batch)
        self._sizes.append(size)
        child.send(encoded)
        return True

    def _again(self, lost: EventBatch) -> list[bytes]:
        now = now_us()
        encoded = [encode(SessionSnapshot(now, self._open_sessions.sessions))]
        if lost.rows:
            encoded.append(encode(Gap(now, lost.since, lost.rows)))
        return encoded + [encode(one) for one in lost.kept]

    def _gap(self, producer: EventProducer, batch: EventBatch) -> Gap:
        """Return the gap of what did not fit into memory since the last time."""
        missed, since = producer.missed - producer.reported, producer.missed_since
        producer.reported += missed
        batch.rows += missed
        batch.since = min(batch.since, since) if batch.since else since
        log.warning(
            "MQB7001W archive: %d rows are missing, because %d bytes were waiting to be written (archive.memory)",
            missed,
            self.config.memory,
        )
        return Gap(now_us(), since, missed)

    def _died(self, child: Child) -> None:
        """Note that the process has ended: what it took with it is told by the next one."""
        how = child.reap()
        self._taken += sum(self._sizes)
        self._sizes.clear()
        if not self._batches:
            if not self._written:
                log.error("MQB7003E archive: its process %s; nothing is lost, and another is started", how)
            return
        lost = EventBatch(sum(one.rows for one in self._batches), min(one.since for one in self._batches), [])
        for one in self._batches:
            lost.kept += one.kept
        self._batches.clear()
        self._lost = lost
        log.error("MQB7004E archive: its process %s; %d rows are lost, and another is started", how, lost.rows)
