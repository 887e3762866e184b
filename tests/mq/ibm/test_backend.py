"""The backend of threads, on a queue manager whose connections break before or after any verb.

Whatever breaks when: after the reconnect every publication that was reported done is there, each once and in its client's
order; what a client acknowledged is gone from the transmission queue; records are the last ones written.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.mapping.message import Message
from bridge.mapping.telemetry.identity import ClientIdentity
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.session_record import ReceivedRecord, SentRecord, SessionRecord
from bridge.mq import worker
from bridge.mq.embedded.mqsc.script import prepare
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.embedded.server.connection import EmbeddedConnection
from bridge.mq.errors import MQError
from bridge.mq.ibm import browser, persistent_state
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.ibm.publisher import BatchLimits
from bridge.mq.ibm.subscriber import Subscriber
from bridge.mq.mqi import MQOD, GetOptions
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.support.patience import PATIENCE
from tests.support.units import Unit, Units

TRANSMIT = "SYSTEM.MQTT.TRANSMIT.QUEUE"
VERBS = ("open", "close", "put", "put1", "get", "subscribe", "commit", "backout")


class Fault:
    """Breaks one connection of one purpose, at the n-th verb called for that purpose."""

    def __init__(self, purpose: str, number: int, *, after: bool) -> None:
        self.purpose, self.number, self.after = purpose, number, after
        self.calls = 0
        self.struck = ""
        self._lock = threading.Lock()

    def strikes(self, purpose: str, verb: str) -> bool:
        with self._lock:
            if purpose != self.purpose:
                return False
            self.calls += 1
            if self.calls == self.number:
                self.struck = verb
                return True
            return False


class BreakableConnection:
    """A connection that fails with MQRC_CONNECTION_BROKEN when its fault strikes, and is dead from then on."""

    def __init__(self, queue_manager: QueueManager, purpose: str, fault: Fault) -> None:
        self._queue_manager = queue_manager
        #: what each verb waits for before it is called, by name
        self.gates: dict[str, threading.Event] = {}
        # Where authorities are enforced, it needs what any application needs (see `enforced`).
        user = "bridge" if queue_manager.authorization is not None else ""
        self._inner = EmbeddedConnection(queue_manager, "mqbridge", user)
        self._purpose, self._fault = purpose, fault
        self._dead = False

    def cut(self) -> None:
        """Break it, for a reason that only this side knows: the queue manager still has the connection."""
        self._dead = True

    def die(self) -> None:
        """Break it on both sides."""
        self._dead = True
        with self._queue_manager.lock:
            for unit in self._inner._application.disconnect(commit=False):
                self._queue_manager.journal.submit(unit)

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if name not in VERBS:
            return verb

        def call(*arguments: Any, **options: Any) -> Any:
            if self._dead:
                raise MQError(cmqc.MQRC_CONNECTION_BROKEN, name)
            if name in self.gates:
                assert self.gates[name].wait(PATIENCE)
            struck = self._fault.strikes(self._purpose, name)
            if struck and not self._fault.after:
                self.die()
                raise MQError(cmqc.MQRC_CONNECTION_BROKEN, name)
            try:
                return verb(*arguments, **options)
            finally:
                if struck:
                    self.die()
                    raise MQError(cmqc.MQRC_CONNECTION_BROKEN, name)

        return call

    def disconnect(self) -> None:
        if self._dead:
            raise MQError(cmqc.MQRC_CONNECTION_BROKEN, "disconnect")
        self._inner.disconnect()


@pytest.fixture
def queue_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueManager]:
    monkeypatch.setattr(worker, "FIRST_PAUSE", 0.005)
    monkeypatch.setattr(worker, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(browser, "BROWSE_WAIT", 20)
    monkeypatch.setattr(Subscriber, "_inquire", staticmethod(lambda _connection: []))
    manager = QueueManager("QM1", tmp_path)
    prepare(manager)
    connection = EmbeddedConnection(manager)
    script = "DEFINE QLOCAL(OUT) MAXDEPTH(100000)\nDEFINE SUB('all') TOPICSTR('t/#') DEST(OUT)"
    assert all(response.ok for response in connection.command(script))
    connection.disconnect()
    yield manager
    manager.close()


UNITS = Units()


def backend_of(
    manager: QueueManager,
    fault: Fault,
    *,
    publishers: int = 1,
    asynchronous: bool = False,
    made: list[tuple[str, BreakableConnection]] | None = None,
    probe_interval: float = 10.0,
) -> IbmBackend:
    """`made` gets each connection with its purpose."""

    def connect(purpose: str) -> BreakableConnection:
        connection = BreakableConnection(manager, purpose, fault)
        if made is not None:
            made.append((purpose, connection))
        return connection

    return IbmBackend(
        connect,  # type: ignore[arg-type,return-value]
        asyncio.get_running_loop(),
        probe_interval=probe_interval,
        transmission_queue=TRANSMIT,
        dead_letter_queue="SYSTEM.DEAD.LETTER.QUEUE",
        publishers=publishers,
        limits=BatchLimits(messages=4),
        asynchronous=asynchronous,
    )


def publication(client_id: str, number: int) -> PublicationMessage:
    identity = ClientIdentity(client_id, b"")
    return PublicationMessage(identity.descriptors[2], client_id, f"t/{client_id}", str(number).encode(), 2, number + 1)


async def ended(backend: IbmBackend, fill: Callable[[Unit], None]) -> Unit:
    done: asyncio.Future[Unit] = asyncio.get_running_loop().create_future()
    unit = Unit()
    unit.done = done.set_result
    fill(unit)
    UNITS.add(unit)
    backend.on_completed = UNITS.completed
    backend.submit(unit)
    return await asyncio.wait_for(done, PATIENCE)


def keep(unit: Unit, record: SessionRecord) -> None:
    unit.records[record.key] = record


async def stop(backend: IbmBackend) -> None:
    stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    backend.stop(lambda: stopped.set_result(None))
    await asyncio.wait_for(stopped, PATIENCE)


def drain(manager: QueueManager, queue: str) -> list[Message]:
    connection = EmbeddedConnection(manager)
    handle = connection.open(MQOD(ObjectName=queue), cmqc.MQOO_INPUT_SHARED)
    messages = []
    while True:
        try:
            got = connection.get(handle, GetOptions())
        except MQError as error:
            assert error.reason == cmqc.MQRC_NO_MSG_AVAILABLE
            connection.disconnect()
            return messages
        messages.append(Message(got.md, got.data))


def payloads(manager: QueueManager) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for message in drain(manager, "OUT"):
        client_id = message.data.split(b"<clientId>")[1].split(b"</clientId>")[0].decode()
        found.setdefault(client_id, []).append(int(message.data.rsplit(b" ", 1)[-1].rsplit(b">", 1)[-1]))
    return found


async def publish_all(manager: QueueManager, fault: Fault) -> list[SessionRecord]:
    """Three clients publish in units of work given without waiting; returns the records after a restart."""
    backend = backend_of(manager, fault)
    await asyncio.wait_for(backend.open(), PATIENCE)
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
    after = backend_of(manager, Fault("none", 0, after=False))
    recovered = await asyncio.wait_for(after.open(), PATIENCE)
    await stop(after)
    return recovered.records


def calls_without_fault(manager: QueueManager, purpose: str, run: Callable[[QueueManager, Fault], Any]) -> int:
    fault = Fault(purpose, 0, after=False)
    asyncio.run(run(manager, fault))
    return fault.calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_publications_are_there_once_wherever_the_connection_breaks(queue_manager: QueueManager, after: bool) -> None:
    total = calls_without_fault(queue_manager, "publisher", publish_all)
    drain(queue_manager, "OUT")
    assert total > 20
    expected = {client_id: list(range(8)) for client_id in "abc"}
    struck = set()
    for number in range(1, total + 1):
        fault = Fault("publisher", number, after=after)
        records = asyncio.run(publish_all(queue_manager, fault))
        assert payloads(queue_manager) == expected, f"verb {number} ({fault.struck})"
        received = {one.clientIdentifier: one.received for one in records if isinstance(one, ReceivedRecord)}
        assert received == {client_id: [3] for client_id in "abc"}, f"verb {number} ({fault.struck})"
        struck.add(fault.struck)
    assert {"open", "put", "commit"} <= struck


async def acknowledge_all(manager: QueueManager, fault: Fault) -> None:
    """Messages for a client are browsed, delivered and removed with a record; a second life finds none of them."""
    sender = EmbeddedConnection(manager)
    for number in range(6):
        md = MQMD(Persistence=cmqc.MQPER_PERSISTENT)
        sender.put1(MQOD(ObjectName="x", ObjectQMgrName="dev"), Message(md, str(number).encode()))
    sender.disconnect()
    backend = backend_of(manager, fault)
    await asyncio.wait_for(backend.open(), PATIENCE)
    arrived: asyncio.Queue[Any] = asyncio.Queue()

    def consumer(batch: Any) -> None:
        for one in batch:
            arrived.put_nowait(one)

    backend.start(consumer)
    seen = []
    units = []
    for number in range(6):
        transmission = await asyncio.wait_for(arrived.get(), PATIENCE)
        seen.append(transmission.message.data)

        def fill(unit: Unit, transmission: Any = transmission, number: int = number) -> None:
            unit.removals = [transmission]
            keep(unit, SentRecord("dev", sent=[number]))

        units.append(ended(backend, fill))
    assert seen == [str(number).encode() for number in range(6)]
    for unit in await asyncio.gather(*units):
        assert unit.failure == cmqc.MQRC_NONE
    await stop(backend)
    assert arrived.empty(), "a message was handed over twice"
    after = backend_of(manager, Fault("none", 0, after=False))
    recovered = await asyncio.wait_for(after.open(), PATIENCE)
    assert [one.sent for one in recovered.records if isinstance(one, SentRecord)] == [[5]]
    await stop(after)
    assert drain(manager, TRANSMIT) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_messages_are_handed_over_and_removed_once(queue_manager: QueueManager, after: bool) -> None:
    total = calls_without_fault(queue_manager, "poller", acknowledge_all)
    assert total > 20
    for number in range(1, total + 1):
        asyncio.run(acknowledge_all(queue_manager, Fault("poller", number, after=after)))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["answered", "unanswered"])
def test_a_refused_publication_costs_only_itself(queue_manager: QueueManager, asynchronous: bool) -> None:
    connection = EmbeddedConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('t/shut') PUB(DISABLED)")[0].ok
    connection.disconnect()

    async def run() -> Unit:
        backend = backend_of(queue_manager, Fault("none", 0, after=False), asynchronous=asynchronous)
        await backend.open()

        def fill(unit: Unit) -> None:
            shut = publication("shut", 0)
            unit.publications = [(publication("a", 0), False), (shut, False), (publication("a", 1), False)]

        unit = await ended(backend, fill)
        await stop(backend)
        return unit

    unit = asyncio.run(run())
    assert unit.failure == cmqc.MQRC_NONE
    assert unit.refusals == {1: cmqc.MQRC_PUT_INHIBITED}
    assert payloads(queue_manager) == {"a": [0, 1]}


def test_a_second_bridge_stands_by_until_the_first_has_gone(queue_manager: QueueManager) -> None:
    async def run() -> None:
        none = Fault("none", 0, after=False)
        first, second = backend_of(queue_manager, none), backend_of(queue_manager, none)
        await asyncio.wait_for(first.open(), PATIENCE)
        waiting = asyncio.ensure_future(second.open())
        done, _ = await asyncio.wait((waiting,), timeout=0.3)
        assert not done
        await stop(first)
        await asyncio.wait_for(waiting, PATIENCE)
        await stop(second)

    asyncio.run(run())


def test_what_cannot_heal_ends_the_start(queue_manager: QueueManager) -> None:
    connection = EmbeddedConnection(queue_manager)
    connection.command("ALTER QMGR DEFXMITQ(' ')")
    assert connection.command(f"DELETE QLOCAL('{TRANSMIT}')")[0].ok
    connection.disconnect()

    async def run() -> None:
        backend = backend_of(queue_manager, Fault("none", 0, after=False))
        with pytest.raises(MQError) as caught:
            await asyncio.wait_for(backend.open(), PATIENCE)
        assert caught.value.reason == cmqc.MQRC_UNKNOWN_OBJECT_NAME
        assert TRANSMIT in str(caught.value)
        await stop(backend)

    asyncio.run(run())


def test_a_record_does_not_say_that_a_refused_publication_was_received(queue_manager: QueueManager) -> None:
    connection = EmbeddedConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('t/shut') PUB(DISABLED)")[0].ok
    connection.disconnect()

    async def run() -> list[SessionRecord]:
        backend = backend_of(queue_manager, Fault("none", 0, after=False))
        await backend.open()

        def fill(unit: Unit) -> None:
            unit.publications = [(publication("a", 0), False), (publication("shut", 1), False)]
            keep(unit, ReceivedRecord("a", [1, 2, 7]))

        await ended(backend, fill)
        await stop(backend)
        after = backend_of(queue_manager, Fault("none", 0, after=False))
        recovered = await after.open()
        await stop(after)
        return recovered.records

    (record,) = asyncio.run(run())
    assert isinstance(record, ReceivedRecord) and record.received == [1, 7]


# What somebody else does to the state queue ---------------------------------------------------------------------------


class LostCommit(Fault):
    """Breaks the connection of a purpose at its n-th commit, which is not done."""

    def strikes(self, purpose: str, verb: str) -> bool:
        return verb == "commit" and super().strikes(purpose, verb)


@pytest.mark.parametrize("purpose", ["publisher", "poller"])
def test_a_receipt_that_somebody_took_away(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, purpose: str
) -> None:
    """It is missed by nobody; a unit of work in doubt that left no receipt was backed out, and is put again."""
    monkeypatch.setattr(persistent_state, "LONGEST_DOUBT", 0.05)

    async def run() -> list[int]:
        fault = LostCommit(purpose, 4, after=False)
        backend = backend_of(queue_manager, fault)
        await backend.open()
        failures = []
        for number in range(4):

            def fill(unit: Unit, number: int = number) -> None:
                unit.publications = [(publication("a", number), False)]
                keep(unit, SentRecord("a", sent=[number]))

            failures.append((await ended(backend, fill)).failure)
            drain(queue_manager, persistent_state.STATE_QUEUE)
        assert fault.struck == "commit"
        await stop(backend)
        return failures

    assert asyncio.run(run()) == [0, 0, 0, 0]
    assert payloads(queue_manager) == {"a": [0, 1, 2, 3]}


# Authority ------------------------------------------------------------------------------------------------------------

AUTHORITIES = f"""
SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bridge') AUTHADD(CONNECT,INQ,ALTUSR,SETID)
SET AUTHREC PROFILE('SYSTEM.MQTT.**') OBJTYPE(QUEUE) PRINCIPAL('bridge') AUTHADD(GET,BROWSE,PUT)
SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC) PRINCIPAL('bridge') AUTHADD(SUB,RESUME,SETID)
SET AUTHREC PROFILE('{TRANSMIT}') OBJTYPE(QUEUE) PRINCIPAL('alice','bob') AUTHADD(PUT)
SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC) PRINCIPAL('alice') AUTHADD(PUB,SUB,RESUME)
"""


@pytest.fixture
def enforced(queue_manager: QueueManager) -> QueueManager:
    assert all(response.ok for response in EmbeddedConnection(queue_manager).command(AUTHORITIES))
    queue_manager.enforce_authorities()
    return queue_manager


@pytest.mark.parametrize("asynchronous", [False, True])
def test_authority_is_asked_for_the_client(
    enforced: QueueManager, caplog: pytest.LogCaptureFixture, asynchronous: bool
) -> None:
    """As an alternate user: whether it is admitted, may subscribe, may publish. A blank user is the bridge itself."""
    refused = cmqc.MQRC_NOT_AUTHORIZED

    async def run() -> dict[str, tuple[int, int, int]]:
        backend = backend_of(enforced, Fault("none", 0, after=False), asynchronous=asynchronous)
        await backend.open()
        loop = asyncio.get_running_loop()
        found = {}
        for user in ("alice", "bob", "carol", ""):
            admitted: asyncio.Future[int] = loop.create_future()
            backend.admit("c", user, admitted.set_result)
            subscribed: asyncio.Future[list[int]] = loop.create_future()
            backend.subscribe("c", [("t/c", 1)], subscribed.set_result, durable=True, user=user)

            def fill(unit: Unit, user: str = user) -> None:
                identity = ClientIdentity("c", user.encode())
                unit.publications = [(PublicationMessage(identity.descriptors[1], "c", "t/c", b"x", 1, 1), False)]

            reasons = await asyncio.wait_for(admitted, PATIENCE), (await asyncio.wait_for(subscribed, PATIENCE))[0]
            found[user] = (*reasons, (await ended(backend, fill)).refusals.get(0, 0))
        await stop(backend)
        return found

    assert asyncio.run(run()) == {
        "alice": (0, 0, 0),
        "bob": (0, refused, refused),
        "carol": (refused, refused, refused),
        "": (0, 0, refused),
    }
    said = [record.getMessage() for record in caplog.records if record.name != "bridge.mq.embedded.authority.authorization"]
    assert any("'c' as user 'carol' is refused: MQRC_NOT_AUTHORIZED" in line for line in said)
    assert any("subscription c:t/c as user 'bob' is refused: MQRC_NOT_AUTHORIZED" in line for line in said)
    assert any("topic 't/c' as user 'bob' is refused: MQRC_NOT_AUTHORIZED" in line for line in said)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 4))
def test_a_client_waits_to_be_admitted_while_the_queue_manager_is_away(
    enforced: QueueManager, number: int, after: bool
) -> None:
    async def run() -> list[tuple[str, int]]:
        backend = backend_of(enforced, Fault("subscriptions", number, after=after))
        await backend.open()
        answers: list[tuple[str, int]] = []
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for user in ("alice", "carol", "bob"):
            backend.admit("c", user, lambda reason, user=user: answers.append((user, reason)))  # type: ignore[misc]
        backend.admit("c", "", last.set_result)
        await asyncio.wait_for(last, PATIENCE)
        await stop(backend)
        return answers

    assert asyncio.run(run()) == [("alice", 0), ("carol", cmqc.MQRC_NOT_AUTHORIZED), ("bob", 0)], "in the order asked"


def test_a_crowd_of_one_user_is_asked_for_once(enforced: QueueManager) -> None:
    async def run() -> int:
        opened = Fault("subscriptions", 0, after=False)
        backend = backend_of(enforced, opened)
        await backend.open()
        before = opened.calls
        answers: list[int] = []
        last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in range(100):
            backend.admit(f"c{number}", "alice", answers.append)
        backend.admit("last", "alice", last.set_result)
        await asyncio.wait_for(last, PATIENCE)
        await stop(backend)
        assert answers == [0] * 100
        return opened.calls - before

    assert asyncio.run(run()) < 100


# Idle, and two bridges ---------------------------------------------------------------------------------------------------

NONE = Fault("none", 0, after=False)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - threads bring it about
            await asyncio.sleep(0.005)


async def subscribed(backend: IbmBackend, client_id: str, topic_filter: str) -> None:
    answered: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    backend.subscribe(client_id, [(topic_filter, 1)], answered.set_result, durable=False, user="")
    assert await asyncio.wait_for(answered, PATIENCE) == [0]


async def published(backend: IbmBackend, client_id: str, number: int) -> Unit:
    def fill(unit: Unit) -> None:
        unit.publications = [(publication(client_id, number), False)]

    return await ended(backend, fill)


@pytest.mark.parametrize("purpose", ["publisher", "poller", "subscriptions"])
def test_a_connection_that_is_lost_while_idle_is_made_again_without_traffic(
    queue_manager: QueueManager, purpose: str
) -> None:
    """And a clean session's subscriber gets what is published then (findings, A)."""

    async def run() -> None:
        made: list[tuple[str, BreakableConnection]] = []
        backend = backend_of(queue_manager, NONE, made=made, probe_interval=0.02)
        await asyncio.wait_for(backend.open(), PATIENCE)
        came: list[Any] = []
        backend.start(came.extend)
        await subscribed(backend, "dev", "t/#")
        before = [connection for kind, connection in made if kind == purpose]
        for connection in before:
            connection.die()
        await eventually(lambda: sum(kind == purpose for kind, _ in made) == 2 * len(before))
        await eventually(lambda: "dev:t/#" in queue_manager.topics.subscriptions)
        await published(backend, "a", 1)
        await eventually(lambda: len(came) == 1)
        await stop(backend)

    asyncio.run(run())


