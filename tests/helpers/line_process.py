"""A process whose output is read line by line while it runs: mosquitto_sub, `mqbridge mq sub`, the bridge."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.helpers.forked_process import launch
from tests.helpers.patience import PATIENCE, until


def suspend(pid: int) -> None:
    """Stop a process with SIGSTOP and return when all its threads have stopped. kill() returns before that."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(_state(thread) == "T" for thread in Path(f"/proc/{pid}/task").iterdir()))


def _state(thread: Path) -> str:
    """Return the state letter in proc_pid_stat(5). The command name before it can contain blanks and parentheses."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


class LineProcess:
    """A child process. `line` waits for its next line of standard output and error, which are combined."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        self.command = [str(word) for word in command]
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        output, end = os.pipe()
        self._output = os.fdopen(output, encoding="utf-8")
        try:
            self.process = launch(command, stdout=end, stderr=end, env=env, cwd=cwd, stdin=stdin, process_group=0)
        finally:
            os.close(end)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, timeout: float = PATIENCE) -> str | None:
        """Return the next line, or None if the process closed its output. AssertionError after a timeout."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"nothing from {self.command} within {timeout:g} s; before: {self.seen}") from None
        if line is None:
            self._lines.put(None)
        else:
            self.seen.append(line)
        return line

    def line_where(self, wanted: Callable[[str], bool], timeout: float = PATIENCE) -> str:
        """Return the next line that matches. Earlier lines are skipped."""
        while (line := self.line(timeout)) is not None:
            if wanted(line):
                return line
        raise AssertionError(f"{self.command} ended ({self.process.wait()}) before the line came: {self.seen}")

    def lines_so_far(self) -> list[str]:
        """Return all lines that it has printed."""
        while not self._lines.empty() and self.line() is not None:
            pass
        return self.seen

    def json(self, timeout: float = PATIENCE) -> Any:
        """Return the next line that is a JSON object."""
        return json.loads(self.line_where(lambda line: line.startswith("{"), timeout))

    def rest(self, timeout: float = PATIENCE) -> list[str]:
        """Yield lines until the output ends."""
        lines = []
        while (line := self.line(timeout)) is not None:
            lines.append(line)
        return lines

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit status after the process has ended by itself."""
        return self.process.wait(timeout)

    def terminate(self) -> int:
        """End it with SIGTERM. Return its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        if isinstance(self.process, subprocess.Popen):
            # The other processes of a pipeline write to the same pipe, which cannot be closed while it is read.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(5)
        self._output.close()
