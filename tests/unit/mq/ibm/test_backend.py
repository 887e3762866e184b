"""The backend of threads, on a queue manager whose connections break before or after any verb.

In all cases, after the reconnection, each publication reported as done exists once and in its client's order, messages that a
client acknowledged are removed from the transmission queue, and the records are the last ones written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm import persistent_state, remover, topics
from bridge.mq.memory import MemoryWatermark
from bridge.mq.mqi import MQOD, MQError
from bridge.telemetry.message import Message
from bridge.telemetry.record import IdentifiersRecord, ReceivedRecord, SentRecord, StateRecord
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import (
    NONE,
    TRANSMIT,
    BreakableConnection,
    Fault,
    backend_of,
    drain,
    ended,
    keep,
    opened,
    payloads,
    publication,
    records_of,
    stop,
)
from tests.helpers.patience import PATIENCE, happens
from tests.helpers.units import Unit
from tests.ibm_standin.mqi.connection import StandInConnection


async def publish_all(manager: QueueManager, fault: Fault) -> list[StateRecord]:
    """Three clients publish in units of work that are submitted without waiting. Return the records after a restart."""
    backend = await opened(manager, fault)
    backend.start(lambda _batch: None)
    units = []
    for round_ in range(4):
        for client_id in ("a", "b", "c"):

            def fill(unit: Unit, client_id: str = client_id, round_: int = round_) -> None:
                unit.publications = [(publication(client_id, round_ * 2 + step), False) for step in (0, 1)]
                keep(unit, ReceivedRecord(client_id, [round_]))

            units.append(ended(backend, fill))
    for unit in await asyncio.gather(*units):
        assert unit.failure == cmqc.MQRC_NONE
        assert unit.refusals == {}
    await stop(backend)
    return await records_of(manager)


async def calls_without_fault(manager: QueueManager, purpose: str, run: Callable[[QueueManager, Fault], Any]) -> int:
    fault = Fault(purpose, 0, after=False)
    await run(manager, fault)
    return fault.calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_publications_exist_once_wherever_the_connection_breaks(queue_manager: QueueManager, after: bool) -> None:
    total = await calls_without_fault(queue_manager, "publisher", publish_all)
    drain(queue_manager, "OUT")
    assert total > 20
    expected = {client_id: list(range(8)) for client_id in "abc"}
    struck = set()
    for number in range(1, total + 1):
        fault = Fault("publisher", number, after=after)
        records = await publish_all(queue_manager, fault)
        assert payloads(queue_manager) == expected, f"verb {number} ({fault.struck})"
        received = {
            record.clientIdentifier: record.received for record in records if isinstance(record, ReceivedRecord)
        }
        assert received == {client_id: [3] for client_id in "abc"}, f"verb {number} ({fault.struck})"
        struck.add(fault.struck)
    assert {"open", "put", "commit"} <= struck


async def test_above_the_memory_watermark_publications_are_rejected_and_records_are_written(
    queue_manager: QueueManager,
) -> None:
    memory = MemoryWatermark(None)
    backend = await opened(queue_manager, NONE, memory=memory)
    backend.start(lambda _batch: None)

    def publish(unit: Unit, number: int) -> None:
        unit.publications = [(publication("a", number), False)]
        keep(unit, ReceivedRecord("a", [number + 1, 99]))

    assert (await ended(backend, partial(publish, number=0))).refusals == {}
    memory.above = True
    rejected = await ended(backend, partial(publish, number=1))
    assert (rejected.failure, dict(rejected.refusals)) == (0, {0: cmqc.MQRC_STORAGE_NOT_AVAILABLE})
    assert memory.rejected == 1
    memory.above = False
    await stop(backend)
    (record,) = await records_of(queue_manager)
    assert isinstance(record, ReceivedRecord) and record.received == [99], (
        "the rejected message id must not be on record"
    )
    assert payloads(queue_manager) == {"a": [0]}


@pytest.fixture(params=[1, 3], ids=["one remover", "three removers"])
def removers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of removers that are active, whatever a round trip takes."""
    monkeypatch.setattr(remover, "ROUND_TRIP_PER_REMOVER", 1e-9)
    number: int = request.param
    return number


