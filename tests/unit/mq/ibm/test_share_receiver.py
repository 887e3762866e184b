"""Shared subscriptions of two shards, on a queue manager whose connections break before or after any verb.

In all cases, each message reaches one of the shards, or both if it was returned, and nothing is left after the last shard has
left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from bridge.config.queue_manager import SHARE_MEMBERS_QUEUE
from bridge.mq.backend import ShareLimit, SubscriptionRequest, UnitOfWork
from bridge.mq.embedded.queuemanager import QueueManager
from bridge.mq.ibm import backend as ibm_backend
from bridge.mq.ibm import share_receiver
from bridge.mq.ibm.backend import IbmBackend
from bridge.mq.ibm.share_members import resume_share
from bridge.mq.ibm.share_receiver import ReturnJob, ShareReceiver
from bridge.mq.mqi import MQOD, Connection, MQError
from bridge.telemetry.message import Message
from bridge.telemetry.shard import Shard
from bridge.telemetry.subscription import SHARED, SharedSubscription, shared_subscription
from bridge.telemetry.transmission import Transmission
from bridge.wire import cmqc
from bridge.wire.mq import MQMD
from tests.helpers.ibm_backends import NONE, BreakableConnection, Fault, backend_of, define_shards, drain, stop
from tests.helpers.patience import PATIENCE, happens
from tests.ibm_standin.mqi.connection import StandInConnection

SHARE = shared_subscription("$share/g/t")
NAME = SHARE.remote_queue_manager
COUNT = 6
T = TypeVar("T")


class ShardBackend:
    """The backend of a shard, and the messages that it delivered."""

    def __init__(
        self,
        manager: QueueManager,
        number: int,
        fault: Fault = NONE,
        connections: list[tuple[str, BreakableConnection]] | None = None,
    ) -> None:
        self.backend: IbmBackend = backend_of(
            manager, fault, shard=Shard(number, 2), connections=connections, probe_interval=0.1
        )
        self.backend.share_limit = ShareLimit(1_000, False)
        self.delivered: list[Transmission] = []
        self._changed = asyncio.Event()

    async def start(self) -> None:
        await asyncio.wait_for(self.backend.open(), PATIENCE)
        self.backend.start(self._deliver)
        await asyncio.wait_for(self.backend.caught_up(), PATIENCE)

    def _deliver(self, batch: Sequence[Transmission]) -> None:
        self.delivered += batch
        self._changed.set()

    async def join(self, share: SharedSubscription = SHARE) -> None:
        request = SubscriptionRequest(share.written, SHARED, retained=False)
        joining = self.backend.subscribe(share.remote_queue_manager, [request], durable=True, user="", member="m")
        assert await self.soon(joining) == [0]

    async def leave(self, waiting: Sequence[Transmission] = ()) -> None:
        assert await self.soon(self.backend.leave_share(SHARE, waiting)) == [0]

    async def give_back(self, waiting: Sequence[Transmission]) -> None:
        while waiting:  # another shard may have the subscription open for a moment
            waiting = await self.soon(self.backend.return_to_share(SHARE, waiting))

    async def remove(self, messages: Sequence[Transmission]) -> None:
        self.backend.on_completed = lambda _completions: None
        self.backend.submit(UnitOfWork(removals=list(messages)))
        await self.soon(self.backend.flush())

    @staticmethod
    async def soon(answer: asyncio.Future[T]) -> T:
        return await asyncio.wait_for(answer, PATIENCE)

    async def until_delivered(self, count: int) -> None:
        while len(self.delivered) < count:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), PATIENCE)


def publish(manager: QueueManager, count: int) -> None:
    connection = StandInConnection(manager)
    topic = connection.open(MQOD(ObjectType=cmqc.MQOT_TOPIC, ObjectString="t"), cmqc.MQOO_OUTPUT)
    for number in range(count):
        connection.put(topic, Message(MQMD(Persistence=cmqc.MQPER_PERSISTENT), b"%d" % number))
    connection.disconnect()


def numbers(messages: Sequence[Transmission]) -> set[int]:
    return {int(message.message.data[-1:]) for message in messages}


async def exchange(manager: QueueManager, fault: Fault) -> None:
    """Two shards join, get messages in turn, and leave. One of them has the fault."""
    first, second = ShardBackend(manager, 0, fault), ShardBackend(manager, 1)
    for shard in (first, second):
        await shard.start()
        await shard.join()
    publish(manager, COUNT)
    first.backend.request_share(SHARE, 3)
    await first.until_delivered(3)
    first.backend.request_share(SHARE, 0)
    # A break after a commit may have repeated the request.
    own_messages, returned = first.delivered[:1], first.delivered[1:]
    await first.give_back(returned)
    await first.remove(own_messages)
    second.backend.request_share(SHARE, 100)
    await second.until_delivered(1)
    while numbers(own_messages) | numbers(second.delivered) != set(range(COUNT)):
        late = [number for number in first.delivered if number not in own_messages and number not in returned]
        returned += late
        await first.give_back(late)
        second.backend.request_share(SHARE, 100)
        await second.until_delivered(len(second.delivered) + 1)
    assert not numbers(own_messages) & numbers(second.delivered)
    assert len(second.delivered) == COUNT - 1
    await second.remove(second.delivered[1:])
    await second.leave(second.delivered[:1])
    # The other shard has members, and gets the message that was returned.
    before = len(first.delivered)
    first.backend.request_share(SHARE, 100)
    await first.until_delivered(before + 1)
    assert numbers(first.delivered[before:]) == numbers(second.delivered[:1])
    await first.leave(first.delivered[before:])
    for shard in (first, second):
        await stop(shard.backend)
    connection = StandInConnection(manager)
    assert [entry.name for entry in connection.subscriptions()] == ["all"]
    connection.disconnect()
    for queue in (SHARE_MEMBERS_QUEUE, "SYSTEM.MQTT.TRANSMIT.QUEUE.0", "SYSTEM.MQTT.TRANSMIT.QUEUE.1"):
        assert drain(manager, queue) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("purpose", ["shares", "subscriptions"])
async def test_messages_reach_a_shard_wherever_the_connection_breaks(
    queue_manager: QueueManager, purpose: str, after: bool
) -> None:
    define_shards(queue_manager)
    total = Fault(purpose, 0, after=False)
    await exchange(queue_manager, total)
    struck = set()
    for number in range(1, total.calls + 1):
        fault = Fault(purpose, number, after=after)
        await exchange(queue_manager, fault)
        struck.add(fault.struck)
    assert {"open", "put", "get"} <= struck


async def test_messages_that_arrive_after_a_shard_has_left_go_to_another_one(queue_manager: QueueManager) -> None:
    define_shards(queue_manager)
    first, second = ShardBackend(queue_manager, 0), ShardBackend(queue_manager, 1)
    for shard in (first, second):
        await shard.start()
        await shard.join()
    publish(queue_manager, COUNT)
    first.backend.request_share(SHARE, COUNT)
    await first.until_delivered(COUNT)
    await first.leave()
    first.backend.return_unclaimed(NAME, first.delivered[1:])
    second.backend.request_share(SHARE, COUNT)
    await second.until_delivered(COUNT - 1)
    assert numbers(second.delivered) == set(range(1, COUNT))
    # A shared subscription that this bridge knows nothing of.
    unknown = shared_subscription("$share/unknown/t").remote_queue_manager
    first.backend.return_unclaimed(unknown, first.delivered[:1])
    for shard in (first, second):
        await stop(shard.backend)
    assert [message.data[-1:] for message in drain(queue_manager, "SYSTEM.DEAD.LETTER.QUEUE")] == [b"0"]
    assert drain(queue_manager, "SYSTEM.MQTT.TRANSMIT.QUEUE.0") == []


async def test_few_queues_are_open_at_a_time(queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_receiver, "_MAX_QUEUES", 2)
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    shares = [shared_subscription(f"$share/{number}/t") for number in range(4)]
    for share in shares:
        await shard.join(share)
    publish(queue_manager, 2)
    for share in shares:
        shard.backend.request_share(share, 10)
    await shard.until_delivered(8)
    for share in shares:
        returned = [message for message in shard.delivered if message.client_id == share.remote_queue_manager]
        assert len(returned) == 2
        assert await shard.soon(shard.backend.return_to_share(share, returned)) == []
    await stop(shard.backend)


async def test_many_subscriptions_are_served_in_turn(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_receiver, "_AT_ONCE", 2)
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    shares = [shared_subscription(f"$share/{number}/t") for number in range(7)]
    for share in shares:
        await shard.join(share)
        shard.backend.request_share(share, 1)
    publish(queue_manager, 1)
    await shard.until_delivered(7)
    assert {message.client_id for message in shard.delivered} == {share.remote_queue_manager for share in shares}
    await stop(shard.backend)


async def test_failures_of_a_subscription_use_one_handle(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(share_receiver, "_RETRY", 0.01)
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    await shard.join()
    administrator = StandInConnection(queue_manager)
    (row,) = administrator.command(f"DISPLAY SUB('{SHARE.subscription_name}') DEST")[0].objects
    queue = row["DEST"]
    administrator.command(f"ALTER QLOCAL('{queue}') GET(DISABLED)")
    shard.backend.request_share(SHARE, 1)
    await happens(lambda: caplog.text.count("MQB4220W") > 5)
    (row,) = administrator.command(f"DISPLAY QSTATUS('{queue}') IPPROCS")[0].objects
    assert int(row["IPPROCS"]) <= 1
    administrator.command(f"ALTER QLOCAL('{queue}') GET(ENABLED)")
    publish(queue_manager, 1)
    await shard.until_delivered(1)
    administrator.disconnect()
    await stop(shard.backend)


async def test_a_shard_that_hangs_while_it_changes_the_members_does_not_delay_other_requests(
    queue_manager: QueueManager,
) -> None:
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    other = StandInConnection(queue_manager)
    lock = other.open(MQOD(ObjectName=SHARE_MEMBERS_QUEUE), cmqc.MQOO_INPUT_EXCLUSIVE)
    joining = asyncio.ensure_future(shard.join())
    leaving = asyncio.ensure_future(shard.leave())
    request = SubscriptionRequest("u", SHARED, retained=False)
    assert await shard.soon(shard.backend.subscribe("client", [request], durable=True, user="")) == [0]
    assert not joining.done() and not leaving.done()
    other.close(lock)
    await asyncio.gather(joining, leaving)
    # In their order: nothing is left.
    assert [entry.name for entry in other.subscriptions()] == ["all", "client:u"]
    other.disconnect()
    await stop(shard.backend)


async def test_a_stop_ends_requests_that_wait_for_another_shard(queue_manager: QueueManager) -> None:
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    other = StandInConnection(queue_manager)
    other.open(MQOD(ObjectName=SHARE_MEMBERS_QUEUE), cmqc.MQOO_INPUT_EXCLUSIVE)
    request = SubscriptionRequest(SHARE.written, SHARED, retained=False)
    joining = shard.backend.subscribe(NAME, [request], durable=True, user="", member="m")
    await stop(shard.backend)
    assert await shard.soon(joining) == [cmqc.MQRC_OBJECT_IN_USE]
    other.disconnect()


async def test_a_shard_leaves_a_subscription_that_an_administrator_has_deleted(queue_manager: QueueManager) -> None:
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    await shard.join()
    publish(queue_manager, 1)
    shard.backend.request_share(SHARE, 1)
    await shard.until_delivered(1)
    connection = StandInConnection(queue_manager)
    connection.command(f"DELETE SUB('{SHARE.subscription_name}')")
    connection.disconnect()
    await shard.leave(shard.delivered)
    await stop(shard.backend)
    for queue in (SHARE_MEMBERS_QUEUE, "SYSTEM.MQTT.TRANSMIT.QUEUE.0"):
        assert drain(queue_manager, queue) == []


async def test_shards_that_limit_a_queue_at_the_same_time_remove_a_tenth_too_many_at_most(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    define_shards(queue_manager)
    shards = [ShardBackend(queue_manager, number) for number in (0, 1)]
    barrier, waited = threading.Barrier(2, timeout=PATIENCE), set[str]()
    inquire = StandInConnection.inquire

    def inquire_together(self: StandInConnection, handle: int, selectors: Sequence[int]) -> Any:
        answer = inquire(self, handle, selectors)
        (depths, _), name = answer, threading.current_thread().name + str(threading.get_ident())
        if cmqc.MQIA_CURRENT_Q_DEPTH in selectors and depths[0] == 250 and name not in waited:
            # Neither shard removes a message before both have seen the depth.
            waited.add(name)
            barrier.wait()
        return answer

    monkeypatch.setattr(StandInConnection, "inquire", inquire_together)
    publisher = StandInConnection(queue_manager)
    for shard in shards:
        shard.backend.share_limit = ShareLimit(100, False)
        await shard.start()
        await shard.join()
    publish(queue_manager, 250)
    removed = [0, 0]

    def limited(number: int, _option: str, _name: str, count: int) -> None:
        removed[number] += count

    for number, shard in enumerate(shards):
        shard.backend.on_limit = lambda *arguments, number=number: limited(number, *arguments)
        shard.backend.request_share(SHARE, 0)
    await happens(lambda: sum(removed) >= 150)
    for shard in shards:
        await stop(shard.backend)
    assert len(waited) == 2
    assert 150 <= sum(removed) <= 150 + 15, removed
    (row,) = publisher.command(f"DISPLAY SUB('{SHARE.subscription_name}') DEST")[0].objects
    (queue,) = publisher.command(f"DISPLAY QLOCAL('{row['DEST']}') CURDEPTH")[0].objects
    assert int(queue["CURDEPTH"]) == 250 - sum(removed)
    publisher.disconnect()


@pytest.mark.parametrize("obstacle", ["open elsewhere", "full", "inhibited"])
async def test_a_shard_that_leaves_returns_messages_however_long_the_subscription_rejects_them(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, obstacle: str
) -> None:
    """A bridge that was killed may have it open until the queue manager notices."""
    monkeypatch.setattr(ibm_backend, "_RETURN_RETRY", 0.05)
    attempts: list[int] = []
    submit = ShareReceiver.submit

    def counted(self: ShareReceiver, job: ReturnJob) -> None:
        attempts.append(len(job.messages))
        submit(self, job)

    monkeypatch.setattr(ShareReceiver, "submit", counted)
    define_shards(queue_manager)
    first, second = ShardBackend(queue_manager, 0), ShardBackend(queue_manager, 1)
    for shard in (first, second):
        await shard.start()
        await shard.join()
    publish(queue_manager, 2)
    first.backend.request_share(SHARE, 1)
    await first.until_delivered(1)
    other = StandInConnection(queue_manager)
    (row,) = other.command(f"DISPLAY SUB('{SHARE.subscription_name}') DEST")[0].objects
    attribute = {"full": "MAXDEPTH", "inhibited": "PUT"}.get(obstacle)
    handles: tuple[int, ...] = ()
    if attribute is None:
        # As after a takeover, the shard does not have the queue open.
        await stop(first.backend)
        first = ShardBackend(queue_manager, 0)
        await first.start()
        await first.until_delivered(1)
        handles = resume_share(other, SHARE)
    else:
        value = {"MAXDEPTH": "0", "PUT": "DISABLED"}[attribute]
        other.command(f"ALTER QLOCAL('{row['DEST']}') {attribute}({value})")
    # Clients do not wait for that, also if they join again.
    await first.leave(first.delivered)
    if attribute is not None:
        await first.join()
    await happens(lambda: attempts.count(1) > 2)
    # Another shard may have it open for a moment.
    assert ("MQB4219E" in caplog.text) == (attribute is not None)
    for handle in handles:
        other.close(handle)
    if attribute is not None:
        value = {"MAXDEPTH": "5000", "PUT": "ENABLED"}[attribute]
        other.command(f"ALTER QLOCAL('{row['DEST']}') {attribute}({value})")
    second.backend.on_share_received = lambda _name: second.backend.request_share(SHARE, 1)
    second.backend.request_share(SHARE, 1)
    await second.until_delivered(2)
    assert numbers(second.delivered) == {0, 1}
    other.disconnect()
    for shard in (first, second):
        await stop(shard.backend)


async def test_the_last_shard_leaves_a_subscription_whose_queue_is_full(queue_manager: QueueManager) -> None:
    """After that, no bridge removes messages from the queue."""
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    await shard.join()
    publish(queue_manager, 2)
    shard.backend.request_share(SHARE, 1)
    await shard.until_delivered(1)
    other = StandInConnection(queue_manager)
    (row,) = other.command(f"DISPLAY SUB('{SHARE.subscription_name}') DEST")[0].objects
    other.command(f"ALTER QLOCAL('{row['DEST']}') MAXDEPTH(1)")
    await shard.leave(shard.delivered)
    assert [entry.name for entry in other.subscriptions()] == ["all"]
    other.disconnect()
    await stop(shard.backend)
    for queue in (SHARE_MEMBERS_QUEUE, "SYSTEM.MQTT.TRANSMIT.QUEUE.0"):
        assert drain(queue_manager, queue) == []


async def test_messages_that_have_returned_before_a_failure_do_not_stay(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    await shard.join()
    publish(queue_manager, 6)
    shard.backend.request_share(SHARE, 6)
    await shard.until_delivered(6)
    monkeypatch.setattr(share_receiver, "_BATCH", 2)
    other = StandInConnection(queue_manager)
    (row,) = other.command(f"DISPLAY SUB('{SHARE.subscription_name}') DEST")[0].objects
    other.command(f"ALTER QLOCAL('{row['DEST']}') MAXDEPTH(3)")
    assert await shard.soon(shard.backend.return_to_share(SHARE, shard.delivered)) == shard.delivered[2:]
    other.disconnect()
    await stop(shard.backend)
    assert len(drain(queue_manager, row["DEST"])) == 2
    assert len(drain(queue_manager, "SYSTEM.MQTT.TRANSMIT.QUEUE.0")) == 4


async def test_a_subscription_that_is_open_elsewhere_does_not_delay_others(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    await shard.start()
    await shard.join()
    publish(queue_manager, 1)
    shard.backend.request_share(SHARE, 1)
    await shard.until_delivered(1)
    monkeypatch.setattr(share_receiver, "_MAX_QUEUES", 1)
    another = shared_subscription("$share/h/t")
    await shard.join(another)
    publish(queue_manager, 1)
    # Only one queue is open at a time, now that of the other subscription.
    shard.backend.request_share(another, 1)
    await shard.until_delivered(2)
    other = StandInConnection(queue_manager)
    resume_share(other, SHARE)
    attempts: list[MQError] = []
    opened = share_receiver.opened_queue

    def counted(connection: Connection, share: SharedSubscription) -> int:
        try:
            return opened(connection, share)
        except MQError as error:
            attempts.append(error)
            raise

    monkeypatch.setattr(share_receiver, "opened_queue", counted)
    returned = shard.delivered[:1]
    assert await shard.soon(shard.backend.return_to_share(SHARE, returned)) == returned
    assert [error.reason for error in attempts] == [cmqc.MQRC_SUBSCRIPTION_IN_USE]
    other.disconnect()
    await stop(shard.backend)


async def test_messages_that_were_removed_before_a_failure_are_reported(
    queue_manager: QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    define_shards(queue_manager)
    shard = ShardBackend(queue_manager, 0)
    limited: list[tuple[str, str, int]] = []
    shard.backend.on_limit = lambda *arguments: limited.append(arguments)
    shard.backend.share_limit = ShareLimit(10, False)
    await shard.start()
    await shard.join()
    publish(queue_manager, 20)
    inquire = StandInConnection.inquire

    def failing(self: StandInConnection, handle: int, selectors: Sequence[int]) -> Any:
        answer = inquire(self, handle, selectors)
        if cmqc.MQIA_CURRENT_Q_DEPTH in selectors and answer[0][0] == 19:
            raise MQError(cmqc.MQRC_RESOURCE_PROBLEM, "inquire")
        return answer

    monkeypatch.setattr(StandInConnection, "inquire", failing)
    shard.backend.request_share(SHARE, 0)
    await happens(lambda: limited)
    assert limited == [("waiting_bytes", NAME, 1)]
    assert "MQB4220W" in caplog.text and "MQB4221W removed the 1 oldest messages" in caplog.text
    await stop(shard.backend)


async def test_messages_that_a_shared_subscription_never_accepts_are_dead_lettered(
    queue_manager: QueueManager, caplog: pytest.LogCaptureFixture
) -> None:
    define_shards(queue_manager)
    first, second = ShardBackend(queue_manager, 0), ShardBackend(queue_manager, 1)
    for shard in (first, second):
        await shard.start()
        await shard.join()
    publish(queue_manager, 2)
    first.backend.request_share(SHARE, 2)
    await first.until_delivered(2)
    other = StandInConnection(queue_manager)
    (row,) = other.command(f"DISPLAY SUB('{SHARE.subscription_name}') DEST")[0].objects
    other.command(f"ALTER QLOCAL('{row['DEST']}') MAXMSGL(1)")
    other.disconnect()
    await first.leave(first.delivered)
    for shard in (first, second):
        await stop(shard.backend)
    assert "MQB4219E" in caplog.text
    assert len(drain(queue_manager, "SYSTEM.DEAD.LETTER.QUEUE")) == 2
    assert drain(queue_manager, "SYSTEM.MQTT.TRANSMIT.QUEUE.0") == []
