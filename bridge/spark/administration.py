"""Administration of pipelines: the status that a pipeline leaves on disk, and requests to the process that runs it.

The process listens at the socket `control` in the directory of each of its pipelines, as the service does at its own
(`bridge.administration.control_server`). The status is a file, so that it can be read when no process runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from bridge.administration.control_server import ControlServer
from bridge.administration.control_socket import NoBridge, ask
from bridge.administration.protocol import Answer, Request
from bridge.config.pipeline import PipelineConfig
from bridge.files import holder
from bridge.spark.environment import CHECKPOINT, SPOOL, STAGE, PipelineEnvironment
from bridge.spark.segment import SpoolDamaged
from bridge.spark.spool_inventory import Positions, SpoolContents, inventory, messages_of

#: Files in the directory of a pipeline: locked by the process that runs it, its status, and its control socket.
LOCK: Final = "lock"
STATUS: Final = "status.json"
CONTROL: Final = "control"
#: Seconds over which rates are measured, and the maximum number of batches that are kept for them.
RATE_PERIOD: Final = 60.0
_RECENT: Final = 500

State = Literal["starting", "running", "failing", "stopped", "done", "given up"]


class StopPipeline(Request[None], tag="pipeline stop"):
    """Finish the current batch and end."""

    CHANGES = True


class DrainPipeline(Request[None], tag="pipeline drain"):
    """Process all available messages and end."""

    CHANGES = True


PipelineRequest = StopPipeline | DrainPipeline


class StatusDamaged(Exception):
    """The status file, the checkpoint or a spool of a pipeline cannot be read. The message contains a remedy."""


class CompletedBatch(msgspec.Struct):
    """A completed batch: its end, its duration in seconds, and its rows."""

    number: int
    at: float = 0.0
    seconds: float = 0.0
    rows_in: int = -1
    rows_out: int = 0
    dead_letters: int = 0
    #: rows that arrived after the watermark had passed them
    late: int = 0
    #: backlog at the source; None: unknown
    waiting: int | None = None
    #: time of the oldest message of the backlog; None: no backlog, or unknown
    oldest: float | None = None
    #: the reason of one of the dead letters
    why: str | None = None
    #: dead letters beyond the limits that were discarded
    discarded: int = 0


class LastError(msgspec.Struct, frozen=True):
    """The last error, and its remedy, which may be empty."""

    at: float
    what: str
    remedy: str = ""


class PipelineStatus(msgspec.Struct, frozen=True):
    """The status of a pipeline. Times are seconds since 1970. Sums are of one run of the command."""

    process: int
    host: str
    since: float
    state: State = "starting"
    #: None while the pipeline runs, or after it was killed
    until: float | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    late: int = 0
    #: of this run or an earlier one
    last_batch: CompletedBatch | None = None
    last_error: LastError | None = None
    #: whether the last error came after the last batch
    failing: bool = False
    #: time, rows in and rows out of recent batches
    recent: tuple[tuple[float, int, int], ...] = ()
    #: dead letters beyond the limits, the time of the last one, and why it is one
    discarded: int = 0
    discarded_at: float = 0.0
    discarded_why: str = ""

    def rate(self, now: float) -> tuple[float, float]:
        """Return the rows per second, in and out, during the last minute of the run."""
        seconds = max(min(now - self.since, RATE_PERIOD), 1.0)
        rows = [batch for batch in self.recent if batch[0] > now - RATE_PERIOD]
        return sum(batch[1] for batch in rows) / seconds, sum(batch[2] for batch in rows) / seconds


def read_status(directory: Path) -> PipelineStatus | None:
    """Return the status of a pipeline, or None if it has never run. Raises StatusDamaged, OSError."""
    try:
        return msgspec.json.decode((directory / STATUS).read_bytes(), type=PipelineStatus)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StatusDamaged(f"{directory}/{STATUS} is damaged and may be removed: {error}") from error


def runs(directory: Path) -> str | None:
    """Return the number of the process that runs a pipeline, or None. Raises OSError."""
    return holder(directory / LOCK)


class StatusRecord:
    """Writes the status of a pipeline that this process runs. Only one thread uses it."""

    def __init__(self, directory: Path, report: Callable[[str], None]) -> None:
        self._file = directory / STATUS
        self._report = report
        self._told = False
        self._status = PipelineStatus(os.getpid(), socket.gethostname(), time.time())
        with contextlib.suppress(OSError, StatusDamaged):
            if (before := read_status(directory)) is not None:
                self._status = replace(
                    self._status,
                    last_batch=before.last_batch,
                    last_error=before.last_error,
                    failing=before.failing,
                )
        self._change()

    def running(self) -> None:
        """Record that the query has started. After a failure, it counts as failing until it is `steady`."""
        self._change(state="failing" if self._status.failing else "running")

    def steady(self) -> None:
        """Record that the query has run for some time without an error."""
        if self._status.failing:
            self._change(state="running", failing=False)

    def completed(self, batch: CompletedBatch) -> None:
        """Record a batch."""
        status = self._status
        recent = [row for row in status.recent if row[0] > batch.at - RATE_PERIOD][1 - _RECENT :]
        self._change(
            state="running",
            failing=False,
            batches=status.batches + 1,
            rows_in=status.rows_in + batch.rows_in,
            rows_out=status.rows_out + batch.rows_out,
            dead_letters=status.dead_letters + batch.dead_letters,
            late=status.late + batch.late,
            discarded=status.discarded + batch.discarded,
            discarded_at=batch.at if batch.discarded else status.discarded_at,
            discarded_why=(batch.why or "") if batch.discarded else status.discarded_why,
            last_batch=batch,
            recent=(*recent, (batch.at, batch.rows_in, batch.rows_out)),
        )

    def failed(self, error: str, remedy: str = "") -> None:
        """Record an error after which the pipeline is started again."""
        self._change(state="failing", failing=True, last_error=LastError(time.time(), error, remedy))

    def ended(self, state: State) -> None:
        """Record the end."""
        self._change(state=state, until=time.time(), failing=self._status.failing and state == "given up")

    def _change(self, **changes: Any) -> None:
        self._status = replace(self._status, **changes)
        unfinished = self._file.with_suffix(".new")
        try:
            unfinished.write_bytes(msgspec.json.encode(self._status))
            unfinished.rename(self._file)
            self._told = False
        except OSError as error:
            if not self._told:
                self._report(f"cannot write {self._file}, so `mqbridge pipeline show` is out of date: {error}")
            self._told = True


def condition(name: str, config: PipelineConfig, environment: PipelineEnvironment, now: float) -> dict[str, Any]:
    """Return the condition of a pipeline, as `mqbridge pipeline show -o json` prints it. Raises StatusDamaged, OSError."""
    directory = environment.directory_of(name, config)
    process = runs(directory)
    status = read_status(directory)
    spools = spooled(directory)
    sources = environment.sources_of(name, config)
    messages, unread = messages_of(spools, sources)
    rates = (0.0, 0.0) if status is None or process is None else status.rate(now)
    fields = msgspec.to_builtins(status) if status is not None else dict.fromkeys(PipelineStatus.__struct_fields__)
    fields.pop("recent")
    batch = None if status is None else status.last_batch
    return {
        "name": name,
        **fields,
        "state": (state := state_of(status, process)),
        "failing": is_failing(state, status),
        "process": None if process is None else int(process) if process.isdecimal() else process,
        "rows_in_per_second": round(rates[0], 1),
        "rows_out_per_second": round(rates[1], 1),
        "waiting": None if batch is None else batch.waiting,
        "oldest": None if batch is None else batch.oldest,
        "spool_messages": messages,
        "unread_messages": unread,
        "unread": {spool.source: spool.messages for spool in spools if spool.messages and spool.source not in sources},
        "stage_bytes": staged_bytes(directory),
        "directory": str(directory),
    }


def left_by_removed(
    pipelines: Mapping[str, PipelineConfig], environment: PipelineEnvironment
) -> Iterator[tuple[str, str, int]]:
    """Yield messages in spools of pipelines that were removed or renamed: former name, queue or topic, and number.

    Raises StatusDamaged, OSError.
    """
    for name, directory in environment.spool_directories(pipelines).items():
        if name not in pipelines:
            yield from ((name, spool.source, spool.messages) for spool in spooled(directory) if spool.messages)


def spooled(directory: Path) -> list[SpoolContents]:
    """Return the contents of the spools of a pipeline. Raises StatusDamaged, OSError."""
    try:
        return inventory(str(directory / SPOOL), Positions.of(directory / CHECKPOINT))
    except SpoolDamaged as error:
        raise StatusDamaged(str(error)) from error


def state_of(status: PipelineStatus | None, process: str | None) -> str:
    """Return the state of a pipeline. `process` is the process that runs it, or None."""
    if process is not None:
        return "starting" if status is None or status.until is not None else status.state
    if status is None:
        return "never run"
    return "killed" if status.until is None else status.state


def is_failing(state: str, status: PipelineStatus | None) -> bool:
    """Return whether a pipeline processes nothing because of an error, or because its process was killed."""
    return state == "killed" or (status is not None and status.failing and state not in ("stopped", "done"))


def staged_bytes(directory: Path) -> int:
    """Return the size of the rows of a pipeline that are staged and not yet written. Raises OSError."""
    size = 0
    for parent, _, names in os.walk(directory / STAGE):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # its batch has been written in the meantime
                size += os.stat(f"{parent}/{name}").st_size
    return size


def request(directory: Path, message: PipelineRequest) -> None:
    """Send a request to the process that runs a pipeline. Raises NoBridge."""
    answer = ask(directory / CONTROL, message)
    if not answer.ok:
        raise NoBridge("; ".join(answer.lines))


class ControlThread:
    """Answers requests at the control sockets of the pipelines that this process runs."""

    def __init__(self, handle: Callable[[str, PipelineRequest], None]) -> None:
        self._handle = handle
        self._loop = asyncio.new_event_loop()
        self._servers: list[ControlServer] = []
        self._own = threading.Thread(target=self._loop.run_forever, name="control", daemon=True)
        self._own.start()

    def listen(self, name: str, directory: Path) -> None:
        """Listen for requests to a pipeline. Raises OSError."""

        async def answer(received: Any, user: str) -> Answer:
            self._handle(name, received)
            return Answer()

        server = ControlServer(directory / CONTROL, answer, PipelineRequest)
        asyncio.run_coroutine_threadsafe(server.start(), self._loop).result()
        self._servers.append(server)

    def stop(self) -> None:
        """Stop listening."""
        for server in self._servers:
            asyncio.run_coroutine_threadsafe(server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._own.join()
        self._loop.close()
