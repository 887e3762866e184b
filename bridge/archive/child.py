"""The archive's process, as the service has it: a pipe that takes batches, and one by which it says how far it is."""

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

#: What runs in it.
MODULE: Final = "bridge.archive.process"
#: Bytes that the pipe holds, where the system lets it hold so many.
PIPE: Final = 1024 * 1024
#: Bytes of the number in front of each batch that says how long it is.
LENGTH: Final = 4
#: Events that are written without being copied: writev takes 1024 buffers, two of which go in front.
EVENTS: Final = 1022


class Report(msgspec.Struct, omit_defaults=True):
    """What the process says, a line of JSON each."""

    #: batches in all that need no memory any more
    taken: int = 0
    #: batches in all of which every row is in a finished file
    durable: int = 0
    #: for the log: a level of `logging` and the name of the logger
    level: int = 0
    logger: str = ""
    text: str = ""


_decode = msgspec.json.Decoder(Report).decode


class Child:
    """One process, from its start to its end. Raises OSError where it cannot be started.

    Reading and writing block, each in a thread of its own, and let go of the interpreter meanwhile: each time that they take
    it back costs the event loop more than what they do with it.
    """

    def __init__(
        self, config: ArchiveConfig, progress: Callable[[int, int], None], ended: Callable[[], None]
    ) -> None:
        """Start the process, and a thread that reads what it says.

        `progress` is told how many batches need no memory any more, and how many are in finished files; then `ended`.
        """
        # -P: modules of the working directory are none of its business.
        command = [sys.executable, "-P", "-m", MODULE, config.model_dump_json()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # more than an unprivileged user may have
                fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, PIPE)
        self._progress = progress
        self._ended = ended
        #: a batch is being written: the pipe may be full
        self.sending = False
        #: it says no more
        self.ended = False
        self._reader = threading.Thread(target=self._read, name="archive reports", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    def send(self, encoded: list[bytes]) -> None:
        """Write events as one batch, and wait while the pipe is full. That nobody reads it is told by `ended`."""
        head = together(encoded)
        if len(encoded) > EVENTS:
            encoded = [b"".join(encoded)]
        length = len(head) + sum(map(len, encoded))
        self.sending = True
        try:
            count = os.writev(self._in.fileno(), [length.to_bytes(LENGTH, "big"), head, *encoded])
            if count < LENGTH + length:  # a signal came in between
                left = memoryview(b"".join((length.to_bytes(LENGTH, "big"), head, *encoded)))[count:]
                while left:
                    left = left[os.write(self._in.fileno(), left) :]
        except BrokenPipeError:
            self._reader.join()  # what it still said is heard
        finally:
            self.sending = False

    def close(self) -> None:
        """Send nothing more: let the process write what it has, and wait until it has ended."""
        self._in.close()
        self._reader.join()

    def _read(self) -> None:
        for line in self._lines():
            report = _decode(line)
            if report.text:
                logging.getLogger(report.logger).log(report.level, "%s", report.text)
            else:
                self._progress(report.taken, report.durable)
        self.ended = True
        self._ended()

    def _lines(self) -> Iterator[bytes]:
        said = b""
        while data := os.read(self._out.fileno(), 65_536):
            *lines, said = (said + data).split(b"\n")
            yield from lines

    def reap(self) -> str:
        """Wait for the end of the process, which `ended` has announced; return how it ended, in words."""
        self._reader.join()
        self._in.close()
        self._out.close()
        status = self._process.wait()
        if status < 0:
            return f"(pid {self.pid}) was ended by {signal.Signals(-status).name}"
        return f"(pid {self.pid}) ended with status {status}"
