"""Mappings in this process: an embedded queue manager, and a broker in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.link import connection as links
from bridge.mq import message_consumer, worker
from bridge.mq.embedded.mqsc.commands import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.service.mappings import link_runner, runner
from tests.helpers.mapping_scene import Scene

QUEUES = ("IN", "OUT")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Queues IN and OUT, and a broker. All waits are short."""
    monkeypatch.setattr(worker, "FIRST_PAUSE", 0.002)
    monkeypatch.setattr(worker, "MAX_PAUSE", 0.01)
    monkeypatch.setattr(message_consumer, "CHECK_INTERVAL", 0.005)
    for module in (runner, link_runner):
        monkeypatch.setattr(module, "WAIT", 0.005)
    monkeypatch.setattr(link_runner, "LINK_WAIT", 0.005)
    for module in (runner, link_runner):
        monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
        monkeypatch.setattr(module, "LONGEST_RETRY", 0.01)
    manager = QueueManager("QM1", tmp_path)
    prepare(manager)
    new_scene = Scene(manager)
    monkeypatch.setattr(links, "link_connection", new_scene.link_connection)
    monkeypatch.setattr(links, "end_session", lambda *_: True)
    for queue in QUEUES:
        new_scene.mqsc(f"DEFINE QLOCAL({queue}) MAXDEPTH(100000)")
    yield new_scene
    manager.close()
