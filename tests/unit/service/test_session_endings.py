"""Sessions that end because their backlog exceeds the limits, with a queue manager that the test controls."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mq.backend import ClientSubscription, UnitOfWork
from bridge.mqtt.packets import (
    Connack,
    Connect,
    ConnectProperties,
    Disconnect,
    Puback,
    Publish,
    Suback,
    Subscribe,
)
from bridge.service import session_endings
from bridge.service.events import DeadLettered, EventBus
from bridge.telemetry.record import SentRecord, Side, StateKey
from bridge.telemetry.subscription import shared_subscription

SHARE = "$share/g/t"
NAME = shared_subscription(SHARE).remote_queue_manager
#: Enough for two waiting messages.
LIMITS = {"waiting_bytes": 1300, "waiting_full": "end-session", "in_flight": 1}


async def subscriber(
    running: Any, client_id: str, topic_filter: str = "t", *, level: int = 4, durable: bool = True
) -> Any:
    fields: dict[str, Any] = {"clean_session": not durable}
    if level == 5:
        fields |= {"protocol_level": 5, "properties": ConnectProperties(session_expiry_interval=1000 * durable)}
    client = await running.connect(client_id, **fields)
    assert await client.subscribe(topic_filter) == (1,)
    return client


async def receive(client: Any, *numbers: int) -> None:
    """Receive and acknowledge these messages, and no others before them."""
    for number in numbers:
        packet = await client.receive()
        assert isinstance(packet, Publish) and packet.payload == b"%d" % number
        client.send(Puback(packet.packet_id))


def ends(unit: UnitOfWork) -> bool:
    """Return whether a unit of work records the end of a session."""
    return any(isinstance(record, SentRecord) and record.ending for record in unit.records.values())


async def unsubscribed(running: Any, *subscriptions: tuple[str, str]) -> None:
    await running.backend.until(lambda: set(subscriptions) <= set(running.backend.unsubscribed))


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("durable", [True, False])
async def test_a_client_receives_waiting_messages_and_is_disconnected(bridge: Any, level: int, durable: bool) -> None:
    async with bridge(LIMITS) as running:
        client = await subscriber(running, "c", level=level, durable=durable)
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2, 3, 4)))
        running.backend.deliver(running.backend.publication(5, 1), running.backend.publication(6, 0, persistent=False))
        await unsubscribed(running, ("c", "t"))
        running.backend.deliver(running.backend.publication(7, 1))  # was in flight
        (hit,) = running.service.limit_hits.current().items()
        assert hit[0] == "waiting_bytes" and [*hit[1].subjects] == ["c"] and hit[1].number == 4
        assert [transmission.msg_number for transmission in running.backend.removed] == [6], (
            "a message of QoS 0 is discarded"
        )
        code = 0x97 if level == 5 else 0x80
        client.send(Subscribe(2, (("other", 1),)))
        packets = [await client.receive(), await client.receive()]
        (first,) = [packet for packet in packets if isinstance(packet, Publish)]
        (answer,) = [packet for packet in packets if isinstance(packet, Suback)]
        assert answer.return_codes == (code,) and first.payload == b"1"
        client.send(Puback(first.packet_id))
        await receive(client, 2, 3, 4, 5, 7)
        rest = await client.rest()
        assert rest == [] if level == 4 else [packet.reason_code for packet in rest] == [0x97]
        await running.until(lambda: "c" not in running.service.sessions)
        assert not running.backend.dead
        again = await running.open()
        again.send(Connect("c", clean_session=False))
        assert await again.receive() == Connack(0, False)
        assert await again.subscribe("t") == (1,)


async def test_a_client_that_was_disconnected(bridge: Any, restart: Any) -> None:
    """Session Present is 1 as long as messages wait. The end survives restarts, at every step."""
    async with bridge(LIMITS) as running:
        client = await subscriber(running, "c")
        client.send(Disconnect())
        await running.until(lambda: "c" not in running.service.clients)
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2)))
        running.backend.automatic = False
        running.backend.deliver(running.backend.publication(3, 1))
        await running.backend.until(lambda: any(ends(unit) for unit in running.backend.units))
        running.backend.complete_all()  # the record is committed before the subscription ends
        assert not running.backend.unsubscribed
        record = running.backend.states[StateKey(Side.SENT, "c")]
        assert isinstance(record, SentRecord) and record.ending
        backend = restart(running.backend, ClientSubscription("c", "t", "1", True))
        backend.lying = [backend.publication(number, 1) for number in (1, 2, 3)]
    async with bridge(LIMITS, backend=backend) as running:
        await unsubscribed(running, ("c", "t"))
        backend = restart(running.backend)
        backend.lying = [backend.publication(number, 1) for number in (1, 2, 3)]
    async with bridge(LIMITS, backend=backend) as running:
        client = await running.open()
        client.send(Connect("c", clean_session=False))
        assert await client.receive() == Connack(0, True)
        await receive(client, 1, 2, 3)
        assert await client.rest() == []
        await running.until(lambda: StateKey(Side.SENT, "c") not in running.backend.states)
        backend = restart(running.backend)
    async with bridge(LIMITS, backend=backend) as running:
        assert not running.service.sessions


async def test_an_ending_session_without_messages_ends_at_the_start(bridge: Any, restart: Any) -> None:
    async with bridge(LIMITS) as running:
        client = await subscriber(running, "c")
        client.send(Disconnect())
        await running.until(lambda: "c" not in running.service.clients)
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2, 3)))
        await unsubscribed(running, ("c", "t"))
        backend = restart(running.backend)
    async with bridge(LIMITS, backend=backend) as running:
        await running.until(lambda: not running.service.sessions)


async def test_an_ending_session_that_its_client_discards(bridge: Any) -> None:
    async with bridge(LIMITS) as running:
        client = await subscriber(running, "c")
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2, 3, 4)))
        await unsubscribed(running, ("c", "t"))
        client.vanish()
        again = await subscriber(running, "c", durable=False)
        await running.backend.until(lambda: len(running.backend.removed) == 4)
        running.backend.deliver(running.backend.publication(5, 1))
        await receive(again, 5)
        await again.silent()


async def test_removal_of_subscriptions_is_retried(bridge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_endings, "RETRY_INTERVAL", 0.001)
    async with bridge(LIMITS) as running:
        running.backend.not_removable["t"] = 2035
        client = await subscriber(running, "c")
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2, 3, 4)))
        await running.backend.until(lambda: len(running.backend.unsubscribed) > 2)
        assert running.service.sessions["c"].filters
        await receive(client, 1, 2, 3, 4)
        await client.silent()
        running.backend.not_removable.clear()
        assert await client.rest() == []


async def test_members_of_a_shared_subscription(bridge: Any, restart: Any) -> None:
    """All of them end when its backlog has been received, including a disconnected one."""

    def shared(backend: Any, *numbers: int) -> list[Any]:
        return [backend.publication(number, 1, client_id=NAME, user_data="1 RAP") for number in numbers]

    async with bridge(LIMITS) as running:
        member = await subscriber(running, "one", SHARE)
        two = await subscriber(running, "two", SHARE)
        two.send(Disconnect())
        await running.until(lambda: "two" not in running.service.clients)
        running.backend.deliver(*shared(running.backend, 1, 2, 3, 4))
        await unsubscribed(running, (NAME, SHARE))
        member.vanish()
        await running.until(lambda: "one" not in running.service.clients)
        backend = restart(running.backend)
        backend.lying = shared(backend, 1, 2, 3, 4)
    async with bridge(LIMITS, backend=backend) as running:
        assert not backend.removed
        two = await running.open()
        two.send(Connect("two", clean_session=False))
        assert await two.receive() == Connack(0, True)
        await receive(two, 1, 2, 3)
        assert {*running.service.sessions} == {"one", "two"}
        await receive(two, 4)
        assert await two.rest() == []
        await running.until(lambda: not running.service.sessions)
        assert not running.service.delivery.shares


async def test_a_new_member_takes_over_a_shared_subscription_that_ends(bridge: Any) -> None:
    async with bridge(LIMITS) as running:
        old = await subscriber(running, "old", SHARE)
        old.send(Disconnect())
        await running.until(lambda: "old" not in running.service.clients)
        numbers = (1, 2, 3)
        running.backend.deliver(
            *(running.backend.publication(number, 1, client_id=NAME, user_data="1 RAP") for number in numbers)
        )
        await unsubscribed(running, (NAME, SHARE))
        new = await running.connect("new")
        new.send(Subscribe(1, ((SHARE, 1),)))
        assert await new.receive() == Suback(1, (1,))
        await receive(new, 1, 2, 3)
        await new.silent()
        running.backend.deliver(running.backend.publication(4, 1, client_id=NAME, user_data="1 RAP"))
        await receive(new, 4)


@pytest.mark.parametrize("owner", ["c", NAME])
async def test_a_message_that_the_dead_letter_queue_rejects_waits(bridge: Any, owner: str) -> None:
    """It keeps its place, and the session ends: no accepted message is lost."""
    letters: list[DeadLettered] = []

    def listen(events: EventBus) -> None:
        events.subscribe(DeadLettered, letters.append)

    async with bridge(LIMITS | {"waiting_full": "dead-letter"}, listeners=[listen]) as running:
        client = await subscriber(running, "c", "t" if owner == "c" else SHARE)

        def deliver(*numbers: int) -> None:
            running.backend.deliver(
                *(running.backend.publication(n, 1, client_id=owner, user_data="1") for n in numbers)
            )

        deliver(1, 2, 3, 4)
        assert [(transmission.msg_number, reason) for transmission, reason in running.backend.dead] == [(4, 2056)]
        assert [(letter.transmission.msg_number, letter.reason) for letter in letters] == [(4, 2056)]
        running.backend.takes_dead_letters = False
        deliver(5, 6)
        await unsubscribed(running, ("c", "t") if owner == "c" else (NAME, SHARE))
        await receive(client, 1, 2, 3, 5, 6)
        assert await client.rest() == []
        assert len(letters) == 1


async def test_limits_apply_after_a_reload(bridge: Any) -> None:
    """A lower limit does not move waiting messages, and a change from `refuse` accepts publications again."""
    async with bridge(LIMITS | {"waiting_full": "refuse"}) as running:
        client = await subscriber(running, "c")
        client.send(Disconnect())
        await running.until(lambda: "c" not in running.service.clients)
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2, 3)))
        assert running.backend.full == [("c", True)]
        limits = running.service.limits.model_copy(update={"waiting_full": "dead-letter", "waiting_bytes": 1024})
        running.service.use_limits(limits)
        assert running.backend.full == [("c", True), ("c", False)]
        running.backend.deliver(running.backend.publication(4, 1))
        assert [transmission.msg_number for transmission, _ in running.backend.dead] == [4]
        again = await running.open()
        again.send(Connect("c", clean_session=False))
        assert await again.receive() == Connack(0, True)
        await receive(again, 1, 2, 3)
        await again.silent()


async def test_owners_within_their_share_of_the_total_are_not_affected(bridge: Any) -> None:
    limits = LIMITS | {"waiting_bytes": 100_000, "waiting_total": 3000}
    async with bridge(limits) as running:
        for name in ("large", "small"):
            client = await subscriber(running, name)
            client.send(Disconnect())
        await running.until(lambda: not running.service.clients)
        publication = running.backend.publication
        running.backend.deliver(*(publication(number, 1, client_id="large") for number in (1, 2, 3, 4)))
        running.backend.deliver(publication(5, 1, client_id="small"), publication(6, 1, client_id="large"))
        await unsubscribed(running, ("large", "t"))
        running.backend.deliver(publication(7, 1, client_id="small"))
        assert not running.service.sessions["small"].ending
