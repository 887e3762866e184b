"""The archive process as seen by the service: a pipe for batches, and a pipe for reports."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from bridge.archive.events import together

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


class Report(msgspec.Struct, omit_defaults=True):
    """A report of the process, written as one line of JSON."""

    #: number of batches no longer held in memory
    taken: int = 0
    #: number of batches with all rows in finished files
    durable: int = 0
    #: number of rows that could not be written
    lost: int = 0
    #: for log records: the level and the name of the logger
    level: int = 0
    logger: str = ""
    text: str = ""


_decode = msgspec.json.Decoder(Report).decode


class Child:
    """An archive process. Raises OSError if it cannot be started.

    Reading and writing block, each in its own thread, without holding the GIL. For the event loop, each reacquisition of the
    GIL costs more than the work done with it.
    """

    def __init__(
        self, config: ArchiveConfig, progress: Callable[[int, int, int], None], ended: Callable[[], None]
    ) -> None:
        """Start the process, and a thread that reads its reports.

        `progress` is called with the number of batches no longer held in memory, the number in finished files, and the number
        of rows that could not be written. `ended` is called when the process closes its output.
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
        head = together(encoded)
        if len(encoded) > EVENTS:
            encoded = [b"".join(encoded)]
        length = len(head) + sum(map(len, encoded))
        self.sending = True
        try:
            count = os.writev(self._in.fileno(), [length.to_bytes(LENGTH, "big"), head, *encoded])
            if count < LENGTH + length:  # interrupted by a signal
                left = memoryview(b"".join((length.to_bytes(LENGTH, "big"), head, *encoded)))[count:]
                while left:
                    left = left[os.write(self._in.fileno(), left) :]
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
            else:
                self._progress(report.taken, report.durable, report.lost)
        self.ended = True
        self._ended()

    def _lines(self) -> Iterator[bytes]:
        said = b""
        while data := os.read(self._out.fileno(), 65_536):
            *lines, said = (said + data).split(b"\n")
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
