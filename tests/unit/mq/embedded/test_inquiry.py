"""Inspection of the embedded queue manager: the number of queues is limited, and dynamic queues are excluded."""

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


def test_more_queues_than_the_limit(queue_manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requested queues come first. The number of omitted queues is reported."""
    for number in range(20):
        name = f"Q{number:02}"
        queue_manager.objects.queues[name] = Queue(name, defaults("QLOCAL"))
    monkeypatch.setattr(inquiry, "MAX_QUEUES", 5)
    status = EmbeddedInquiry(queue_manager).status(["Q19", "Q07", "NO.SUCH.QUEUE"])
    assert [queue.name for queue in status.queues[:3]] == ["Q19", "Q07", "Q00"]
    assert len(status.queues) == 5
    assert status.left_out == len(queue_manager.objects.queues) - 5


def test_dynamic_queues_are_excluded(queue_manager: Any) -> None:
    """Each has a new name."""
    before = EmbeddedInquiry(queue_manager).status([])
    connection = StandInConnection(queue_manager)
    od = MQOD(ObjectName="SYSTEM.DEFAULT.MODEL.QUEUE", DynamicQName="REPLIES.*")
    connection.open(od, cmqc.MQOO_INPUT_EXCLUSIVE)
    assert od.ObjectName in queue_manager.objects.queues
    now = EmbeddedInquiry(queue_manager).status([])
    assert [queue.name for queue in now.queues] == [queue.name for queue in before.queues]
    assert now.left_out == 0
    connection.disconnect()
