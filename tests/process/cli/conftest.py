"""The command line in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.command_line import invoke, mq, no_variable, queue_manager  # noqa: F401


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `mqbridge` as a process, in an empty working directory: `start("mq", "get", "Q")`."""
    started: list[subprocess.Popen[bytes]] = []

    def call(*arguments: object, stdout: int = subprocess.PIPE, **variables: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("mqbridge"), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=os.environ | {name: str(value) for name, value in variables.items()},
        )
        started.append(process)
        return process

    yield call
    for process in started:
        process.kill()
        process.communicate()
