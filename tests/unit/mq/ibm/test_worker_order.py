"""Connections lost while idle are restored, and publications wait for the subscriptions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.wire import cmqc
from tests.helpers.ibm_backends import NONE, BreakableConnection, opened, published, stop, subscribed
from tests.helpers.patience import PATIENCE, happens
from tests.ibm_standin.mqi.connection import StandInConnection


@pytest.mark.parametrize("purpose", ["publisher", "poller", "subscriptions"])
async def test_a_connection_lost_while_idle_is_restored_without_traffic(
    queue_manager: QueueManager, purpose: str
) -> None:
    """A subscriber with a clean session then receives publications."""
    connections: list[tuple[str, BreakableConnection]] = []
    backend = await opened(queue_manager, NONE, connections=connections, probe_interval=0.02)
    messages: list[Any] = []
    backend.start(messages.extend)
    await subscribed(backend, "dev", "t/#")
    before = [connection for kind, connection in connections if kind == purpose]
    for connection in before:
        connection.die()
    await happens(lambda: sum(kind == purpose for kind, _ in connections) == 2 * len(before))
    await happens(lambda: "dev:t/#" in queue_manager.objects.topics.subscriptions)
    await published(backend, "a", 1)
    await happens(lambda: len(messages) == 1)
    await stop(backend)


async def test_publications_wait_until_subscriptions_are_restored(queue_manager: QueueManager) -> None:
    """All connections are lost, and the publisher reconnects first. Clean sessions would miss its publications."""
    connections: list[tuple[str, BreakableConnection]] = []
    gate = threading.Event()
    backend = await opened(queue_manager, NONE, connections=connections)
    messages: list[Any] = []
    backend.start(messages.extend)
    await subscribed(backend, "dev", "t/#")
    connect = backend._subscriber._connect

    def slow() -> Any:
        assert gate.wait(PATIENCE)
        return connect()

    backend._subscriber._connect = slow
    for _, connection in connections:
        connection.die()
    publishing = asyncio.ensure_future(published(backend, "a", 1))
    await happens(lambda: sum(kind == "publisher" for kind, _ in connections) == 2)
    assert "dev:t/#" not in queue_manager.objects.topics.subscriptions
    assert not publishing.done()
    gate.set()
    assert (await publishing).failure == 0
    await happens(lambda: len(messages) == 1)
    await stop(backend)


async def test_a_subscription_that_the_queue_manager_still_has_is_made_when_it_is_released(
    queue_manager: QueueManager,
) -> None:
    """A half-open connection causes MQRC_SUB_ALREADY_EXISTS (2432)."""
    connections: list[tuple[str, BreakableConnection]] = []
    backend = await opened(queue_manager, NONE, connections=connections, probe_interval=0.02)
    await subscribed(backend, "dev", "t/#")
    (ghost,) = (connection for kind, connection in connections if kind == "subscriptions")
    ghost.cut()
    await happens(lambda: bool(backend._subscriber._to_make))
    ghost.die()
    await happens(lambda: not backend._subscriber._to_make)
    assert "dev:t/#" in queue_manager.objects.topics.subscriptions
    await stop(backend)


async def test_a_client_whose_subscription_is_finally_rejected_is_disconnected(
    queue_manager: QueueManager,
) -> None:
    connections: list[tuple[str, BreakableConnection]] = []
    backend = await opened(queue_manager, NONE, connections=connections, probe_interval=0.02)
    dropped: list[tuple[str, str, int]] = []
    backend.on_dropped = lambda *arguments: dropped.append(arguments)
    await subscribed(backend, "dev", "shut/x")
    connection = StandInConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('shut') SUB(DISABLED)")[0].ok
    for kind, lost in connections:
        if kind == "subscriptions":
            lost.die()
    await happens(lambda: bool(dropped))
    assert dropped == [("dev", "shut/x", cmqc.MQRC_SUB_INHIBITED)]
    await stop(backend)
