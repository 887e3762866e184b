"""The backend of the embedded queue manager: whole units of work for the telemetry service, on the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.config.queues import STATE_QUEUE
from bridge.mapping.message import Message
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.session_record import ReceivedRecord, SentRecord, Side, StateKey, decode
from bridge.mq.backend import ClientSubscription
from bridge.mq.embedded import backend as backend_module
from bridge.mq.embedded.backend import PUBLICATION_QUEUE, EmbeddedBackend
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.mq.mqi import MQOD, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD, decode_mqdlh, decode_mqxqh
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


def test_a_publication_reaches_the_client_that_subscribed(run):
    async def work(service):
        assert await service.subscribe("c1", ("a/+", 2)) == [cmqc.MQRC_NONE]
        await service.execute(unit(publication("a/b", b"data"), publication("b", b"nobody's")))
        (found,) = service.transmissions
        assert (found.client_id, found.remote_queue, found.topic) == ("c1", PUBLICATION_QUEUE, "a/b")
        assert (found.user_data, found.retained, found.persistent, found.expired) == ("2", False, True, False)
        assert found.message.payload == b"data"
        assert found.msg_number & 0xFFFF

    run(work)


def test_units_end_in_the_order_given_with_and_without_the_disk(run):
    async def work(service):
        await service.subscribe("c1", ("#", 2), durable=True)
        units = [unit(publication(f"t/{number}", qos=number % 3)) for number in range(30)]
        await service.execute(*units)
        assert [one.topic for one in service.transmissions] == [f"t/{number}" for number in range(30)]

    run(work)


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


def test_removed_transmissions_are_gone_and_others_wait_for_the_next_start(run):
    async def first(service):
        await service.subscribe("c1", ("#", 1), durable=True)
        await service.execute(unit(*(publication("t", bytes([n])) for n in range(5))))
        await service.execute(unit(removals=service.transmissions[1:4]))
        await service.execute(unit(removals=service.transmissions[1:4]))  # once more is no error
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 2

    async def second(service):
        assert [one.message.payload for one in service.transmissions] == [b"\0", b"\4"]

    run(first)
    run(second)


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


def test_the_latest_state_wins_and_none_removes(run):
    async def first(service):
        await service.execute(
            unit(records=[ReceivedRecord("a", [1]), ReceivedRecord("b", [1])]),
            unit(records=[ReceivedRecord("a", [2]), SentRecord("a", sent=[7])]),
            unit(records=[ReceivedRecord("a", [3])], ended=[received("b"), received("c")]),
        )

    async def second(service):
        assert sorted(service.recovered.records, key=repr) == [ReceivedRecord("a", [3]), SentRecord("a", sent=[7])]
        await service.execute(unit(records=[ReceivedRecord("a", [4])]), unit(ended=[received("a")]))

    async def third(service):
        assert service.recovered.records == [SentRecord("a", sent=[7])]
        assert service.queue_manager.queues["SYSTEM.MQTT.PERSISTENT.STATE"].depth == 1

    for work in (first, second, third):
        run(work)


def test_a_state_stays_when_its_successors_cannot_be_written(run):
    async def first(service):
        await service.execute(unit(records=[ReceivedRecord("a", [9])]))
        with service.failing_disk():
            await service.execute(*(unit(records=[ReceivedRecord("a", [n])]) for n in range(4)))
        assert decode(service.queue_manager.states["received:a"].message.data) == ReceivedRecord("a", [9])

    async def second(service):
        assert service.recovered.records == [ReceivedRecord("a", [9])]

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


def test_an_empty_retained_publication_clears_and_is_delivered(run):
    """MQTT-3.3.1-10."""

    async def work(service):
        await service.execute(unit(publication("t", b"state"), retain=True))
        await service.subscribe("c1", ("t", 1))
        await service.execute(unit(publication("t", b""), retain=True))
        assert [(one.message.payload, one.retained) for one in service.transmissions] == [
            (b"state", True),
            (b"", False),
        ]
        await service.subscribe("c2", ("t", 1))
        assert len(service.transmissions) == 2

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


def test_refusals_name_the_publication_and_the_reason(run):
    async def work(service):
        await service.subscribe("c1", ("#", 1))
        mixed = unit(
            publication("open/1", qos=2, message_id=1),
            publication("closed/1", qos=2, message_id=2),
            publication("x" * 10_241, qos=2, message_id=3),
            publication("open/2", qos=2, message_id=4),
            records=[ReceivedRecord("dev", [1, 2, 3, 4, 5])],
        )
        await service.execute(mixed)
        assert mixed.refusals == {1: cmqc.MQRC_PUT_INHIBITED, 2: cmqc.MQRC_TOPIC_STRING_ERROR}
        assert mixed.failure == cmqc.MQRC_NONE
        assert [one.topic for one in service.transmissions] == ["open/1", "open/2"]
        # The record does not say that what was refused was received.
        assert decode(service.queue_manager.states["received:dev"].message.data) == ReceivedRecord("dev", [1, 4, 5])

    run(work, script="DEFINE TOPIC(CLOSED) TOPICSTR('closed') PUB(DISABLED)")


def test_a_refused_publication_goes_to_the_dead_letter_queue_where_that_is_asked_for(run):
    async def work(service):
        mixed = unit(publication("closed/1"), publication("x" * 10_241), publication("open"))
        mixed.dead_letters = frozenset({cmqc.MQRC_PUT_INHIBITED})
        await service.execute(mixed)
        assert mixed.diverted == {0: cmqc.MQRC_PUT_INHIBITED}
        assert mixed.refusals == {1: cmqc.MQRC_TOPIC_STRING_ERROR}
        (stored,) = service.queue_manager.queues[DEAD_LETTER_QUEUE].messages()
        header = decode_mqdlh(stored.message.data)
        assert (header.Reason, header.DestQName) == (cmqc.MQRC_PUT_INHIBITED, b"closed/1")

    run(work, script="DEFINE TOPIC(CLOSED) TOPICSTR('closed') PUB(DISABLED)")


def test_subscriptions_are_refused_one_by_one(run):
    async def work(service):
        reasons = await service.subscribe("c1", ("a", 1), ("closed/x", 1), ("brief", 1), durable=True)
        assert reasons == [cmqc.MQRC_NONE, cmqc.MQRC_SUB_INHIBITED, cmqc.MQRC_DURABILITY_NOT_ALLOWED]
        assert set(service.queue_manager.topics.subscriptions) == {"c1:a"}
        assert await service.subscribe("c1", ("brief", 1)) == [cmqc.MQRC_NONE]

    script = "DEFINE TOPIC(CLOSED) TOPICSTR('closed') SUB(DISABLED)\nDEFINE TOPIC(BRIEF) TOPICSTR('brief') DURSUB(NO)"
    run(work, script=script)


def test_subscriptions_after_a_restart(run):
    async def first(service):
        await service.subscribe("c1", ("a/#", 0), ("b:c", 2), durable=True)
        await service.subscribe("c2", ("a/#", 1))
        await service.subscribe("c1", ("a/#", 1), durable=True)
        await service.subscribe("c3", ("gone", 1), durable=True)
        await service.unsubscribe("c3", "gone", "never/there")
        await service.execute(unit(publication("a/x", b"waits")))

    async def second(service):
        found = sorted(service.recovered.subscriptions, key=lambda one: one.topic_filter)
        assert found == [ClientSubscription("c1", "a/#", "1", True), ClientSubscription("c1", "b:c", "2", True)]
        assert [(one.client_id, one.user_data) for one in service.transmissions] == [("c1", "1")]

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


def test_a_direct_message_of_an_application_comes_as_a_transmission(run):
    async def work(service):
        connection = EmbeddedConnection(service.queue_manager)
        od = MQOD(ObjectName="alarms/7", ObjectQMgrName="c7")
        await asyncio.to_thread(connection.put1, od, Message(MQMD(Persistence=1), b"direct"))
        await service.flush()
        (found,) = service.transmissions
        assert (found.client_id, found.remote_queue, found.topic, found.user_data) == ("c7", "alarms/7", None, None)
        assert found.message.data == b"direct"

    run(work)


def test_dead_letters(run):
    async def work(service):
        connection = EmbeddedConnection(service.queue_manager)
        od = MQOD(ObjectName="alarms/7", ObjectQMgrName="nobody")
        put = await asyncio.to_thread(connection.put1, od, Message(MQMD(Persistence=1, Format=b"MQSTR"), b"direct"))
        await service.flush()
        (found,) = service.transmissions
        service.backend.dead_letter(found, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
        service.backend.dead_letter(found, cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)  # once more is no error
        await service.flush()
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 0
        assert service.queue_manager.queues[DEAD_LETTER_QUEUE].depth == 1
        handle = connection.open(MQOD(ObjectName=DEAD_LETTER_QUEUE), cmqc.MQOO_INPUT_SHARED)
        got = await asyncio.to_thread(connection.get, handle, GetOptions())
        header = decode_mqdlh(got.data)
        assert header.Reason == cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR
        assert (header.DestQName, header.DestQMgrName, header.Format) == (b"alarms/7", b"nobody", b"MQSTR")
        assert got.data[172:] == b"direct"
        assert (got.md.Format, got.md.MsgId) == (cmqc.MQFMT_DEAD_LETTER_HEADER, put.MsgId)

    run(work)


def test_a_dead_letter_without_a_dead_letter_queue_stays_where_it_is(run):
    async def work(service):
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t")))
        service.backend.dead_letter(service.transmissions[0], cmqc.MQRC_UNKNOWN_REMOTE_Q_MGR)
        await service.flush()
        assert service.queue_manager.queues[TRANSMISSION_QUEUE].depth == 1

    run(work, script=f"ALTER QLOCAL({DEAD_LETTER_QUEUE}) PUT(DISABLED)")


def test_the_transmission_queue_is_taken_for_exclusive_input(run):
    async def work(service):
        connection = EmbeddedConnection(service.queue_manager)
        with pytest.raises(MQError) as error:
            connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_INPUT_SHARED)
        assert error.value.reason == cmqc.MQRC_OBJECT_IN_USE
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t", b"data")))
        handle = connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_BROWSE)
        got = connection.get(handle, GetOptions(Options=cmqc.MQGMO_BROWSE_FIRST))
        assert decode_mqxqh(got.data).RemoteQMgrName == b"c1"
        assert int.from_bytes(got.md.MsgId[-8:], "big") == service.transmissions[0].msg_number

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


def test_after_stop_another_may_have_the_queue(run):
    async def work(service):
        await service.stop()
        await service.subscribe("c1", ("t", 1), durable=True)
        await service.execute(unit(publication("t")))
        assert service.transmissions == []
        connection = EmbeddedConnection(service.queue_manager)
        connection.close(connection.open(MQOD(ObjectName=TRANSMISSION_QUEUE), cmqc.MQOO_INPUT_EXCLUSIVE))
        await service.start()
        assert [one.topic for one in service.transmissions] == ["t"]

    run(work)


# Records of sessions --------------------------------------------------------------------------------------------------


def put_state(service: Service, data: bytes) -> None:
    connection = EmbeddedConnection(service.queue_manager)
    connection.put1(MQOD(ObjectName=STATE_QUEUE), Message(MQMD(), data), cmqc.MQPMO_NONE)
    connection.disconnect()


def test_a_message_that_is_no_record_ends_the_start_in_words(run):
    async def first(service):
        await asyncio.to_thread(put_state, service, b"MQXR")

    async def second(service):
        raise AssertionError("it starts")

    run(first)
    with pytest.raises(MQError, match="MQXR uses a queue of that name") as end:
        run(second)
    assert end.value.reason == cmqc.MQRC_FORMAT_ERROR


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (b'{"side":"received","clientIdentifier":"a","version":3}', "a newer bridge has written it"),
        (b"rubbish", "it holds no record of a session"),
    ],
)
def test_a_record_that_cannot_be_read_ends_the_start_in_words(run, monkeypatch, written, why):
    async def first(service):
        monkeypatch.setattr(backend_module, "encode", lambda record: written)
        await service.execute(unit(records=[ReceivedRecord("a", [1])]))

    async def second(service):
        raise AssertionError("it starts")

    run(first)
    with pytest.raises(MQError, match=why):
        run(second)


def test_records_of_version_1_are_read(run, monkeypatch):
    async def first(service):
        monkeypatch.setattr(
            backend_module,
            "encode",
            lambda record: b'{"clientIdentifier":"a","received":[5]}'
            if isinstance(record, ReceivedRecord)
            else b'{"clientIdentifier":"a","sent":[6],"connected":true}',
        )
        await service.execute(unit(records=[ReceivedRecord("a", [1]), SentRecord("a")]))

    async def second(service):
        assert sorted(service.recovered.records, key=repr) == [
            ReceivedRecord("a", [5]),
            SentRecord("a", sent=[6], connected=True),
        ]

    run(first)
    run(second)
