"""An embedded queue manager with the command server of the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from tests.helpers.pcf_administrator import Administrator
from tests.ibm_standin.pcf.command_server import CommandServer


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[QueueManager]:
    queue_manager = QueueManager("MQB1", tmp_path)
    CommandServer(queue_manager).start()
    yield queue_manager
    queue_manager.close()


@pytest.fixture
def admin(queue_manager: QueueManager) -> Administrator:
    return Administrator(queue_manager)
