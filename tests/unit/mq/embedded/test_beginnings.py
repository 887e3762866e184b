"""The backend of the embedded queue manager: subscriptions, and their initial retained publications."""

from __future__ import annotations

import asyncio

import pytest

from bridge.mq.backend import ClientSubscription
from bridge.wire import cmqc
from tests.helpers.embedded_service import Started, publication, unit


async def test_an_empty_retained_publication_clears_and_is_delivered(started: Started) -> None:
    """MQTT-3.3.1-10."""
    async with started() as service:
        await service.execute(unit(publication("t", b"state"), retain=True))
        await service.subscribe("c1", ("t", 1))
        await service.execute(unit(publication("t", b""), retain=True))
        assert [(transmission.message.payload, transmission.retained) for transmission in service.transmissions] == [
            (b"state", True),
            (b"", False),
        ]
        await service.subscribe("c2", ("t", 1))
        assert len(service.transmissions) == 2


async def test_retained_publications_arrive_after_the_answer_to_subscribe(started: Started) -> None:
    async with started() as service:
        await service.execute(unit(publication("a"), publication("b"), retain=True))
        for durable in (False, True):
            service.events.clear()
            await service.subscribe("c1", ("#", 1), durable=durable)
            assert service.events == [("subscribed", "c1"), ("transmission", "a"), ("transmission", "b")]


async def test_searches_for_retained_publications_are_divided_over_loop_iterations(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wildcards that match many levels but no publication are searched over many iterations, and all matches are found."""
    monkeypatch.setattr("bridge.mq.embedded.backend.VISITS_PER_TURN", 100)
    monkeypatch.setattr("bridge.mq.embedded.backend.VISITS_PER_CLIENT", 50)
    async with started() as service:
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
        # Another client's subscription does not wait for them.
        await service.subscribe("one", ("r/999/x", 0))
        while not service.transmissions:
            await service.turn()
        assert service.transmissions[0].client_id == "one"
        while len(service.transmissions) < 1_002:
            await service.turn()
        assert turns > 20


async def test_only_persistent_retained_publications_survive(started: Started) -> None:
    async with started() as service:
        await service.execute(unit(publication("hard", qos=1), publication("soft", qos=0), retain=True))
    async with started() as service:
        await service.subscribe("c1", ("#", 0))
        assert [transmission.topic for transmission in service.transmissions] == ["hard"]


async def test_subscriptions_are_rejected_individually(started: Started) -> None:
    script = "DEFINE TOPIC(CLOSED) TOPICSTR('closed') SUB(DISABLED)\nDEFINE TOPIC(BRIEF) TOPICSTR('brief') DURSUB(NO)"
    async with started(script=script) as service:
        reasons = await service.subscribe("c1", ("a", 1), ("closed/x", 1), ("brief", 1), durable=True)
        assert reasons == [cmqc.MQRC_NONE, cmqc.MQRC_SUB_INHIBITED, cmqc.MQRC_DURABILITY_NOT_ALLOWED]
        assert set(service.queue_manager.objects.topics.subscriptions) == {"c1:a"}
        assert await service.subscribe("c1", ("brief", 1)) == [cmqc.MQRC_NONE]


async def test_subscriptions_after_a_restart(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("a/#", 0), ("b:c", 2), durable=True)
        await service.subscribe("c2", ("a/#", 1))
        await service.subscribe("c1", ("a/#", 1), durable=True)
        await service.subscribe("c3", ("gone", 1), durable=True)
        await service.unsubscribe("c3", "gone", "never/there")
        await service.execute(unit(publication("a/x", b"waits")))
    async with started() as service:
        subscriptions = sorted(service.recovered.subscriptions, key=lambda subscription: subscription.topic_filter)
        assert subscriptions == [ClientSubscription("c1", "a/#", "1", True), ClientSubscription("c1", "b:c", "2", True)]
        assert [(transmission.client_id, transmission.user_data) for transmission in service.transmissions] == [
            ("c1", "1")
        ]


async def test_a_subscription_that_becomes_non_durable_does_not_survive(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("a", 1), durable=True)
        await service.subscribe("c1", ("a", 1), durable=False)
    async with started() as service:
        assert service.recovered.subscriptions == []


async def test_objects_of_clean_sessions_need_no_disk_writes(started: Started) -> None:
    async with started() as service:
        await service.subscribe("c1", ("#", 2))
        with service.failing_disk():
            written = unit(publication("t", qos=2))
            await service.execute(written)
        assert written.failure == cmqc.MQRC_NONE
        assert len(service.transmissions) == 1
