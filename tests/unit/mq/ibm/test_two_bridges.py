"""Two bridges on one queue manager: which one has the transmission queue, and the state of the other one."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

from bridge.config.queue_manager import STATE_QUEUE
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.ibm.persistent_state import PersistentState
from bridge.mq.mqi import MQError
from bridge.telemetry.record import ReceivedRecord
from bridge.telemetry.shard import Shard
from bridge.wire import cmqc
from tests.helpers.breakable_connection import Fault
from tests.helpers.ibm_backends import (
    NONE,
    BreakableConnection,
    backend_of,
    define_shards,
    drain,
    ended,
    keep,
    opened,
    payloads,
    publication,
    published,
    stop,
)
from tests.helpers.patience import PATIENCE, happens
from tests.helpers.units import Unit


async def fence(backend: IbmBackend) -> BreakableConnection:
    """The connection that keeps other bridges away."""
    await happens(lambda: backend._first_remover.connection is not None)
    connection = backend._first_remover.connection
    assert isinstance(connection, BreakableConnection)
    return connection


async def test_a_second_bridge_stands_by_until_the_first_has_ended(queue_manager: QueueManager) -> None:
    first, second = await opened(queue_manager, NONE), backend_of(queue_manager, NONE)
    waiting = asyncio.ensure_future(second.open())
    finished, _ = await asyncio.wait((waiting,), timeout=0.3)
    assert not finished
    await stop(first)
    await asyncio.wait_for(waiting, PATIENCE)
    await stop(second)


async def test_a_takeover_ends_the_writes_of_the_previous_bridge(queue_manager: QueueManager) -> None:
    """The first bridge loses its lock without notice: it commits nothing, completes no requests, and then notices
    the loss.
    """
    first = await opened(queue_manager, NONE, probe_interval=10_000)
    fenced: list[str] = []
    first.events = replace(first.events, fenced=fenced.append)
    await published(first, "a", 1)
    second = backend_of(queue_manager, NONE)
    waiting = asyncio.ensure_future(second.open())
    (await fence(first)).die()
    await asyncio.wait_for(waiting, PATIENCE)
    late = asyncio.ensure_future(published(first, "a", 2))
    await happens(lambda: bool(fenced))
    assert not late.done()
    await published(second, "a", 3)
    await asyncio.wait_for(first.abandon(), PATIENCE)
    late.cancel()
    await stop(second)
    assert payloads(queue_manager) == {"a": [1, 3]}


@pytest.mark.parametrize(
    ("purpose", "worker"), [("subscriptions", "subscriptions"), ("shares", "shared subscriptions")]
)
async def test_a_takeover_ends_threads_that_do_not_write_to_the_state_queue(
    queue_manager: QueueManager, purpose: str, worker: str
) -> None:
    """After a lost connection, they do not change subscriptions of the bridge that has taken over, nor move its messages."""
    define_shards(queue_manager)
    connections: list[tuple[str, BreakableConnection]] = []
    shard = Shard(0, 2)
    first = await opened(queue_manager, NONE, shard=shard, connections=connections, probe_interval=10_000)
    fenced: list[str] = []
    first.events = replace(first.events, fenced=fenced.append)
    await happens(lambda: {"shares", "subscriptions"} <= {kind for kind, _ in connections})
    second = backend_of(queue_manager, NONE, shard=shard)
    waiting = asyncio.ensure_future(second.open())
    await fence(first)
    for kind, connection in connections:
        if kind in ("poller", "shares", purpose):  # all that have the transmission queue open
            connection.die()
    await asyncio.wait_for(waiting, PATIENCE)
    next(thread for thread in first._workers if thread.name == worker).request_probe()
    await happens(lambda: any(why.startswith(f"{worker}: the bridge on host") for why in fenced))
    await asyncio.wait_for(first.abandon(), PATIENCE)
    await stop(second)


async def test_a_bridge_continues_although_the_queue_manager_still_has_its_lost_connection(
    queue_manager: QueueManager,
) -> None:
    """MQRC_OBJECT_IN_USE without another bridge: the queue manager has not noticed the loss of its own connection."""
    backend = await opened(queue_manager, NONE, probe_interval=0.02)
    fenced: list[str] = []
    backend.events = replace(backend.events, fenced=fenced.append)
    ghost = await fence(backend)
    ghost.cut()
    await happens(lambda: backend._first_remover._standing_by)
    await published(backend, "a", 1)
    ghost.die()
    await happens(lambda: backend._first_remover.connection is not None and not backend._first_remover._standing_by)
    assert not fenced
    await stop(backend)
    assert payloads(queue_manager) == {"a": [1]}


async def test_a_takeover_waits_for_a_unit_of_work_in_progress(queue_manager: QueueManager) -> None:
    """It is committed, and the next bridge reads the record that belongs to it."""
    connections: list[tuple[str, BreakableConnection]] = []
    first = await opened(queue_manager, NONE, connections=connections, probe_interval=10_000)
    await happens(lambda: any(kind == "publisher" for kind, _ in connections))
    (publisher,) = (connection for kind, connection in connections if kind == "publisher")
    gate = publisher.gates["commit"] = threading.Event()

    def fill(unit: Unit) -> None:
        unit.publications = [(publication("a", 1), False)]
        keep(unit, ReceivedRecord("a", [1]))

    committing = asyncio.ensure_future(ended(first, fill))
    # The old receipt is removed, the new one is not committed yet.
    await happens(lambda: not first._publishers[0]._jobs and first._publishers[0].busy_since > 0)
    state_queue = queue_manager.objects.queues[STATE_QUEUE]
    await happens(lambda: sum(1 for _ in state_queue.messages()) < 3)
    second = backend_of(queue_manager, NONE)
    waiting = asyncio.ensure_future(second.open())
    (await fence(first)).die()
    finished, _ = await asyncio.wait((waiting,), timeout=0.3)
    assert not finished
    gate.set()
    assert (await committing).failure == 0
    recovered = await asyncio.wait_for(waiting, PATIENCE)
    await asyncio.wait_for(first.abandon(), PATIENCE)
    await stop(second)
    (record,) = recovered.records
    assert isinstance(record, ReceivedRecord) and record.received == [1]
    assert payloads(queue_manager) == {"a": [1]}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("number", range(1, 31))
async def test_a_takeover_that_begins_again_waits_for_a_unit_of_work_in_progress(
    queue_manager: QueueManager, number: int, is_killed: bool
) -> None:
    """The second bridge loses its connection at any verb of its takeover, and continues, or ends and a third one follows."""
    connections: list[tuple[str, BreakableConnection]] = []
    first = await opened(queue_manager, NONE, connections=connections, probe_interval=10_000)
    await happens(lambda: any(kind == "publisher" for kind, _ in connections))
    (publisher,) = (connection for kind, connection in connections if kind == "publisher")
    gate = publisher.gates["commit"] = threading.Event()

    def fill(unit: Unit) -> None:
        unit.publications = [(publication("a", 1), False)]
        keep(unit, ReceivedRecord("a", [1]))

    committing = asyncio.ensure_future(ended(first, fill))
    await happens(lambda: not first._publishers[0]._jobs and first._publishers[0].busy_since > 0)
    state_queue = queue_manager.objects.queues[STATE_QUEUE]
    await happens(lambda: sum(1 for _ in state_queue.messages()) < 3)
    (await fence(first)).die()
    fault = Fault("poller", number, after=True)
    second = backend_of(queue_manager, fault)
    opening = asyncio.ensure_future(second.open())
    await happens(lambda: bool(fault.struck))
    if is_killed:
        await asyncio.wait_for(second.abandon(), PATIENCE)
        opening.cancel()
        second = backend_of(queue_manager, NONE)
        opening = asyncio.ensure_future(second.open())
    finished, _ = await asyncio.wait((opening,), timeout=0.2)
    assert not finished
    gate.set()
    assert (await committing).failure == 0
    recovered = await asyncio.wait_for(opening, PATIENCE)
    await asyncio.wait_for(first.abandon(), PATIENCE)
    await stop(second)
    (record,) = recovered.records
    assert isinstance(record, ReceivedRecord) and record.received == [1]
    assert payloads(queue_manager) == {"a": [1]}


@pytest.mark.parametrize("number", range(1, 46))
async def test_a_takeover_that_begins_again_has_a_receipt_for_each_worker(
    queue_manager: QueueManager, number: int
) -> None:
    """Without its receipt, a worker would not notice the next takeover. The owner message and two receipts are left."""
    await stop(await opened(queue_manager, NONE))
    backend = await opened(queue_manager, Fault("poller", number, after=True))
    state_queue = queue_manager.objects.queues[STATE_QUEUE]
    await happens(lambda: sum(1 for _ in state_queue.messages()) == 3)
    await stop(backend)


async def test_a_start_that_is_cancelled_ignores_what_the_workers_report(queue_manager: QueueManager) -> None:
    errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(context))
    backend = backend_of(queue_manager, NONE)
    opening = asyncio.create_task(backend.open())
    await asyncio.sleep(0)
    opening.cancel()
    await happens(lambda: backend._first_remover._active)
    backend.refused(MQError(cmqc.MQRC_GET_INHIBITED, "planned"))
    await stop(backend)
    assert opening.cancelled() and not errors


async def test_two_new_shards_of_different_numbers_of_shards_do_not_start_at_the_same_moment(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither has recorded its number when the other one compares it. A refused one leaves nothing on its state queue."""
    define_shards(queue_manager)
    compared = threading.Barrier(2)
    own = PersistentState.own

    def own_after_both_have_compared(state: PersistentState, workers: int, shards: int) -> list[bytes]:
        compared.wait(PATIENCE)
        return own(state, workers, shards)

    shards = Shard(0, 2), Shard(1, 3)
    with monkeypatch.context() as patched:
        patched.setattr(PersistentState, "own", own_after_both_have_compared)
        backends = [backend_of(queue_manager, NONE, shard=shard) for shard in shards]
        starts = await asyncio.gather(
            *(asyncio.wait_for(backend.open(), PATIENCE) for backend in backends), return_exceptions=True
        )
    refused = [shard for shard, start in zip(shards, starts, strict=True) if isinstance(start, MQError)]
    assert refused and all(
        start.reason == cmqc.MQRC_ENVIRONMENT_ERROR for start in starts if isinstance(start, MQError)
    )
    for backend in backends:
        await stop(backend)
    for shard in refused:
        assert not drain(queue_manager, f"{STATE_QUEUE}.{shard.number}")
