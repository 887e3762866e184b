"""`python -m bridge.archive.process CONFIGURATION`: writes the archive of a service, which hands batches over on its input.

It ends when its input does, after it has written all that came: a service that is stopped or killed loses nothing that was
in the pipe. So the signals by which services are told to stop are not for it.
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

from bridge.archive.child import LENGTH, Report
from bridge.archive.events import events_of
from bridge.archive.writer import ArchiveWriter
from bridge.config.operations import ArchiveConfig

log = logging.getLogger(__name__)

#: Seconds to wait for another process that writes to the directory, once nobody hands anything over any more.
LOCK_PATIENCE = 60.0
#: Where there is no processor to spare, traffic goes first: the archive has a thirtieth of what the service has, and says
#: what is missing.
NICENESS = 15


class Reports(logging.Handler):
    """Says to the service how far the archive is, and what is for its log; to standard error once it is gone."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._gone = False

    def progress(self, taken: int, durable: int) -> None:
        """Say that so many batches need no memory any more, and that so many are in finished files."""
        self._say(Report(taken, durable))

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self._say(Report(level=record.levelno, logger=record.name, text=text))
        if self._gone:
            with contextlib.suppress(OSError):
                os.write(sys.stderr.fileno(), f"{record.levelname} {text}\n".encode())

    def _say(self, report: Report) -> None:
        if self._gone:
            return
        line = msgspec.json.encode(report) + b"\n"
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:
            self._gone = True


class BatchReader:
    """Reads batches of events from standard input."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float | None) -> bool:
        """Wait until there is something to read, or the end."""
        return bool(self._poll.poll(None if seconds is None else seconds * 1000))

    def is_closed(self) -> bool:
        """Return whether nobody can write to standard input any more; what is in it can still be read."""
        return any(event & select.POLLHUP for _, event in self._poll.poll(0))

    def read(self) -> bytes | None:
        """Return the next batch; None at the end. Half a batch, of a service that was killed, is none."""
        head = self._exactly(LENGTH)
        return None if head is None else self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, length: int) -> bytes | None:
        data = bytearray(length)
        left = memoryview(data)
        while left:
            count = os.readv(self._descriptor, [left])
            if not count:
                return None
            left = left[count:]
        return bytes(data)


def write(config: ArchiveConfig, reader: BatchReader, reports: Reports) -> int:
    """Write until the input ends; return the exit status."""
    writer = ArchiveWriter(config, reports.progress)
    # Not before: until it has started nothing is taken, and what waits meanwhile may be more than there is memory for.
    os.nice(NICENESS)
    closed_at = 0.0

    def give_up() -> bool:
        nonlocal closed_at
        if not reader.is_closed():
            return False
        closed_at = closed_at or time.monotonic()
        return time.monotonic() - closed_at > LOCK_PATIENCE

    if not writer.take_over(give_up):
        log.error(
            "MQB7005E archive: what was handed over is lost: another process still writes to %s", config.directory
        )
        return 1
    while True:
        if reader.wait(writer.due()):
            batch = reader.read()
            if batch is None:
                break
            writer.take(events_of(batch), len(batch))
        writer.look()
    writer.close()
    return 0


class WithoutPandas(MetaPathFinder):
    """Finds no pandas: pyarrow imports it, where it is installed, to know its arrays from others. None come here."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the archive's process does without pandas", name=name)


def main() -> int:
    """Run the archive's process; return the exit status."""
    sys.meta_path.insert(0, WithoutPandas())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Rows are made and forgotten by the thousand, and none is in a cycle.
    gc.set_threshold(100_000, 50, 100)
    # Nothing but reports is to go where they go.
    reports = Reports(os.dup(sys.stdout.fileno()))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    logging.basicConfig(level=logging.INFO, handlers=[reports], format="%(message)s")
    config = ArchiveConfig.model_validate(msgspec.json.decode(sys.argv[1]))
    return write(config, BatchReader(sys.stdin.fileno()), reports)


if __name__ == "__main__":
    status = main()
    # All is written and said. To take the interpreter apart takes longer than to write a file.
    os._exit(status)
