"""A process that works on a queue manager, reports commits, and can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.helpers.patience import PATIENCE

#: The beginning of each child program.
PREFACE = """
import itertools, os, sys, threading
from pathlib import Path
from bridge.telemetry.message import Message
from bridge.mq.mqi import MQOD, MQSD, GetOptions
from bridge.mq.embedded.storage import recovery_log
from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc
from bridge.wire.mq import MQMD

SYNC, GET_SYNC, RETAIN = cmqc.MQPMO_SYNCPOINT, cmqc.MQGMO_SYNCPOINT, cmqc.MQPMO_RETAIN

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

def put(connection, queue, data, options=0, persistence=1):
    connection.put1(MQOD(ObjectName=queue), Message(MQMD(Persistence=persistence), data.encode()), options)

def publish(connection, topic, data, options=0, persistence=1):
    od = MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString=topic)
    connection.put1(od, Message(MQMD(Persistence=persistence), data.encode()), options)

def every_thread(work, count):
    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(count)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

directory, run = Path(sys.argv[1]), sys.argv[2]
"""


class Child:
    """A process that can be killed, and the words of each line it has written."""

    def __init__(self, script: str, directory: Path, run: str = "0", **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PREFACE + textwrap.dedent(script), str(directory), run],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.lines: list[list[str]] = []

    def read(self, count: int) -> None:
        """Read until `count` lines have arrived."""
        while len(self.lines) < count:
            line = self._output.readline()
            assert line, "the child ended by itself"
            self.lines.append(line.split())

    def kill(self) -> None:
        """kill -9. Earlier output counts."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)
        # An incomplete last line is ignored.
        self.lines += [line.split() for line in self._output if line.endswith("\n")]
        self._output.close()
