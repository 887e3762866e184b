"""Writing queues and topics to a target: segments of spools are collected until they are large or old enough."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from bridge.lake.targets import Target
from bridge.spark.spool import Segment, SpoolFiller

#: Rows, and bytes of message data, of one file or append.
ROWS: Final = 100_000
BYTES: Final = 64 * 1024 * 1024
#: Seconds after which rows are written, however few.
INTERVAL: Final = 10.0
_PAUSE: Final = 0.05


class LakeWriter:
    """Writes the segments of spools to a target while their readers fill the spools."""

    def __init__(self, fillers: Mapping[str, SpoolFiller], target: Target, *, rows: int, interval: float) -> None:
        self._fillers = fillers
        self._target = target
        self._rows = rows
        self._interval = interval
        #: segments that wait to be written, and since when
        self._waiting: dict[str, tuple[list[Segment], float]] = {}
        #: rows that were written
        self.written = 0

    def run(self, stop: threading.Event, *, once: bool) -> None:
        """Write until `stop` is set, or with `once` until all available messages are written.

        Raises the errors of readers and targets. What is in the spools then is written by the next run.
        """
        try:
            for filler in self._fillers.values():
                if once:
                    filler.finish()
                filler.start()
                self._target.recover(filler.spool)
            while not stop.is_set():
                # In this order: what a reader that has finished has read is in its spool.
                finished = once and all(filler.finished for filler in self._fillers.values())
                wrote = [self._write(source, filler, at_once=finished) for source, filler in self._fillers.items()]
                if not any(wrote):
                    if finished:
                        return
                    stop.wait(_PAUSE)
        finally:
            for filler in self._fillers.values():
                filler.stop()
                filler.spool.close()

    def _write(self, source: str, filler: SpoolFiller, *, at_once: bool) -> bool:
        """Write the waiting segments of a spool if they are many or old. Return whether they were written."""
        filler.check()
        now = time.monotonic()
        segments, since = self._waiting.get(source, ([], now))
        spool = filler.spool
        position = segments[-1].number if segments else spool.first - 1
        rows = sum(one.rows for one in segments)
        size = sum(one.size for one in segments)
        for segment in spool.between(position, max(spool.last, position)):
            if rows >= self._rows or size >= BYTES:
                break
            segments.append(segment)
            rows += segment.rows
            size += segment.size
        if not rows:
            since = now
        self._waiting[source] = segments, since
        if not rows or not (at_once or rows >= self._rows or size >= BYTES or now - since >= self._interval):
            return False
        self._target.write(spool, segments)
        self.written += rows
        self._waiting[source] = [], now
        return True
