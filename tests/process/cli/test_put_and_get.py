"""`mqbridge mq get` waits for messages."""

from __future__ import annotations

from typing import Any

from bridge.telemetry.message import Message
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE


def test_get_waits_for_a_message(start: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    process = start("mq", "get", queue, "--wait", 20, "--data-dir", queue_manager.directory)
    queue_manager.until(lambda: queue_manager.command(f"DISPLAY QSTATUS({queue}) IPPROCS")[0]["IPPROCS"] == 1)
    queue_manager.put(queue, Message(MQMD(), b"late"))
    assert process.communicate(timeout=PATIENCE) == (b"late\n", b"")
    assert process.returncode == 0
    assert queue_manager.depth(queue) == 0


def test_waiting_gets_share_messages(start: Any, queue_manager: Any) -> None:
    queue = queue_manager.queue()
    processes = [start("mq", "get", queue, "--wait", 20, "--data-dir", queue_manager.directory) for _ in range(3)]
    queue_manager.until(lambda: queue_manager.command(f"DISPLAY QSTATUS({queue}) IPPROCS")[0]["IPPROCS"] == 3)
    for running_count in (2, 1, 0):  # each message is for one of them, and the others continue to wait
        queue_manager.put(queue, Message(MQMD(), b"one"))
        queue_manager.until(
            lambda running_count=running_count: [process.poll() for process in processes].count(None) == running_count
        )
    assert [process.communicate() for process in processes] == [(b"one\n", b"")] * 3
