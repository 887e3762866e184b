"""The archive's process, as the service has it: a pipe that takes pieces, and one by which it says how far it is."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from bridge.config.archive import ArchiveConfig

#: What runs in it.
MODULE: Final = "bridge.archive.process"
#: Bytes that the pipe holds, where the system lets it hold so many.
PIPE: Final = 1024 * 1024
#: Bytes of the number in front of each piece that says how long it is.
LENGTH: Final = 4


class Report(msgspec.Struct, omit_defaults=True):
    """What the process says, a line of JSON each."""

    #: pieces in all that need no memory any more
    taken: int = 0
    #: pieces in all of which every row is in a finished file
    durable: int = 0
    #: for the log: a level of `logging` and the name of the logger
    level: int = 0
    logger: str = ""
    text: str = ""


_decode = msgspec.json.Decoder(Report).decode


class Child:
    """One process, from its start to its end. Raises OSError where it cannot be started."""

    def __init__(self, config: ArchiveConfig, wake: int) -> None:
        """`wake` is a file descriptor: `turn` returns when it can be read, and empties it."""
        # -P: modules of the working directory are none of its business.
        command = [sys.executable, "-P", "-m", MODULE, config.model_dump_json()]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # more than an unprivileged user may have
                fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, PIPE)
        os.set_blocking(self._in.fileno(), False)
        os.set_blocking(self._out.fileno(), False)
        self._wake = wake
        self._left = memoryview(b"")
        self._broken = False
        self._said = b""
        #: how far it is, in pieces; `freed` is how far the feed has followed
        self.taken = self.durable = self.freed = 0
        #: it says no more
        self.ended = False

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def sending(self) -> bool:
        """Whether the pipe takes no further piece: not all of the last one is in it yet, or nobody reads it any more."""
        return self._broken or bool(self._left)

    def send(self, piece: bytes) -> None:
        """Have a piece written; one at a time."""
        self._left = memoryview(len(piece).to_bytes(LENGTH, "big") + piece)
        self._write()

    def close(self) -> None:
        """Nothing more is sent: the process writes what it has, and ends."""
        if not self._in.closed:
            self._in.close()

    def turn(self, *, wait: bool) -> bool:
        """Write and read what there is; returns whether `wake` could be read.

        `wait`: until that, or until the pipe takes more, or the process says something or ends.
        """
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._left:
            poll.register(self._in, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(None if wait else 0)}
        if self._out.fileno() in ready:
            self._read()
        if self._left and self._in.fileno() in ready:
            self._write()
        if self._wake not in ready:
            return False
        os.read(self._wake, 4096)
        return True

    def _write(self) -> None:
        try:
            while self._left:
                self._left = self._left[os.write(self._in.fileno(), self._left) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._left, self._broken = memoryview(b""), True

    def _read(self) -> None:
        data = os.read(self._out.fileno(), 65_536)
        self.ended = not data
        *lines, self._said = (self._said + data).split(b"\n")
        for line in lines:
            report = _decode(line)
            if report.text:
                logging.getLogger(report.logger).log(report.level, "%s", report.text)
            else:
                self.taken, self.durable = report.taken, report.durable

    def reap(self) -> str:
        """Wait for its end, which `ended` has announced; how it ended, in words."""
        with contextlib.suppress(OSError):
            self._in.close()
        self._out.close()
        status = self._process.wait()
        if status < 0:
            return f"(pid {self.pid}) was ended by {signal.Signals(-status).name}"
        return f"(pid {self.pid}) ended with status {status}"
