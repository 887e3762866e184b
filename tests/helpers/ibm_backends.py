"""A backend of threads on breakable connections, and actions of tests with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from bridge.config.queue_manager import SHARE_MEMBERS_QUEUE, BatchConfig, BridgeQueues, IbmQueueManagerConfig
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import MQOD, GetOptions, get_or_none
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.message import Message
from bridge.telemetry.record import StateRecord
from bridge.telemetry.shard import UNDIVIDED, Shard
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from tests.helpers.breakable_connection import BreakableConnection, Fault
from tests.helpers.patience import PATIENCE
from tests.helpers.units import Unit, Units, requests
from tests.ibm_standin.mqi.connection import StandInConnection

TRANSMIT = "SYSTEM.MQTT.TRANSMIT.QUEUE"

UNITS = Units()


def backend_of(
    manager: QueueManager,
    fault: Fault,
    *,
    publishers: int = 1,
    removers: int = 1,
    asynchronous: bool = False,
    connections: list[tuple[str, BreakableConnection]] | None = None,
    probe_interval: float = 10.0,
    memory: MemoryWatermark | None = None,
    shard: Shard = UNDIVIDED,
) -> IbmBackend:
    """Return a backend that is not open. `connections` receives the purpose of each connection, and the connection."""

    def connect(purpose: str) -> BreakableConnection:
        connection = BreakableConnection(manager, purpose, fault)
        if connections is not None:
            connections.append((purpose, connection))
        return connection

    settings = IbmQueueManagerConfig.model_construct(
        name="QM1",
        mode="bindings",
        probe_interval=probe_interval,
        outage_timeout=0,
        publishers=publishers,
        removers=removers,
        batch=BatchConfig(messages=4),
        asynchronous_puts=asynchronous,
    )
    queues = BridgeQueues()
    if shard.of > 1:
        queues = BridgeQueues(
            f"{queues.transmission}.{shard.number}", f"{queues.state}.{shard.number}", f"{queues.lock}.{shard.number}"
        )
    return IbmBackend(connect, asyncio.get_running_loop(), settings, queues=queues, shard=shard, memory=memory)


async def opened(manager: QueueManager, fault: Fault, **settings: Any) -> IbmBackend:
    backend = backend_of(manager, fault, **settings)
    await asyncio.wait_for(backend.open(), PATIENCE)
    return backend


async def records_of(manager: QueueManager) -> list[StateRecord]:
    """Return the records that the next bridge reads."""
    backend = backend_of(manager, NONE)
    recovered = await asyncio.wait_for(backend.open(), PATIENCE)
    await stop(backend)
    return recovered.records


def publication(client_id: str, number: int) -> PublicationMessage:
    identity = ClientIdentity(client_id, b"")
    return PublicationMessage(identity.descriptors[2], client_id, f"t/{client_id}", str(number).encode(), 2, number + 1)


async def ended(backend: IbmBackend, fill: Callable[[Unit], None]) -> Unit:
    completion: asyncio.Future[Unit] = asyncio.get_running_loop().create_future()
    unit = Unit()
    unit.done = completion.set_result
    fill(unit)
    UNITS.add(unit)
    backend.on_completed = UNITS.completed
    backend.submit(unit)
    return await asyncio.wait_for(completion, PATIENCE)


def keep(unit: Unit, record: StateRecord) -> None:
    unit.records[record.key] = record


async def stop(backend: IbmBackend) -> None:
    await asyncio.wait_for(backend.stop(), PATIENCE)


def drain(manager: QueueManager, queue: str) -> list[Message]:
    connection = StandInConnection(manager)
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    messages: list[Message] = []
    while (message := get_or_none(connection, handle, GetOptions())) is not None:
        messages.append(Message(message.md, message.data))
    connection.disconnect()
    return messages


def payloads(manager: QueueManager) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for message in drain(manager, "OUT"):
        client_id = message.data.split(b"<clientId>")[1].split(b"</clientId>")[0].decode()
        numbers.setdefault(client_id, []).append(int(message.data.rsplit(b" ", 1)[-1].rsplit(b">", 1)[-1]))
    return numbers


NONE = Fault("none", 0, after=False)


async def subscribed(backend: IbmBackend, client_id: str, topic_filter: str) -> None:
    subscribing = backend.subscribe(client_id, requests((topic_filter, 1)), durable=False, user="")
    assert await asyncio.wait_for(subscribing, PATIENCE) == [0]


async def published(backend: IbmBackend, client_id: str, number: int) -> Unit:
    def fill(unit: Unit) -> None:
        unit.publications = [(publication(client_id, number), False)]

    return await ended(backend, fill)


def define_shards(manager: QueueManager) -> None:
    """Define the queues of two shards."""
    connection = StandInConnection(manager)
    names = [f"SYSTEM.MQTT.{name}.{number}" for name in ("PERSISTENT.STATE", "BRIDGE.LOCK") for number in (0, 1)]
    connection.command("DEFINE QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.0') USAGE(XMITQ)")
    connection.command("DEFINE QLOCAL('SYSTEM.MQTT.TRANSMIT.QUEUE.1') USAGE(XMITQ)")
    for name in (*names, SHARE_MEMBERS_QUEUE):
        connection.command(f"DEFINE QLOCAL('{name}')")
    connection.disconnect()
