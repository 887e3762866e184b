"""A queue manager for the backend of threads, with short waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mq import worker
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm import browser
from bridge.mq.ibm.subscriber import Subscriber
from tests.ibm_standin.mqi.connection import StandInConnection


@pytest.fixture
def queue_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueManager]:
    monkeypatch.setattr(worker, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(worker, "MAX_PAUSE", 0.01)
    monkeypatch.setattr(browser, "BROWSE_WAIT", 20)
    monkeypatch.setattr(Subscriber, "_inquire", staticmethod(lambda _connection: []))
    manager = QueueManager("QM1", tmp_path)
    prepare(manager)
    connection = StandInConnection(manager)
    script = "DEFINE QLOCAL(OUT) MAXDEPTH(100000)\nDEFINE SUB('all') TOPICSTR('t/#') DEST(OUT)"
    assert all(response.ok for response in connection.command(script))
    connection.disconnect()
    yield manager
    manager.close()