async def acknowledge_all(manager: QueueManager, fault: Fault, removers: int) -> None:
    """Messages for a client are browsed, delivered and removed with a record. After a restart, none of them is found."""
    sender = StandInConnection(manager)
    for number in range(6):
        md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
        sender.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(md, str(number).encode()))
    sender.disconnect()
    backend = await opened(manager, fault, removers=removers)
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    backend.start(lambda batch: [arrived.put_nowait(message) for message in batch] and None)
    payloads = []
    units = []
    for number in range(6):
        transmission = await asyncio.wait_for(arrived.get(), PATIENCE)
        payloads.append(transmission.message.data)

        def fill(unit: Unit, transmission: Any = transmission, number: int = number) -> None:
            unit.removals = [transmission]
            keep(unit, SentRecord("dev", sent=[number]))

        units.append(ended(backend, fill))
    assert payloads == [str(number).encode() for number in range(6)]
    for unit in await asyncio.gather(*units):
        assert unit.failure == cmqc.MQRC_NONE
    await stop(backend)
    assert arrived.empty(), "a message was handed over twice"
    assert [record.sent for record in await records_of(manager) if isinstance(record, SentRecord)] == [[5]]
    assert drain(manager, TRANSMIT) == []


async def test_records_of_packet_identifiers_do_not_wait_for_removals(queue_manager: QueueManager) -> None:
    """Messages wait for these records (`bridge.telemetry.packet_identifiers`)."""
    connections: list[tuple[str, BreakableConnection]] = []
    backend = await opened(queue_manager, NONE, connections=connections)
    gate = threading.Event()
    for purpose, connection in connections:
        if purpose == "poller":
            connection.gates["commit"] = gate
    removal = asyncio.ensure_future(ended(backend, partial(keep, record=SentRecord("dev"))))
    await asyncio.sleep(0)
    recorded = await ended(backend, partial(keep, record=IdentifiersRecord("dev", "1", [(b"1" * 24, 7)])))
    assert recorded.failure == cmqc.MQRC_NONE
    assert not removal.done()
    gate.set()
    assert (await removal).failure == cmqc.MQRC_NONE
    await stop(backend)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_messages_are_handed_over_and_removed_once(
    queue_manager: QueueManager, removers: int, after: bool
) -> None:
    run = partial(acknowledge_all, removers=removers)
    total = await calls_without_fault(queue_manager, "poller", run)
    assert total > 20
    for number in range(1, total + 1):
        await run(queue_manager, Fault("poller", number, after=after))


@pytest.mark.parametrize("removed", [False, True], ids=["crash before the removal", "removal failed"])
async def test_a_message_that_the_record_of_its_session_names_is_not_delivered_again(
    queue_manager: QueueManager, removers: int, removed: bool
) -> None:
    """Several removers remove after the record is committed. A crash between both must not repeat a message."""
    application = StandInConnection(queue_manager)
    for number in range(4):
        md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
        application.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(md, str(number).encode()))
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    backend = await opened(queue_manager, NONE, removers=removers)
    backend.start(lambda batch: [arrived.put_nowait(message) for message in batch] and None)
    transmissions = [await asyncio.wait_for(arrived.get(), PATIENCE) for _ in range(4)]

    def acknowledge(unit: Unit) -> None:
        unit.removals = transmissions[:2]
        keep(unit, SentRecord("dev", released=[1, 2]))

    # The removal fails, and the process ends before the record is written again.
    assert application.command(f"ALTER QLOCAL({TRANSMIT}) GET(DISABLED)")[0].ok
    assert (await ended(backend, acknowledge)).failure == cmqc.MQRC_GET_INHIBITED
    if removed:
        # The session takes its messages back, so the next record does not contain them.
        assert (await ended(backend, partial(keep, record=SentRecord("dev")))).failure == cmqc.MQRC_NONE
    await stop(backend)
    assert application.command(f"ALTER QLOCAL({TRANSMIT}) GET(ENABLED)")[0].ok

    backend = await opened(queue_manager, NONE, removers=removers)
    arrived = asyncio.Queue()
    backend.start(lambda batch: [arrived.put_nowait(message) for message in batch] and None)
    await asyncio.wait_for(backend.caught_up(), PATIENCE)
    await asyncio.sleep(0)
    expected = [b"0", b"1", b"2", b"3"] if removed or removers == 1 else [b"2", b"3"]
    assert [arrived.get_nowait().message.data for _ in range(arrived.qsize())] == expected
    await stop(backend)
    assert [message.data[-1:] for message in drain(queue_manager, TRANSMIT)] == expected
    application.disconnect()