def test_nothing_is_published_before_the_subscriptions_stand_again(queue_manager: QueueManager) -> None:
    """All connections are lost; the publisher is back first. What it puts then, clean sessions would never get."""

    async def run() -> None:
        made: list[tuple[str, BreakableConnection]] = []
        gate = threading.Event()
        backend = backend_of(queue_manager, NONE, made=made)
        await asyncio.wait_for(backend.open(), PATIENCE)
        came: list[Any] = []
        backend.start(came.extend)
        await subscribed(backend, "dev", "t/#")
        connect = backend._subscriber._connect

        def slow() -> Any:
            assert gate.wait(PATIENCE)
            return connect()

        backend._subscriber._connect = slow  # type: ignore[method-assign]
        for _, connection in made:
            connection.die()
        publishing = asyncio.ensure_future(published(backend, "a", 1))
        await eventually(lambda: sum(kind == "publisher" for kind, _ in made) == 2)
        assert "dev:t/#" not in queue_manager.topics.subscriptions
        assert not publishing.done()
        gate.set()
        assert (await publishing).failure == 0
        await eventually(lambda: len(came) == 1)
        await stop(backend)

    asyncio.run(run())


def test_a_subscription_that_the_queue_manager_still_holds_is_made_when_it_lets_go(queue_manager: QueueManager) -> None:
    """MQRC_SUB_ALREADY_EXISTS (2432) is what a half-open connection leaves behind."""

    async def run() -> None:
        made: list[tuple[str, BreakableConnection]] = []
        backend = backend_of(queue_manager, NONE, made=made, probe_interval=0.02)
        await asyncio.wait_for(backend.open(), PATIENCE)
        await subscribed(backend, "dev", "t/#")
        (ghost,) = (connection for kind, connection in made if kind == "subscriptions")
        ghost.cut()
        await eventually(lambda: bool(backend._subscriber._to_make))
        ghost.die()
        await eventually(lambda: not backend._subscriber._to_make)
        assert "dev:t/#" in queue_manager.topics.subscriptions
        await stop(backend)

    asyncio.run(run())


