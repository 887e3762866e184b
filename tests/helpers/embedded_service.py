"""The user of the embedded queue manager's backend, and units of work for it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.telemetry.transmission import PublicationMessage
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.patience import PATIENCE
from tests.helpers.units import Unit, Units, requests

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"


class Service:
    """Collect transmissions and run units of work to their end."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self.queue_manager = queue_manager
        self.backend = EmbeddedBackend(queue_manager, TRANSMISSION_QUEUE, asyncio.get_running_loop())
        self.batches: list[list[Any]] = []
        self.units = Units()
        self.backend.on_completed = self.units.completed
        #: events, in order
        self.events: list[tuple[Any, ...]] = []

    async def start(self) -> Service:
        self.recovered = await self.backend.open()
        self.backend.start(self.consume)
        return self

    def consume(self, transmissions: Any) -> None:
        self.batches.append(list(transmissions))
        self.events += [("transmission", transmission.topic) for transmission in transmissions]

    @property
    def transmissions(self) -> list[Any]:
        return [transmission for batch in self.batches for transmission in batch]

    async def flush(self) -> None:
        # Not wait_for: on Python 3.11, it takes an iteration of the event loop even if the future is done.
        async with asyncio.timeout(PATIENCE):
            await self.backend.flush()

    async def turn(self) -> None:
        """Run one iteration of the event loop, and wait for the disk."""
        await asyncio.sleep(0)
        await self.flush()

    async def execute(self, *units: Unit) -> None:
        """Run units of work, submitted together."""
        for unit in units:
            unit.done = lambda unit: self.events.append(("done", unit))
            self.units.add(unit)
            self.backend.submit(unit)
        await self.flush()
        assert [event for event in self.events if event[0] == "done"][-len(units) :] == [("done", u) for u in units]

    async def subscribe(self, client_id: str, *filters: tuple[str, int], durable: bool = False) -> list[int]:
        answer = self.backend.subscribe(client_id, requests(*filters), durable=durable, user="")
        if not answer.done():
            answer.add_done_callback(lambda _: self.events.append(("subscribed", client_id)))
        else:
            self.events.append(("subscribed", client_id))
        reasons = await asyncio.wait_for(answer, PATIENCE)
        await self.flush()
        return reasons

    async def unsubscribe(self, client_id: str, *filters: str) -> None:
        await asyncio.wait_for(self.backend.unsubscribe(client_id, filters), PATIENCE)

    async def stop(self) -> None:
        await asyncio.wait_for(self.backend.stop(), PATIENCE)

    @contextmanager
    def failing_disk(self) -> Iterator[Any]:
        store = self.queue_manager.recovery_log._store
        real = store.write

        def write(*_arguments: Any) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        store.write = write  # type: ignore[assignment]
        try:
            yield
        finally:
            store.write = real


Started = Callable[..., AbstractAsyncContextManager[Service]]


def publication(
    topic: str, payload: bytes = b"x", *, qos: int = 1, client_id: str = "dev", packet_id: int = 1
) -> PublicationMessage:
    md = MQMD(Format=cmqc.MQFMT_RF_HEADER_2, Persistence=int(qos > 0))
    return PublicationMessage(md, client_id, topic, payload, qos, packet_id if qos else 0)


def unit(
    *publications: PublicationMessage, retain: bool = False, removals: Any = (), records: Any = (), ended: Any = ()
) -> Unit:
    """Return a unit of work that writes `records` and deletes those of `ended`."""
    work = Unit()
    work.publications = [(put_publication, retain) for put_publication in publications]
    work.removals = list(removals)
    work.records = {record.key: record for record in records} | dict.fromkeys(ended)
    return work
