"""`mqbridge` processes that are forked from a process that has imported the bridge. This saves 0.7 CPU seconds per start."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Final

# The modules of a bridge and of the stand-in. The fork server imports this module before it forks.
import tests.ibm_standin.server  # noqa: F401
from bridge.config.models import default_configuration
from tests.helpers.patience import PATIENCE

ROOT: Final = Path(__file__).resolve().parents[2]
#: The installed command.
MQBRIDGE: Final = Path(sys.executable).with_name("mqbridge")
#: The command and the module of each program that can be forked.
_PROGRAMS: Final[Mapping[tuple[str | Path, ...], str]] = {
    (MQBRIDGE,): "bridge",
    (sys.executable, "-m", "tests.ibm_standin"): "tests.ibm_standin",
}

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [__name__, "bridge.cli.service", "bridge.service.foreground", "bridge.mq.embedded.host", "tests.ibm_standin.server"]
)
# Pydantic builds its validators when they are first used, which takes 0.16 s. The fork server does it once.
default_configuration()


class ForkedProcess:
    """A forked program with the methods of `subprocess.Popen` that the tests use."""

    def __init__(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str], cwd: Path | None, stdout: int, stderr: int
    ) -> None:
        sys.audit("subprocess.Popen", MQBRIDGE, arguments, cwd, None)
        _ensure_fork_server()
        with open(os.devnull, "wb") as null:
            outputs = [
                multiprocessing.connection.Connection(os.dup(null.fileno() if output < 0 else output), readable=False)
                for output in (stdout, stderr)
            ]
        # A daemonic process is killed when the test session ends.
        self._process = _context.Process(
            target=_run, args=(module, list(arguments), dict(env), str(cwd or Path.cwd()), outputs), daemon=True
        )
        self._process.start()
        for output in outputs:
            output.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal. None: the process runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Return the exit status. None: the process runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status when the process has ended. Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("mqbridge", timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def launch(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    forks: bool = True,
    process_group: int | None = None,
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a program. Fork it if it is one of ours.

    The standard streams are file descriptors. A forked process has no standard input, and the process group of its server.
    Without `forks`, or with a library to preload, programs are executed.
    """
    env = os.environ if env is None else env
    for program, module in _PROGRAMS.items():
        if forks and "LD_PRELOAD" not in env and tuple(command[: len(program)]) == program:
            arguments = [str(word) for word in command[len(program) :]]
            return ForkedProcess(module, arguments, env, cwd, stdout, stderr)
    return subprocess.Popen(
        command, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, process_group=process_group
    )


def run(
    *arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `mqbridge` with arguments. Return its output."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = launch([MQBRIDGE, *arguments], env=env, cwd=cwd, stdout=stdout.fileno(), stderr=stderr.fileno())
        try:
            status = process.wait(PATIENCE)
        finally:
            process.kill()
        outputs = []
        for file in (stdout, stderr):
            file.seek(0)
            outputs.append(file.read().decode())
    return subprocess.CompletedProcess(["mqbridge", *map(str, arguments)], status, *outputs)


def _ensure_fork_server() -> None:
    """Start the fork server with the stand-in's libraries: the dynamic linker reads the path when a program starts."""
    path = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = str(ROOT / "build" / "mqi" / "lib64")
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["LD_LIBRARY_PATH"]
        if path is not None:
            os.environ["LD_LIBRARY_PATH"] = path


def _run(
    module: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    outputs: Sequence[multiprocessing.connection.Connection],
) -> None:
    """Become the program, in the forked process."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[1:1] = [place for place in env.get("PYTHONPATH", "").split(":") if place and place not in sys.path]
    for target, output in enumerate(outputs, start=1):
        os.dup2(output.fileno(), target)
        output.close()
    sys.argv = ["mqbridge", *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=False)