@pytest.mark.parametrize("recorded", [True, False], ids=["durable session", "clean session"])
async def test_units_of_work_of_one_session_complete_in_order(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """PUBREL follows the end of its unit of work, and is sent in the order of PUBREC (MQTT 3.1.1, section 4.6)."""
    monkeypatch.setattr(remover, "ROUND_TRIP_PER_REMOVER", 1e-9)
    application = StandInConnection(queue_manager)
    for number in range(3):
        md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
        application.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(md, str(number).encode()))
    application.disconnect()
    arrived: asyncio.Queue[Any] = asyncio.Queue()
    backend = await opened(queue_manager, NONE, removers=3)
    backend.start(lambda batch: [arrived.put_nowait(message) for message in batch] and None)
    transmissions = [await asyncio.wait_for(arrived.get(), PATIENCE) for _ in range(3)]
    remove, slow = backend._dispatch.remove, asyncio.get_running_loop().create_future()

    def remove_first_last(msg_ids: Sequence[bytes], on_done: Callable[[int], None]) -> int:
        if slow.done():
            return remove(msg_ids, on_done)
        slow.set_result((msg_ids, on_done))
        return 1

    monkeypatch.setattr(backend._dispatch, "remove", remove_first_last)
    order: list[int] = []

    async def acknowledge(number: int) -> None:
        def fill(unit: Unit) -> None:
            unit.released_by, unit.removals = "dev", [transmissions[number]]
            if recorded:
                keep(unit, SentRecord("dev", released=list(range(1, number + 2))))

        await ended(backend, fill)
        order.append(number)

    tasks = [asyncio.create_task(acknowledge(number)) for number in range(3)]
    first = await asyncio.wait_for(slow, PATIENCE)
    await happens(lambda: queue_manager.objects.queues[TRANSMIT].depth == 1)
    # Both removals are reported to the event loop before this call.
    await backend.caught_up()
    assert order == []
    remove(*first)
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert order == [0, 1, 2]
    await stop(backend)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["answered", "unanswered"])
async def test_a_rejected_publication_does_not_affect_others(queue_manager: QueueManager, asynchronous: bool) -> None:
    connection = StandInConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('t/shut') PUB(DISABLED)")[0].ok
    connection.disconnect()
    backend = await opened(queue_manager, NONE, asynchronous=asynchronous)

    def fill(unit: Unit) -> None:
        shut = publication("shut", 0)
        unit.publications = [(publication("a", 0), False), (shut, False), (publication("a", 1), False)]

    unit = await ended(backend, fill)
    await stop(backend)
    assert unit.failure == cmqc.MQRC_NONE
    assert unit.refusals == {1: cmqc.MQRC_PUT_INHIBITED}
    assert payloads(queue_manager) == {"a": [0, 1]}


