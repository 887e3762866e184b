"""The checkpoint of a pipeline, given up: the next run begins anew, with what waits at the source.

What a crash has left of the last batch that is done is brought to its end first: its messages are removed. So only what was
begun and not done is read again. What came from a broker and is in no batch stays in the spool: it is nowhere else.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from bridge.config import PipelineConfig
from bridge.spark.flow.administration.given_up import note_given_up
from bridge.spark.flow.bad_rows import diverted_rows
from bridge.spark.flow.environment import CHECKPOINT, LATE, LEFT, STAGING, PipelineEnvironment
from bridge.spark.flow.sources.mq import PipelineMqSource
from bridge.spark.flow.sources.mqtt import PipelineMqttSource
from bridge.spark.flow.sources.shutdown import SourceShutdown
from bridge.spark.mq.queue_manager import QUEUE_MANAGER_OPTIONS, QueueManagerOptions, queue_manager_options_of
from bridge.spark.mq.writer_state import forget
from bridge.spark.options import Options
from bridge.spark.spool import spools_below

#: What the checkpoint is called while the rest of it is done: a reset that was killed is gone on with.
_MOVED: Final = "checkpoint.given-up"


class _Metadata(msgspec.Struct):
    """What stands in the file `metadata` of a checkpoint."""

    id: str


class Reset:
    """The reset of a pipeline that nobody runs; whoever makes one has its lock. Raises OSError."""

    def __init__(self, name: str, config: PipelineConfig, environment: PipelineEnvironment) -> None:
        self._name = name
        self._config = config
        self._environment = environment
        self._directory = environment.directory_of(name, config)
        self._checkpoint = self._directory / CHECKPOINT
        #: numbers of the batch that was begun last, and of the one that is done
        self._begun = _last(self._checkpoint / "offsets")
        self._done = _last(self._checkpoint / "commits")

    @property
    def needed(self) -> bool:
        """Return whether there is anything to give up."""
        return self._checkpoint.exists() or (self._directory / _MOVED).exists()

    def losses(self) -> Iterator[str]:
        """Yield a line for each thing that is given up, or stays. Raises SpoolDamaged, ValueError for a damaged one."""
        again = f"mqbridge pipeline run {self._name} --once"
        source = self._config.source
        if self._begun > self._done:
            yield (
                f"batch {self._begun} was begun and is not done: it is read again, and what its destinations"
                f" have of it already comes twice ({again} ends it first, with the SELECT that began it)"
            )
        if self._done >= 0:
            yield f"the numbers of its batches: {self._done} is done, and the next one is 0"
        if any((self._checkpoint / "state").glob("*/*/*.*")):
            yield (
                "the state of its SELECT (open windows, groups, joins, what changes has reported): rows that are in it, and"
                " in no result yet, come in none"
            )
        if self._done >= 0 and not self._is_of_source(self._done):
            yield (
                f"batch {self._done} was read from another source than the file names now: what a crash has left of it there"
                " is not removed"
            )
        if source.archive is not None:
            yield f"which files of {source.archive} are done: all of them are read again, and their rows come twice"
        for spool in spools_below(self._directory / "spool"):
            if spool.waiting:
                kept = f"{spool.waiting} publications of {spool.source} in {spool.directory}"
                yield f"kept, for the next run: up to {kept}"

    def do(self) -> int:
        """Give the checkpoint up; return how many messages went from the state queue. Raises MQError, SpoolDamaged.

        After an error before the checkpoint is moved nothing has changed but what a run would have done.
        """
        given_up = self._directory / _MOVED
        queue_manager = self._queue_manager()
        with queue_manager.connected() as connection:  # without it nothing is begun
            if self._checkpoint.exists():
                self._end_last_batch()
                self._discard(given_up, connection)  # of a reset before this one that was killed
                self._checkpoint.rename(given_up)
            diverted_rows.clear(self._directory)
            for one in (STAGING, LATE, LEFT):
                shutil.rmtree(self._directory / one, ignore_errors=True)
            return self._discard(given_up, connection)

    def _queue_manager(self) -> QueueManagerOptions:
        return queue_manager_options_of(Options("queue_manager", self._environment.queue_manager, QUEUE_MANAGER_OPTIONS))

    def _end_last_batch(self) -> None:
        """Remove what is read of the last batch that is done, where no process has come to it."""
        source = self._config.source
        if source.archive is not None or self._done < 0 or not self._is_of_source(self._done):
            return
        kind = PipelineMqSource if source.mq is not None else PipelineMqttSource
        options = self._environment.source_options(self._name, self._config)
        reader: Any = kind(options).streamReader(kind.SCHEMA)
        SourceShutdown(self._directory).request()  # it plans nothing, then
        try:
            reader.latestOffset(self._offset(self._done), reader.getDefaultReadLimit())
        finally:
            reader.stop()

    def _is_of_source(self, number: int) -> bool:
        """Return whether a batch was read from a source of the kind that the file names now."""
        offset, source = self._offset(number), self._config.source
        if source.archive is not None:
            return "logOffset" in offset
        return "spools" in offset

    def _discard(self, checkpoint: Path, connection: Any) -> int:
        """Remove a checkpoint that is moved, and first what writers keep of its query on the state queue."""
        if not checkpoint.exists():
            return 0
        try:
            query = msgspec.json.decode((checkpoint / "metadata").read_bytes(), type=_Metadata).id
        except FileNotFoundError:
            removed = 0  # it was never begun
        else:
            removed = forget(connection, query)
            note_given_up(self._directory, query)
        shutil.rmtree(checkpoint)
        return removed

    def _offset(self, number: int) -> dict[str, Any]:
        """Return the offset of a batch: behind a version and what Spark notes, a line for the source."""
        _, _, offset = (self._checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
        found: dict[str, Any] = msgspec.json.decode(offset)
        return found


def _last(directory: Path) -> int:
    """Return the highest number that is the name of a file; -1 where there is none."""
    if not directory.is_dir():
        return -1
    return max((int(one.name) for one in directory.iterdir() if one.name.isdigit()), default=-1)
