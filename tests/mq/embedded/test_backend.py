"""What is the embedded backend's own: the disk that fails, turns of the loop, what needs no disk. See tests/mq/contract."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.session_record import ReceivedRecord, Side, StateKey, decode
from bridge.mq.embedded.backend import EmbeddedBackend
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.support.patience import PATIENCE
from tests.support.units import Unit, Units

TRANSMISSION_QUEUE = "SYSTEM.MQTT.TRANSMIT.QUEUE"
DEAD_LETTER_QUEUE = "SYSTEM.DEAD.LETTER.QUEUE"


class Service:
    """What the backend works for: it collects transmissions and runs units of work to their end."""

    def __init__(self, queue_manager: QueueManager) -> None:
        self.queue_manager = queue_manager
        self.backend = EmbeddedBackend(queue_manager, TRANSMISSION_QUEUE, asyncio.get_running_loop())
        self.batches: list[list] = []
        self.units = Units()
        self.backend.on_completed = self.units.completed
        #: what happened, in order
        self.events: list[tuple] = []

    async def start(self) -> Service:
        self.recovered = await self.backend.open()
        self.backend.start(self.consume)
        return self

    def consume(self, transmissions) -> None:
        self.batches.append(list(transmissions))
        self.events += [("transmission", one.topic) for one in transmissions]

    @property
    def transmissions(self) -> list:
        return [one for batch in self.batches for one in batch]

    async def flush(self) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.backend.flush(lambda: ended.set_result(None))
        await asyncio.wait_for(ended, PATIENCE)

    async def turn(self) -> None:
        """One turn of the event loop, and of whatever waits for the disk."""
        await asyncio.sleep(0)
        await self.flush()

    async def execute(self, *units: Unit) -> None:
        """Run units of work, all given at once."""
        for unit in units:
            unit.done = lambda unit: self.events.append(("done", unit))
            self.units.add(unit)
            self.backend.submit(unit)
        await self.flush()
        assert [event for event in self.events if event[0] == "done"][-len(units) :] == [("done", u) for u in units]

    async def subscribe(self, client_id: str, *filters: tuple[str, int], durable: bool = False) -> list[int]:
        ended = asyncio.get_running_loop().create_future()

        def done(reasons: list[int]) -> None:
            self.events.append(("subscribed", client_id))
            ended.set_result(reasons)

        self.backend.subscribe(client_id, filters, done, durable=durable, user="")
        reasons = await asyncio.wait_for(ended, PATIENCE)
        await self.flush()
        return reasons

    async def unsubscribe(self, client_id: str, *filters: str) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.backend.unsubscribe(client_id, filters, lambda: ended.set_result(None))
        await asyncio.wait_for(ended, PATIENCE)

    async def stop(self) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.backend.stop(lambda: ended.set_result(None))
        await asyncio.wait_for(ended, PATIENCE)

    @contextmanager
    def failing_disk(self):
        store = self.queue_manager.journal._store
        real = store.write

        def write(*_arguments):
            raise sqlite3.OperationalError("database or disk is full")

        store.write = write
        try:
            yield
        finally:
            store.write = real


Work = Callable[[Service], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path):
    """Run a coroutine function with a service on a queue manager; each call is a start on the same data."""

    def once(work: Work, *, script: str = "") -> None:
        async def everything() -> None:
            service = await Service(queue_manager).start()
            await asyncio.wait_for(work(service), PATIENCE)
            await service.flush()
            await service.stop()

        queue_manager = QueueManager("MQB1", tmp_path)
        try:
            prepare(queue_manager)
            if script:
                for response in EmbeddedConnection(queue_manager).command(script):
                    assert response.ok, response.message
            asyncio.run(everything())
        finally:
            # The loop is gone: what the end still has to say is said on the journal's thread.
            queue_manager.journal.dispatch = lambda call: call()
            queue_manager.close()

    return once


def publication(
    topic: str, payload: bytes = b"x", *, qos: int = 1, client_id: str = "dev", message_id: int = 1
) -> PublicationMessage:
    md = MQMD(Format=cmqc.MQFMT_RF_HEADER_2, Persistence=int(qos > 0))
    return PublicationMessage(md, client_id, topic, payload, qos, message_id if qos else 0)


def unit(*publications: PublicationMessage, retain: bool = False, removals=(), records=(), ended=()) -> Unit:
    """`records` are written, `ended` removed."""
    made = Unit()
    made.publications = [(one, retain) for one in publications]
    made.removals = list(removals)
    made.records = {one.key: one for one in records} | dict.fromkeys(ended)
    return made


def received(client_id: str) -> StateKey:
    return StateKey(Side.RECEIVED, client_id)


def test_a_message_is_handed_on_only_when_its_unit_is_on_disk(run):
    async def work(service):
        await service.subscribe("c1", ("#", 1), durable=True)
        with service.failing_disk():
            failing = unit(publication("t", b"never"))
            await service.execute(failing)
        assert failing.failure == cmqc.MQRC_RESOURCE_PROBLEM
        assert service.transmissions == []
        await service.execute(unit(publication("t", b"kept")))
        assert [one.message.payload for one in service.transmissions] == [b"kept"]

    run(work)


def test_a_failed_removal_leaves_the_message_on_the_queue(run):
    async def work(service):
        await service.subscribe("c1", ("#", 1), durable=True)
        await service.execute(unit(publication("t")))
        with service.failing_disk():
            failing = unit(removals=service.transmissions)
            await service.execute(failing)
        assert failing.failure
        again = unit(removals=service.transmissions)
        await service.execute(again)
        assert not again.failure
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 0

    run(work)


def test_a_state_stays_when_its_successors_cannot_be_written(run):
    async def first(service):
        await service.execute(unit(records=[ReceivedRecord("a", [9])]))
        with service.failing_disk():
            await service.execute(*(unit(records=[ReceivedRecord("a", [n])]) for n in range(4)))
        assert decode(service.queue_manager.states["received:a"].message.data) == ReceivedRecord("a", [9], 1)

    async def second(service):
        assert service.recovered.records == [ReceivedRecord("a", [9], 1)]

    run(first)
    run(second)


def test_a_failed_unit_gives_back_its_own_retained_publication_not_a_transmission(run):
    """Both have the topic string of the publication in the same unit of work."""

    async def work(service):
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t", b"state"), retain=True))
        with service.failing_disk():
            await service.execute(
                unit(publication("t", b"a"), retain=True, removals=service.transmissions),
                unit(publication("t", b"b"), retain=True),
            )
        kept = service.queue_manager.retained["t"]
        assert (kept.queue.name, kept.message.payload) == ("SYSTEM.RETAINED.PUB.QUEUE", b"state")
        await service.execute(unit(publication("t", b"next"), retain=True))
        assert service.queue_manager.queues["SYSTEM.RETAINED.PUB.QUEUE"].depth == 1

    run(work)


def test_retained_publications_come_after_the_subscription_is_answered(run):
    async def work(service):
        await service.execute(unit(publication("a"), publication("b"), retain=True))
        for durable in (False, True):
            service.events.clear()
            await service.subscribe("c1", ("#", 1), durable=durable)
            assert service.events == [("subscribed", "c1"), ("transmission", "a"), ("transmission", "b")]

    run(work)


def test_looks_for_retained_publications_end_with_a_turn_of_the_loop(run, monkeypatch):
    """Wildcards that lead everywhere and name nothing are worked on for many turns, and what is named comes all the same."""
    monkeypatch.setattr("bridge.mq.embedded.beginnings.LOOKS_AT_A_TURN", 100)
    monkeypatch.setattr("bridge.mq.embedded.beginnings.LOOKS_OF_A_CLIENT", 50)

    async def work(service):
        for number in range(1_000):
            await service.execute(unit(publication(f"r/{number}/x"), retain=True))
        await service.execute(unit(publication("last"), retain=True))
        loop = asyncio.get_running_loop()
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if len(service.transmissions) < 1_002:
                loop.call_soon(turn)

        turn()
        await service.subscribe("many", *(("+/" * n + "nothing", 0) for n in range(2, 7)), ("#", 0))
        # Another one's subscription does not wait for them.
        await service.subscribe("one", ("r/999/x", 0))
        while not service.transmissions:
            await service.turn()
        assert service.transmissions[0].client_id == "one"
        while len(service.transmissions) < 1_002:
            await service.turn()
        assert turns > 20

    run(work)


def test_only_retained_publications_that_persist_survive(run):
    async def first(service):
        await service.execute(unit(publication("hard", qos=1), publication("soft", qos=0), retain=True))

    async def second(service):
        await service.subscribe("c1", ("#", 0))
        assert [one.topic for one in service.transmissions] == ["hard"]

    run(first)
    run(second)


def test_a_subscription_that_becomes_non_durable_does_not_survive(run):
    async def first(service):
        await service.subscribe("c1", ("a", 1), durable=True)
        await service.subscribe("c1", ("a", 1), durable=False)

    async def second(service):
        assert service.recovered.subscriptions == []

    run(first)
    run(second)


def test_what_exists_for_clean_sessions_only_needs_no_disk(run):
    async def work(service):
        await service.subscribe("c1", ("#", 2))
        with service.failing_disk():
            written = unit(publication("t", qos=2))
            await service.execute(written)
        assert written.failure == cmqc.MQRC_NONE
        assert len(service.transmissions) == 1

    run(work)


@pytest.mark.parametrize(
    ("queue", "reason"),
    [("NO.SUCH.QUEUE", cmqc.MQRC_UNKNOWN_OBJECT_NAME), (DEAD_LETTER_QUEUE, cmqc.MQRC_XMIT_Q_USAGE_ERROR)],
)
def test_a_wrong_transmission_queue(tmp_path, queue, reason):
    async def start(queue_manager):
        backend = EmbeddedBackend(queue_manager, queue, asyncio.get_running_loop())
        with pytest.raises(MQError) as error:
            await backend.open()
        assert error.value.reason == reason

    queue_manager = QueueManager("MQB1", tmp_path)
    prepare(queue_manager)
    asyncio.run(start(queue_manager))
    queue_manager.journal.dispatch = lambda call: call()
    queue_manager.close()