def test_a_subscription_that_is_refused_for_good_costs_its_client_the_connection(queue_manager: QueueManager) -> None:
    async def run() -> None:
        made: list[tuple[str, BreakableConnection]] = []
        backend = backend_of(queue_manager, NONE, made=made, probe_interval=0.02)
        dropped: list[tuple[str, str, int]] = []
        backend.on_dropped = lambda *what: dropped.append(what)
        await asyncio.wait_for(backend.open(), PATIENCE)
        await subscribed(backend, "dev", "shut/x")
        connection = EmbeddedConnection(queue_manager)
        assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('shut') SUB(DISABLED)")[0].ok
        for kind, one in made:
            if kind == "subscriptions":
                one.die()
        await eventually(lambda: bool(dropped))
        assert dropped == [("dev", "shut/x", cmqc.MQRC_SUB_INHIBITED)]
        await stop(backend)

    asyncio.run(run())


def test_who_takes_over_ends_the_writing_of_the_one_before(queue_manager: QueueManager) -> None:
    """The first bridge loses its fence and does not know: it commits nothing any more, answers nobody, and hears of it."""

    async def run() -> None:
        made: list[tuple[str, BreakableConnection]] = []
        first = backend_of(queue_manager, NONE, made=made, probe_interval=10_000)
        fenced: list[str] = []
        first.on_fenced = fenced.append
        await asyncio.wait_for(first.open(), PATIENCE)
        await published(first, "a", 1)
        second = backend_of(queue_manager, NONE)
        waiting = asyncio.ensure_future(second.open())
        await eventually(lambda: first._remover.connection is not None)
        remover = first._remover.connection
        assert isinstance(remover, BreakableConnection)
        remover.die()
        await asyncio.wait_for(waiting, PATIENCE)
        late = asyncio.ensure_future(published(first, "a", 2))
        await eventually(lambda: bool(fenced))
        assert not late.done()
        await published(second, "a", 3)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first.abandon(lambda: gone.set_result(None))
        await asyncio.wait_for(gone, PATIENCE)
        late.cancel()
        await stop(second)

    asyncio.run(run())
    assert payloads(queue_manager) == {"a": [1, 3]}


