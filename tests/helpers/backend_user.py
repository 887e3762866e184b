"""The telemetry service from the view of a backend: it submits units of work, and records all events."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from bridge.mq.backend import Backend, Completion, RecoveredState, UnitOfWork
from bridge.mq.mqi import MQError
from bridge.telemetry.identity import ClientIdentity
from bridge.telemetry.record import Side, StateKey, StateRecord
from bridge.telemetry.transmission import PublicationMessage, Transmission
from tests.helpers.backend_places import Place
from tests.helpers.patience import PATIENCE
from tests.helpers.units import requests

_markers = itertools.count(1)


def publication(
    topic: str, payload: bytes = b"x", *, qos: int = 1, client_id: str = "dev", packet_id: int = 1, user: str = ""
) -> PublicationMessage:
    md = ClientIdentity(client_id, user.encode()).descriptors[qos]
    return PublicationMessage(md, client_id, topic, payload, qos, packet_id if qos else 0)


def unit(
    *publications: PublicationMessage,
    retain: bool = False,
    removals: Sequence[Transmission] = (),
    records: Sequence[StateRecord] = (),
    ended: Sequence[StateKey] = (),
    dead_letters: Sequence[int] = (),
) -> UnitOfWork:
    """Return a unit of work that writes `records` and deletes those of `ended`."""
    work = UnitOfWork(
        [(put_publication, retain) for put_publication in publications], list(removals), frozenset(dead_letters)
    )
    work.records = {record.key: record for record in records} | dict.fromkeys(ended)
    return work


def received(client_id: str) -> StateKey:
    return StateKey(Side.RECEIVED, client_id)


def sent(client_id: str) -> StateKey:
    return StateKey(Side.SENT, client_id)


class Bridge:
    """Submit work to a backend, and record all events."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.transmissions: list[Transmission] = []
        self.completions: list[Completion] = []
        self._backend: Backend | None = None
        self._numbers = itertools.count(1)
        self._heard = asyncio.Event()

    @property
    def backend(self) -> Backend:
        assert self._backend is not None
        return self._backend

    def topic(self, rest: str) -> str:
        return f"{self.place.root}/{rest}"

    async def open(self) -> RecoveredState:
        """Return a new backend, which finds the state of the previous one."""
        self._backend = self.place.backend()
        self._backend.on_completed = self._completed
        try:
            recovered = await asyncio.wait_for(self._backend.open(), PATIENCE)
        except MQError:
            await self.stop()
            raise
        # A shared queue manager may have subscriptions of other tests.
        recovered.subscriptions = [
            subscription for subscription in recovered.subscriptions if self.place.root in subscription.topic_filter
        ]
        return recovered

    async def start(self) -> None:
        self.backend.start(self._consume)
        await asyncio.wait_for(self.backend.caught_up(), PATIENCE)

    async def begin(self) -> RecoveredState:
        """Open and start."""
        recovered = await self.open()
        await self.start()
        return recovered

    async def stop(self) -> None:
        if self._backend is not None:
            backend, self._backend = self._backend, None
            await asyncio.wait_for(backend.stop(), PATIENCE)

    async def restart(self, *, start: bool = True) -> RecoveredState:
        await self.stop()
        await self.place.restart()
        self.transmissions.clear()
        return await (self.begin() if start else self.open())

    def _consume(self, batch: Sequence[Transmission]) -> None:
        self.transmissions += batch
        self._heard.set()

    def _completed(self, completions: Sequence[Completion]) -> None:
        self.completions += completions
        self._heard.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition, which is checked at each event."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._heard.clear()
                await self._heard.wait()

    def submit(self, *units: UnitOfWork) -> None:
        for work in units:
            work.number = next(self._numbers)
            self.backend.submit(work)

    async def run(self, *units: UnitOfWork) -> list[Completion]:
        """Submit units of work together. Return the completion of each."""
        self.submit(*units)
        return await self.ended(*units)

    async def ended(self, *units: UnitOfWork) -> list[Completion]:
        def completions() -> dict[int, Completion]:
            return {completion.number: completion for completion in self.completions}

        await self.until(lambda: completions().keys() >= {work.number for work in units})
        return [completions()[work.number] for work in units]

    async def run_accepted(self, *units: UnitOfWork) -> None:
        """Run units of work without rejections."""
        for completion in await self.run(*units):
            assert (completion.failure, dict(completion.refusals), dict(completion.diverted)) == (0, {}, {})

    async def subscribe(
        self, client_id: str, *filters: tuple[str, int], durable: bool = True, user: str = ""
    ) -> list[int]:
        if durable:
            self.place.at_end += [f"DELETE SUB('{client_id}:{topic_filter}')" for topic_filter, _ in filters]
        answer = self.backend.subscribe(client_id, requests(*filters), durable=durable, user=user)
        return await asyncio.wait_for(answer, PATIENCE)

    async def subscribed(self, client_id: str, *filters: str, qos: int = 1, durable: bool = True) -> None:
        """Make subscriptions without rejections."""
        reasons = await self.subscribe(client_id, *((topic_filter, qos) for topic_filter in filters), durable=durable)
        assert reasons == [0] * len(filters)

    async def unsubscribe(self, client_id: str, *filters: str, ended: bool = False) -> None:
        await asyncio.wait_for(self.backend.unsubscribe(client_id, filters, ended=ended), PATIENCE)

    async def retain(self, *publications: PublicationMessage) -> None:
        self.place.at_end += [f"CLEAR TOPICSTR('{retained.topic}') CLRTYPE(RETAINED)" for retained in publications]
        await self.run_accepted(unit(*publications, retain=True))

    async def flush(self) -> None:
        # Not wait_for: on Python 3.11, it takes an iteration of the event loop even if the future is done.
        async with asyncio.timeout(PATIENCE):
            await self.backend.flush()

    async def arrived(self, number: int) -> list[Transmission]:
        """Return all messages handed over so far, at least this number."""
        await self.until(lambda: len(self.transmissions) >= number)
        return self.transmissions

    async def settled(self) -> list[Transmission]:
        """Return all messages handed over, including all that are on the transmission queue now."""
        name = f"marker{next(_markers)}"
        await self.place.put("marker", b"", manager=name)
        await self.until(lambda: any(transmission.client_id == name for transmission in self.transmissions))
        markers = [transmission for transmission in self.transmissions if transmission.client_id == name]
        self.transmissions = [transmission for transmission in self.transmissions if transmission.client_id != name]
        await self.run_accepted(unit(removals=markers))
        return self.transmissions

    async def payloads(self) -> list[bytes]:
        return [payload(transmission) for transmission in await self.settled()]


def payload(transmission: Transmission) -> bytes:
    message = transmission.message
    return message.payload if isinstance(message, PublicationMessage) else message.data