@pytest.mark.parametrize("hot", [False, True], ids=["MQPUT1", "handle"])
async def test_a_repeatedly_rejected_topic_costs_one_repeated_unit_of_work(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, hot: bool
) -> None:
    """MQSTAT does not report which publication was rejected. After that, publications to the topic are put synchronously."""
    monkeypatch.setattr(topics, "MIN_USES", 1 if hot else 1_000)
    connection = StandInConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('t/shut') PUB(DISABLED)")[0].ok
    connection.disconnect()
    connections: list[tuple[str, BreakableConnection]] = []
    backend = await opened(queue_manager, NONE, asynchronous=True, connections=connections)
    (publisher,) = (connection for purpose, connection in connections if purpose == "publisher")
    repeated = Counted(publisher, "backout")
    for number in range(5):

        def fill(unit: Unit, number: int = number) -> None:
            shut = publication("shut", number)
            unit.publications = [(publication("a", 2 * number), False), (shut, False)]
            unit.publications.append((publication("a", 2 * number + 1), False))

        unit = await ended(backend, fill)
        assert (unit.failure, unit.refusals) == (cmqc.MQRC_NONE, {1: cmqc.MQRC_PUT_INHIBITED})
    assert repeated.calls == 1
    await stop(backend)
    assert payloads(queue_manager) == {"a": list(range(10))}


class Counted:
    """Counts the calls of a verb."""

    def __init__(self, connection: BreakableConnection, verb: str) -> None:
        self.calls = 0
        call = getattr(connection, verb)

        def counted() -> None:
            self.calls += 1
            call()

        setattr(connection, verb, counted)


async def test_permanent_errors_prevent_the_start(queue_manager: QueueManager) -> None:
    connection = StandInConnection(queue_manager)
    connection.command("ALTER QMGR DEFXMITQ(' ')")
    assert connection.command(f"DELETE QLOCAL('{TRANSMIT}')")[0].ok
    connection.disconnect()
    backend = backend_of(queue_manager, NONE)
    with pytest.raises(MQError) as error:
        await asyncio.wait_for(backend.open(), PATIENCE)
    assert error.value.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME
    assert TRANSMIT in str(error.value)
    await stop(backend)


# Changes of the state queue by other programs -------------------------------------------------------------------------


class LostCommit(Fault):
    """Break the connection of a purpose at its n-th commit, which does not happen."""

    def strikes(self, purpose: str, verb: str) -> bool:
        return verb == "commit" and super().strikes(purpose, verb)


@pytest.mark.parametrize("purpose", ["publisher", "poller"])
async def test_a_receipt_that_another_program_removed(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    """Nothing depends on it. A unit of work in doubt without a receipt was backed out, and is put again."""
    monkeypatch.setattr(persistent_state, "DOUBT_TIMEOUT", 0.05)
    fault = LostCommit(purpose, 4, after=False)
    backend = await opened(queue_manager, fault)
    failures = []
    for number in range(4):

        def fill(unit: Unit, number: int = number) -> None:
            unit.publications = [(publication("a", number), False)]
            keep(unit, SentRecord("a", sent=[number]))

        failures.append((await ended(backend, fill)).failure)
        drain(queue_manager, persistent_state.STATE_QUEUE)  # type: ignore[attr-defined]
    assert fault.struck == "commit"
    await stop(backend)
    assert failures == [0, 0, 0, 0]
    assert payloads(queue_manager) == {"a": [0, 1, 2, 3]}


async def test_a_publication_that_is_first_rejected_and_then_accepted_is_reported_as_accepted(
    queue_manager: QueueManager,
) -> None:
    """The connection breaks between the rejection and the commit. At the second attempt, the topic is enabled."""
    connection = StandInConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('t/a') PUB(DISABLED)")[0].ok

    class Opens(Fault):
        def strikes(self, purpose: str, verb: str) -> bool:
            struck = verb == "commit" and super().strikes(purpose, verb)
            if struck:
                assert connection.command("ALTER TOPIC(SHUT) PUB(ENABLED)")[0].ok
            return struck

    backend = await opened(queue_manager, Opens("publisher", 1, after=False))

    def fill(unit: Unit) -> None:
        unit.publications = [(publication("a", 1), False)]
        keep(unit, ReceivedRecord("a", [2]))

    unit = await ended(backend, fill)
    await stop(backend)
    (record,) = await records_of(queue_manager)
    assert unit.refusals == {}
    assert isinstance(record, ReceivedRecord) and record.received == [2]
    assert payloads(queue_manager) == {"a": [1]}