def test_a_bridge_goes_on_where_the_queue_manager_holds_its_own_lost_connection(queue_manager: QueueManager) -> None:
    """MQRC_OBJECT_IN_USE, and no other bridge: its own connection is not missed yet."""

    async def run() -> None:
        made: list[tuple[str, BreakableConnection]] = []
        backend = backend_of(queue_manager, NONE, made=made, probe_interval=0.02)
        fenced: list[str] = []
        backend.on_fenced = fenced.append
        await asyncio.wait_for(backend.open(), PATIENCE)
        await eventually(lambda: backend._remover.connection is not None)
        ghost = backend._remover.connection
        assert isinstance(ghost, BreakableConnection)
        ghost.cut()
        await eventually(lambda: backend._remover._standing_by)
        await published(backend, "a", 1)
        ghost.die()
        await eventually(lambda: backend._remover.connection is not None and not backend._remover._standing_by)
        assert not fenced
        await stop(backend)

    asyncio.run(run())
    assert payloads(queue_manager) == {"a": [1]}


def test_who_takes_over_waits_for_a_unit_of_work_under_way(queue_manager: QueueManager) -> None:
    """It is committed: the record that belongs to it is among what the next bridge reads."""

    async def run() -> list[SessionRecord]:
        made: list[tuple[str, BreakableConnection]] = []
        first = backend_of(queue_manager, NONE, made=made, probe_interval=10_000)
        await asyncio.wait_for(first.open(), PATIENCE)
        (publisher,) = (connection for kind, connection in made if kind == "publisher")
        gate = publisher.gates["commit"] = threading.Event()

        def fill(unit: Unit) -> None:
            unit.publications = [(publication("a", 1), False)]
            keep(unit, ReceivedRecord("a", [1]))

        committing = asyncio.ensure_future(ended(first, fill))
        # The receipt before is taken, the new one is not committed yet.
        await eventually(lambda: not first._publishers[0]._jobs and first._publishers[0].busy_since > 0)
        state_queue = queue_manager.queues[persistent_state.STATE_QUEUE]
        await eventually(lambda: sum(1 for _ in state_queue.messages()) < 3)
        second = backend_of(queue_manager, NONE)
        waiting = asyncio.ensure_future(second.open())
        await eventually(lambda: first._remover.connection is not None)
        remover = first._remover.connection
        assert isinstance(remover, BreakableConnection)
        remover.die()
        done, _ = await asyncio.wait((waiting,), timeout=0.3)
        assert not done
        gate.set()
        assert (await committing).failure == 0
        recovered = await asyncio.wait_for(waiting, PATIENCE)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first.abandon(lambda: gone.set_result(None))
        await asyncio.wait_for(gone, PATIENCE)
        await stop(second)
        return recovered.records

    (record,) = asyncio.run(run())
    assert isinstance(record, ReceivedRecord) and record.received == [1]
    assert payloads(queue_manager) == {"a": [1]}


