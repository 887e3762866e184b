"""A queue manager controlled with MQSC commands, for the tests of the embedded queue manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bridge.mq.embedded.connection import EmbeddedConnection
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from tests.helpers.embedded_manager import Manager
from tests.helpers.embedded_service import Service, Started


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """Start a service on a queue manager. Each call is a start on the same data."""

    @asynccontextmanager
    async def once(*, script: str = "") -> AsyncIterator[Service]:
        queue_manager = QueueManager("MQB1", tmp_path)
        try:
            prepare(queue_manager)
            if script:
                for response in EmbeddedConnection(queue_manager).command(script):
                    assert response.ok, response.message
            service = await Service(queue_manager).start()
            yield service
            await service.flush()
            await service.stop()
        finally:
            # The loop no longer waits for the recovery log, so its remaining reports are made on its own thread.
            queue_manager.recovery_log.dispatch = lambda call: call()
            queue_manager.close()

    return once
