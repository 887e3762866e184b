"""The archive process, `python -m bridge.archive.process CONFIGURATION`: writes the batches that it reads from stdin.

The process ends at the end of its input, after it has written everything. It ignores the usual stop signals, so that nothing
in the pipe is lost when the service is stopped or killed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import sys
import time
from importlib.abc import MetaPathFinder

import msgspec

from bridge.archive.event_queue import LENGTH, ProcessReport
from bridge.archive.events import events_of
from bridge.archive.writer import ArchiveWriter
from bridge.config.operations import ArchiveConfig

log = logging.getLogger(__name__)

#: Seconds to wait for the lock of the directory after the service has closed the input.
LOCK_PATIENCE = 60.0
#: On a busy machine, traffic takes priority: the archive gets a thirtieth of the service's CPU time. It records gaps.
NICENESS = 15


class ProcessReports(logging.Handler):
    """Sends progress and log records to the service. After the service has ended, log records go to standard error."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._gone = False

    def progress(self, rows_taken: int, durable: int, rows_lost: int) -> None:
        """Report the number of batches no longer held in memory, that in finished files, and the number of lost rows."""
        self._say(ProcessReport(rows_taken, durable, rows_lost))

    def damaged(self, damage: str) -> None:
        """Report files that are missing at the end of the archive."""
        self._say(ProcessReport(damage=damage))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._say(ProcessReport(level=record.levelno, logger=record.name, text=text))
        if self._gone:
            with contextlib.suppress(OSError):
                os.write(sys.stderr.fileno(), f"{record.levelname} {text}\n".encode())

    def _say(self, report: ProcessReport) -> None:
        if self._gone:
            return
        line = msgspec.json.encode(report) + b"\n"
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:
            self._gone = True


class BatchReader:
    """Reads batches of events from a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float | None) -> bool:
        """Wait until data or the end of the input is available. None: no timeout. Returns False after a timeout."""
        return bool(self._poll.poll(None if seconds is None else seconds * 1000))

    def is_closed(self) -> bool:
        """Return whether the writing end of the pipe is closed. Data may still be available."""
        return any(event & select.POLLHUP for _, event in self._poll.poll(0))

    def read(self) -> bytes | None:
        """Return the next batch, or None at the end. An incomplete batch, from a killed service, counts as the end."""
        head = self._exactly(LENGTH)
        return None if head is None else self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, length: int) -> bytes | None:
        data = bytearray(length)
        rest = memoryview(data)
        while rest:
            count = os.readv(self._descriptor, [rest])
            if not count:
                return None
            rest = rest[count:]
        return bytes(data)


def write(config: ArchiveConfig, reader: BatchReader, reports: ProcessReports) -> int:
    """Write until the input ends. Returns the exit status."""
    writer = ArchiveWriter(config, reports.progress, reports.damaged)
    # After start-up: until then, no event is read, and the waiting events could exceed the memory limit.
    os.nice(NICENESS)
    closed_at = 0.0

    def give_up() -> bool:
        nonlocal closed_at
        if not reader.is_closed():
            return False
        closed_at = closed_at or time.monotonic()
        return time.monotonic() - closed_at > LOCK_PATIENCE

    if not writer.claim_directory(give_up):
        log.error(
            "MQB7005E archive: discarded the last rows, because another process still writes to %s", config.directory
        )
        return 1
    while True:
        if reader.wait(writer.due()):
            batch = reader.read()
            if batch is None:
                break
            writer.take(events_of(batch), len(batch))
        writer.maintain()
    writer.close()
    return 0


class WithoutPandas(MetaPathFinder):
    """Hides pandas. pyarrow would import it, if installed, to recognize its arrays, which do not occur here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the archive's process does without pandas", name=name)


def main() -> int:
    """Run the archive process. Returns the exit status."""
    sys.meta_path.insert(0, WithoutPandas())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Rows are created and discarded by the thousand, and are never part of a cycle.
    gc.set_threshold(100_000, 50, 100)
    # Reserve the original standard output for reports.
    reports = ProcessReports(os.dup(sys.stdout.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.basicConfig(level=logging.INFO, handlers=[reports], format="%(message)s")
    config = ArchiveConfig.model_validate(msgspec.json.decode(sys.argv[1]))
    return write(config, BatchReader(sys.stdin.fileno()), reports)


if __name__ == "__main__":
    status = main()
    # Everything is written. Finalizing the interpreter would take longer than writing a file.
    os._exit(status)