def test_a_publication_that_is_refused_and_then_taken_is_told_as_taken(queue_manager: QueueManager) -> None:
    """The connection breaks between the refusal and the commit; at the second attempt the topic is open."""
    connection = EmbeddedConnection(queue_manager)
    assert connection.command("DEFINE TOPIC(SHUT) TOPICSTR('t/a') PUB(DISABLED)")[0].ok

    class Opens(Fault):
        def strikes(self, purpose: str, verb: str) -> bool:
            struck = verb == "commit" and super().strikes(purpose, verb)
            if struck:
                assert connection.command("ALTER TOPIC(SHUT) PUB(ENABLED)")[0].ok
            return struck

    async def run() -> tuple[Unit, list[SessionRecord]]:
        backend = backend_of(queue_manager, Opens("publisher", 1, after=False))
        await asyncio.wait_for(backend.open(), PATIENCE)

        def fill(unit: Unit) -> None:
            unit.publications = [(publication("a", 1), False)]
            keep(unit, ReceivedRecord("a", [2]))

        unit = await ended(backend, fill)
        await stop(backend)
        after = backend_of(queue_manager, NONE)
        recovered = await asyncio.wait_for(after.open(), PATIENCE)
        await stop(after)
        return unit, recovered.records

    unit, (record,) = asyncio.run(run())
    assert unit.refusals == {}
    assert isinstance(record, ReceivedRecord) and record.received == [2]
    assert payloads(queue_manager) == {"a": [1]}
