"""A look at the embedded queue manager names no more queues than it may, and none whose name is made up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mq.embedded import host as inquiry
from bridge.mq.embedded.attributes import defaults
from bridge.mq.embedded.host import EmbeddedInquiry
from bridge.mq.embedded.queue import Queue
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.mqi import MQOD
from bridge.wire import cmqc
from tests.ibm_standin.mqi.connection import StandInConnection


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[Any]:
    manager = QueueManager("QM", tmp_path / "data")
    yield manager
    manager.close()


def test_more_queues_than_are_told_of(queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those asked for come first; how many are left out is told."""
    for number in range(20):
        name = f"Q{number:02}"
        queue_manager.objects.queues[name] = Queue(name, defaults("QLOCAL"))
    monkeypatch.setattr(inquiry, "MAX_QUEUES", 5)
    status = EmbeddedInquiry(queue_manager).look(["Q19", "Q07", "NO.SUCH.QUEUE"])
    assert [queue.name for queue in status.queues[:3]] == ["Q19", "Q07", "Q00"]
    assert len(status.queues) == 5
    assert status.left_out == len(queue_manager.objects.queues) - 5


def test_dynamic_queues_are_not_told_of(queue_manager: Any) -> None:
    """Each of them has a name that no other had before."""
    before = EmbeddedInquiry(queue_manager).look([])
    connection = StandInConnection(queue_manager)
    od = MQOD(ObjectName="SYSTEM.DEFAULT.MODEL.QUEUE", DynamicQName="REPLIES.*")
    connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE)
    assert od.ObjectName in queue_manager.objects.queues
    now = EmbeddedInquiry(queue_manager).look([])
    assert [queue.name for queue in now.queues] == [queue.name for queue in before.queues]
    assert now.left_out == 0
    connection.disconnect()
