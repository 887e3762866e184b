"""Compaction of the archive of a pipeline that runs, again and again: the key `compact` of its destination."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Self

import pyarrow as pa

from bridge.files import Locked, lock
from bridge.spark.flow.administration.compaction import LOCK, TARGET, Compaction
from bridge.spark.flow.administration.given_up import done
from bridge.spark.flow.plan import Plan

#: Seconds to wait for the hour under way when the pipeline ends; it is begun anew the next time.
_PATIENCE: Final = 2.0


class ScheduledCompaction:
    """Joins files of the archive of a pipeline on a thread of its own, while the body of `with` runs the pipeline.

    Files are joined beside batches; that they take the place of the small ones waits until no batch is written, by
    `writing`, which is held for each. `tell` takes a line for each hour.
    """

    def __init__(self, plan: Plan, writing: threading.Lock, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._writing = writing
        self._tell = tell
        self._ending = threading.Event()
        #: whether it is at work for the first time
        self.busy = False
        self._thread = threading.Thread(target=self._run, name=f"compaction of {plan.name}", daemon=True)

    def __enter__(self) -> Self:
        if (to := self._plan.config.destination) is not None and to.compact is not None:
            self.busy = True
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        to = self._plan.config.destination
        assert to is not None
        while not self._ending.is_set():
            try:
                self._compact()
            except Locked:
                pass  # another process does it, or another pipeline
            except (OSError, pa.ArrowException) as error:
                self._tell(f"{self._plan.name}: {to.archive} is not compacted: {error}")
            self.busy = False
            self._ending.wait(to.compact)

    def _compact(self) -> None:
        to = self._plan.config.destination
        assert to is not None and to.archive is not None
        directory = to.archive.resolve()
        if not directory.is_dir():
            return
        with lock(directory / LOCK):
            for one in Compaction(directory, done(self._plan.directory), TARGET, self._writing).run(datetime.now(UTC)):
                self._tell(f"{self._plan.name}: compacted {one.hour}: {one.before} files are {one.after}")
                if self._ending.is_set():
                    return
