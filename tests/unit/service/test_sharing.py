"""Joining and leaving shares, with a queue manager that a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.mq.backend import ClientSubscription
from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from bridge.service import delivery, subscriptions
from bridge.service.events import EventBus, Subscribed, Unsubscribed
from bridge.telemetry.record import SentRecord, Side, StateKey
from bridge.telemetry.subscription import shared_subscription
from tests.helpers.patience import happens

SHARE = "$share/g/t"
NAME = shared_subscription(SHARE).remote_queue_manager


def shared(running: Any, number: int, qos: int = 1, **fields: Any) -> Any:
    """A message of the share on the transmission queue."""
    return running.backend.publication(number, qos, client_id=NAME, **{"user_data": "1 RAP"} | fields)


async def member(running: Any, client_id: str, qos: int = 1, *, clean_session: bool = True) -> Any:
    client = await running.connect(client_id, clean_session=clean_session)
    client.send(Subscribe(1, ((SHARE, qos),)))
    assert await client.receive() == Suback(1, (min(qos, 1),))
    return client


async def numbers(client: Any, count: int) -> list[int]:
    return [int((await client.receive()).payload) for _ in range(count)]


async def test_one_subscription_for_all_members(bridge: Any) -> None:
    """It is made for each new member, to check its authority, and ends with the last one."""
    async with bridge() as running:
        first, second = await member(running, "one", 2), await member(running, "two", clean_session=False)
        assert running.backend.subscribed == [(NAME, SHARE, 1, True)] * 2
        assert [request.retained for request in running.backend.requests] == [False] * 2
        second.send(Unsubscribe(2, (SHARE,)))
        assert await second.receive() == Unsuback(2)
        assert running.backend.unsubscribed == [("two", SHARE)]
        first.send(Disconnect())
        await running.backend.until(lambda: (NAME, SHARE) in running.backend.unsubscribed)
        assert not running.service.delivery.shares


async def test_unsuback_does_not_wait_for_another_bridge_that_hangs(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MAX_UNSUBACK_DELAY", 0.01)
    async with bridge() as running:
        client = await member(running, "c")
        ending: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        running.backend.divided_shares = SimpleNamespace(leave_share=lambda *_: ending)
        client.send(Unsubscribe(2, (SHARE,)))
        assert await client.receive() == Unsuback(2)
        assert not ending.done()


class OtherBridges:
    """Bridges of other shards with members of the same share. Records the messages that return to them."""

    def __init__(self) -> None:
        self.returned: list[int] = []

    def leave_share(self, _share: object, waiting: Sequence[Any]) -> asyncio.Future[list[int]]:
        self.return_unclaimed(NAME, waiting)
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        answer.set_result([0])
        return answer

    def return_unclaimed(self, name: str, waiting: Sequence[Any]) -> None:
        assert name == NAME
        self.returned += [transmission.msg_number for transmission in waiting]


async def test_messages_that_arrive_after_the_last_member_has_left_go_to_other_bridges(bridge: Any) -> None:
    """They were on their way when it left, or a bridge that was active before has moved them."""
    async with bridge() as running:
        others = running.backend.divided_shares = OtherBridges()
        running.backend.deliver(shared(running, 7), running.backend.publication(8, 1, client_id="nobody"))
        await running.backend.until(lambda: bool(running.backend.removed))
        assert [message.msg_number for message in running.backend.removed] == [8]
        assert others.returned == [7]


@pytest.mark.parametrize("clean_session", [True, False])
async def test_messages_that_a_former_member_does_not_acknowledge_go_to_other_bridges(
    bridge: Any, clean_session: bool
) -> None:
    async with bridge() as running:
        others = running.backend.divided_shares = OtherBridges()
        client = await member(running, "c", clean_session=clean_session)
        running.backend.deliver(shared(running, 7), shared(running, 8))
        received = [await client.receive() for _ in range(2)]
        client.send(Puback(received[0].packet_id))
        client.send(Unsubscribe(2, (SHARE,)))
        assert await client.receive() == Unsuback(2)
        assert others.returned == []
        client.vanish()
        session = running.service.sessions["c"]
        if not clean_session:
            await happens(lambda: not session.connected)
            running.service.purge(session)
        await happens(lambda: others.returned == [8])
        assert [message.msg_number for message in running.backend.removed] == [7]


async def test_messages_of_a_session_that_ends_before_its_turn_go_to_other_bridges(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SENT_AT_ONCE", 1)
    async with bridge() as running:
        others = running.backend.divided_shares = OtherBridges()
        await member(running, "c")
        running.backend.deliver(*(shared(running, number) for number in range(1, 6)))
        running.service.purge(running.service.sessions["c"])
        await happens(lambda: sorted(others.returned) == [1, 2, 3, 4, 5])
        assert running.backend.removed == []


async def test_the_record_comes_before_suback(bridge: Any, restart: Any) -> None:
    async with bridge() as running:
        client = await running.connect("c", clean_session=False)
        running.backend.automatic = False
        client.send(Subscribe(1, ((SHARE, 1), ("own", 2))))
        for _ in range(3):
            await running.backend.until(lambda: bool(running.backend.waiting))
            await client.silent()
            running.backend.complete()
        assert await client.receive() == Suback(1, (1, 2))
        record = running.backend.states[StateKey(Side.SENT, "c")]
        assert isinstance(record, SentRecord) and record.shares == [(SHARE, "1")]
        backend = restart(running.backend, ClientSubscription(NAME, SHARE, "1 RAP", True))
        backend.lying = [shared(running, 7)]
    async with bridge(backend=backend) as running:
        assert list(running.service.sessions) == ["c"], "a share is not a session"
        client = await running.open()
        client.send(Connect("c", clean_session=False))
        assert await client.receive() == Connack(0, True)
        packet = await client.receive()
        assert packet.payload == b"7" and packet.dup, "it was connected when the bridge died, and may have had it"
        client.send(Unsubscribe(2, (SHARE,)))
        assert await client.receive() == Unsuback(2)
        assert backend.unsubscribed == [("c", SHARE), (NAME, SHARE)]
        assert backend.states[StateKey(Side.SENT, "c")].shares == []


async def test_a_record_that_cannot_be_committed(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect("c", clean_session=False)
        running.backend.automatic = False
        client.send(Subscribe(1, ((SHARE, 1),)))
        await running.backend.until(lambda: len(running.backend.waiting) == 2)
        running.backend.complete(), running.backend.complete()
        await running.backend.until(lambda: bool(running.backend.waiting))
        running.backend.failure = 2102
        running.backend.complete_all()
        assert await client.receive() == Suback(1, (0x80,))
        running.backend.failure, running.backend.automatic = 0, True
        running.backend.complete_all()
        await running.backend.until(lambda: (NAME, SHARE) in running.backend.unsubscribed)
        assert not running.service.sessions["c"].shares


async def test_a_share_without_known_members_ends_at_the_start(bridge: Any, restart: Any) -> None:
    async with bridge() as running:
        await member(running, "c")
        backend = restart(running.backend, ClientSubscription(NAME, SHARE, "1 RAP", True))
        shares = backend.lying = [shared(running, 7)]
    async with bridge(backend=backend) as running:
        await backend.until(lambda: backend.removed == shares)
        assert backend.unsubscribed == [(NAME, SHARE)] and not running.service.sessions


async def test_a_share_whose_subscription_was_deleted(bridge: Any, restart: Any) -> None:
    """An administrator has deleted it. The session continues without it."""
    async with bridge() as running:
        await member(running, "c", clean_session=False)
        backend = restart(running.backend)
    async with bridge(backend=backend) as running:
        assert not running.service.sessions["c"].shares and not running.service.delivery.shares


async def test_a_rejected_member(bridge: Any) -> None:
    async with bridge() as running:
        first, second = await member(running, "one"), await running.connect("two")
        running.backend.refused[SHARE] = 2035
        second.send(Subscribe(1, ((SHARE, 1),)))
        assert await second.receive() == Suback(1, (0x80,))
        running.backend.deliver(shared(running, 1), shared(running, 2))
        assert await numbers(first, 2) == [1, 2]
        first.send(Disconnect())
        await running.backend.until(lambda: (NAME, SHARE) in running.backend.unsubscribed)


async def test_subscribe_and_unsubscribe_in_one_segment(bridge: Any) -> None:
    """Packets take effect in the order in which they were sent."""
    async with bridge() as running:
        client = await running.connect("c")
        client.send(Subscribe(1, ((SHARE, 1),)), Unsubscribe(2, (SHARE,)))
        assert sorted([str(await client.receive()), str(await client.receive())]) == [
            str(Suback(1, (1,))),
            str(Unsuback(2)),
        ]
        await running.backend.until(lambda: (NAME, SHARE) in running.backend.unsubscribed)
        assert not running.service.sessions["c"].shares and not running.service.delivery.shares
        client.send(Subscribe(3, ((SHARE, 1),)), Unsubscribe(4, (SHARE,)), Subscribe(5, ((SHARE, 0),)))
        for _ in range(3):
            await client.receive()
        assert running.service.sessions["c"].shares[NAME] == (SHARE, "0")


async def test_a_client_that_disconnects_before_it_is_answered(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect("c")
        running.backend.automatic = False
        client.send(Subscribe(1, ((SHARE, 1),)))
        await running.backend.until(lambda: len(running.backend.waiting) == 2)
        running.backend.deliver(shared(running, 1))
        client.vanish()
        await running.until(lambda: not running.service.sessions)
        running.backend.automatic = True
        running.backend.complete_all()
        await running.backend.until(lambda: len(running.backend.removed) == 1)
        assert running.backend.unsubscribed == [(NAME, SHARE)]


async def test_an_acknowledgement_that_cannot_be_committed(bridge: Any) -> None:
    """The message goes to another member, even if the client and its session no longer exist."""
    async with bridge() as running:
        first, second = await member(running, "one"), await member(running, "two")
        running.backend.deliver(shared(running, 1))
        assert await numbers(first, 1) == [1]
        running.backend.automatic = False
        first.send(Puback(1))
        await running.backend.until(lambda: bool(running.backend.waiting))
        first.vanish()
        await running.until(lambda: "one" not in running.service.sessions)
        running.backend.failure = 2102
        running.backend.complete_all()
        assert await numbers(second, 1) == [1]
        running.backend.failure = 0


async def test_qos_0_is_not_dropped_while_another_member_reads(bridge: Any) -> None:
    async with bridge() as running:
        first, second = await member(running, "one", 0), await member(running, "two", 0)
        running.service.clients["one"].transport.owner.pause_writing()
        running.backend.deliver(*(shared(running, number) for number in (1, 2, 3)))
        assert await numbers(second, 3) == [1, 2, 3]
        running.service.clients["two"].transport.owner.pause_writing()
        running.backend.deliver(shared(running, 4))
        await running.backend.until(lambda: len(running.backend.removed) == 4)
        assert sum(running.service.sessions[name].outbox.dropped for name in ("one", "two")) == 1
        await first.silent()


async def test_options_of_each_member(bridge: Any) -> None:
    """QoS and Retain As Published are those of the member that gets a message."""
    async with bridge() as running:
        client = await running.connect("c")
        client.send(Subscribe(1, ((SHARE, 0),)))
        await client.receive()
        running.backend.deliver(shared(running, 1, retained=True))
        assert await client.receive() == Publish("t", b"1", 0, False, False, 0)
        assert running.service.delivery.shares[NAME].members["c"].user_data == "0"
        running.service.delivery.shares[NAME].members["c"].user_data = "1 RAP"
        running.backend.deliver(shared(running, 2, retained=True))
        assert await client.receive() == Publish("t", b"2", 1, True, False, 2)


async def test_a_direct_message_to_a_share(bridge: Any) -> None:
    """It is meant for no client."""
    async with bridge() as running:
        await member(running, "c")
        message = running.backend.direct(1, client_id=NAME)
        running.backend.deliver(message)
        assert running.backend.dead == [(message, 2087)]


async def test_events_contain_the_topic_filters_of_the_client(bridge: Any) -> None:
    filters: list[Any] = []

    def listen(events: EventBus) -> None:
        events.subscribe(Subscribed, lambda event: filters.append(list(event.granted)))
        events.subscribe(Unsubscribed, lambda event: filters.append(list(event.filters)))

    async with bridge(listeners=[listen]) as running:
        client = await member(running, "c", 2)
        client.send(Unsubscribe(2, (SHARE,)))
        await client.receive()
        assert filters == [[(SHARE, 1)], [SHARE]]


@pytest.mark.parametrize("limit", [1, 2])
async def test_shares_count_towards_the_subscriptions_of_a_client(bridge: Any, limit: int) -> None:
    async with bridge({"subscriptions": limit}) as running:
        client = await member(running, "c")
        client.send(Subscribe(2, (("t", 1), (SHARE, 1))))
        assert await client.receive() == Suback(2, (1 if limit == 2 else 0x80, 1))
