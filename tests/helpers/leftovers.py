"""A pytest plug-in that ends processes left behind by a parallel run, and removes temporary files.

Each process of such a run has a mark in its environment (MQBRIDGE_TEST_RUN), even if it left its session and group.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from multiprocessing.util import Finalize
from types import FrameType

import psutil
import pytest

VARIABLE = "MQBRIDGE_TEST_RUN"
#: Seconds for a process to end by itself. Spark's virtual machine ends after its Python process.
GRACE = 20


def _left() -> list[psutil.Process]:
    """Return the processes of this run, except this one."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(VARIABLE) == os.environ[VARIABLE]:
                processes.append(process)
        except psutil.Error:
            continue  # it has ended, or belongs to another user
    return processes


def _end(number: int, frame: FrameType | None) -> None:
    """End in order, as after Ctrl-C, including the workers."""
    raise KeyboardInterrupt


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        # Only the directories of failed tests stay, where pytest keeps them. Files of Spark and others are removed.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="mqbridge-tests-")
        # At exit, after multiprocessing has removed its own directory (priority -100).
        Finalize(None, shutil.rmtree, (tempfile.tempdir, True), exitpriority=-200)
    # In the background of a shell, SIGINT is ignored, also by programs to which the tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.pluginmanager.hasplugin("dsession"):  # this process starts the others
        os.environ[VARIABLE] = f"{os.getpid()}-{psutil.Process().create_time()}"
        signal.signal(signal.SIGTERM, _end)


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("dsession"):
        _, alive = psutil.wait_procs(_left(), GRACE)
        for process in alive:
            try:
                command = " ".join(process.cmdline())[:200]
                print(f"left running by a test, and ended now: {process.pid} {command}", file=sys.stderr)
                process.kill()
            except psutil.NoSuchProcess:
                continue
