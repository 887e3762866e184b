"""Subscriptions, retained publications and their authorities, for all backends."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import pytest

from bridge.mq.backend import ClientSubscription, SubscriptionRequest
from bridge.mq.ibm import subscriber
from bridge.telemetry.subscription import SHARED, SharedSubscription, shared_subscription, subscription_data
from bridge.wire import cmqc
from tests.helpers.backend_places import TRANSMISSION_QUEUE
from tests.helpers.backend_user import Bridge, payload, publication, unit
from tests.helpers.patience import PATIENCE

#: A user without any authority. A real queue manager requires a user that the operating system knows.
USER = os.environ.get("MQBRIDGE_TEST_ALTERNATE_USER", "app")


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
async def test_a_publication_reaches_the_client_that_subscribed(bridge: Bridge, durable: bool) -> None:
    await bridge.subscribed("c1", bridge.topic("a/+"), qos=2, durable=durable)
    await bridge.run_accepted(
        unit(publication(bridge.topic("a/b"), b"data"), publication(bridge.topic("b"), b"nobody's"))
    )
    (transmission,) = await bridge.settled()
    assert (transmission.client_id, transmission.topic, transmission.user_data) == ("c1", bridge.topic("a/b"), "2")
    assert (transmission.retained, transmission.persistent, transmission.expired) == (False, True, False)
    assert payload(transmission) == b"data"


@pytest.mark.smoke
async def test_a_qos_is_altered(bridge: Bridge) -> None:
    topic = bridge.topic("a")
    for qos in (0, 2, 1):
        await bridge.subscribed("c1", topic, qos=qos)
        await bridge.run_accepted(unit(publication(topic)))
    assert [transmission.user_data for transmission in await bridge.settled()] == ["0", "2", "1"]
    assert (await bridge.restart()).subscriptions == [ClientSubscription("c1", topic, "1", True)]


@pytest.mark.smoke
async def test_unsubscribing(bridge: Bridge) -> None:
    """Unknown filters are not an error."""
    topic, other = bridge.topic("one"), bridge.topic("other")
    await bridge.subscribed("c1", topic, other)
    await bridge.subscribed("c2", topic, durable=False)
    await bridge.unsubscribe("c1", topic, bridge.topic("never"))
    await bridge.unsubscribe("c2", topic)
    await bridge.run_accepted(unit(publication(topic, b"nobody's"), publication(other, b"data")))
    assert [(each.client_id, payload(each)) for each in await bridge.settled()] == [("c1", b"data")]


async def test_subscriptions_are_rejected_individually(bridge: Bridge) -> None:
    await bridge.place.topic_object(bridge.topic("shut"), "SUB(DISABLED)")
    await bridge.place.topic_object(bridge.topic("brief"), "DURSUB(NO)")
    a, shut, brief = (bridge.topic(rest) for rest in ("a", "shut/x", "brief"))
    assert await bridge.subscribe("c1", (a, 1), (shut, 1), (brief, 1), ("x" * 10_241, 1)) == [
        cmqc.MQRC_NONE,
        cmqc.MQRC_SUB_INHIBITED,
        cmqc.MQRC_DURABILITY_NOT_ALLOWED,
        cmqc.MQRC_TOPIC_STRING_ERROR,
    ]
    assert await bridge.subscribe("c1", (brief, 1), durable=False) == [cmqc.MQRC_NONE]
    assert (await bridge.restart()).subscriptions == [ClientSubscription("c1", a, "1", True)]


async def test_durable_subscriptions_are_recovered_and_others_are_not(bridge: Bridge) -> None:
    a, b, unsubscribed = (bridge.topic(rest) for rest in ("a/#", "b:c", "gone"))
    assert await bridge.subscribe("c1", (a, 0), (b, 2)) == [0, 0]
    await bridge.subscribed("c2", a, durable=False)
    await bridge.subscribed("c3", unsubscribed)
    await bridge.unsubscribe("c3", unsubscribed)
    await bridge.run_accepted(unit(publication(bridge.topic("a/x"), b"waits")))
    recovered = await bridge.restart()
    durable = sorted(
        (subscription for subscription in recovered.subscriptions if subscription.durable),
        key=lambda subscription: subscription.topic_filter,
    )
    assert durable == [ClientSubscription("c1", a, "0", True), ClientSubscription("c1", b, "2", True)]
    await bridge.run_accepted(unit(publication(bridge.topic("a/x"), b"new")))
    mine = [payload(transmission) for transmission in await bridge.settled() if transmission.client_id == "c1"]
    assert mine == [b"waits", b"new"]
    assert b"new" not in [
        payload(transmission) for transmission in bridge.transmissions if transmission.client_id == "c2"
    ]


# Retained publications -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
async def test_retained_publications_are_sent_to_new_subscriptions(bridge: Bridge, durable: bool) -> None:
    """Another SUBSCRIBE repeats the last publication of each topic (MQTT-3.8.4-3)."""
    a, b = bridge.topic("a"), bridge.topic("b")
    await bridge.retain(publication(a, b"before"), publication(b, b"b"))
    await bridge.retain(publication(a, b"a"))
    await bridge.run_accepted(unit(publication(a, b"not retained")))
    for _ in range(2):
        await bridge.subscribed("c1", bridge.topic("#"), durable=durable)
        transmissions = list(await bridge.arrived(2))
        assert sorted(
            (payload(transmission), transmission.retained, transmission.topic) for transmission in transmissions
        ) == [(b"a", True, a), (b"b", True, b)]
        await bridge.run_accepted(unit(removals=await bridge.settled()))
        bridge.transmissions.clear()


async def test_existing_subscribers_get_a_retained_publication_without_the_flag(bridge: Bridge) -> None:
    await bridge.subscribed("c1", bridge.topic("a"))
    await bridge.retain(publication(bridge.topic("a"), b"state"))
    assert [(payload(transmission), transmission.retained) for transmission in await bridge.settled()] == [
        (b"state", False)
    ]


async def test_an_empty_retained_publication_clears_and_is_delivered(bridge: Bridge) -> None:
    """MQTT-3.3.1-10, -11."""
    topic = bridge.topic("a")
    await bridge.retain(publication(topic, b"state"))
    await bridge.subscribed("c1", topic)
    await bridge.arrived(1)
    await bridge.retain(publication(topic, b""))
    assert [(payload(transmission), transmission.retained) for transmission in await bridge.settled()] == [
        (b"state", True),
        (b"", False),
    ]
    await bridge.subscribed("c2", topic)
    assert [transmission.client_id for transmission in await bridge.settled()] == ["c1", "c1"]


async def test_retained_publications_survive_a_restart_of_the_bridge(bridge: Bridge) -> None:
    await bridge.retain(publication(bridge.topic("a"), b"state"))
    await bridge.restart()
    await bridge.subscribed("c1", bridge.topic("a"))
    assert await bridge.payloads() == [b"state"]


# Sessions that have ended --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True], ids=["clean", "durable"])
async def test_messages_of_an_ended_session_are_not_delivered(bridge: Bridge, durable: bool) -> None:
    """Not even to the next session of that client, which gets only its own messages (MQTT-3.1.2-6)."""
    old, new = bridge.topic("old"), bridge.topic("new")
    await bridge.retain(publication(new, b"retained"))
    await bridge.subscribed("c1", old, durable=durable)
    await bridge.subscribed("witness", old)
    last = unit(*(publication(old, b"%d" % number) for number in range(50)))
    bridge.submit(last)
    handed_over = len([transmission for transmission in bridge.transmissions if transmission.client_id == "c1"])
    ended = bridge.backend.unsubscribe("c1", [old], ended=True)
    await bridge.subscribed("c1", new, durable=durable)
    await bridge.ended(last)
    await bridge.run_accepted(unit(publication(old, b"nobody's"), publication(new, b"published")))
    transmissions = await bridge.settled()
    assert ended.result() == [0]
    assert [payload(transmission) for transmission in transmissions if transmission.client_id == "c1"][
        handed_over:
    ] == [b"retained", b"published"]
    assert len([transmission for transmission in transmissions if transmission.client_id == "witness"]) == 51
    mine = [transmission for transmission in transmissions if transmission.client_id == "c1"]
    await bridge.run_accepted(
        unit(removals=[transmission for transmission in transmissions if transmission.client_id == "witness"] + mine)
    )
    await bridge.flush()
    await bridge.restart()
    assert await bridge.settled() == []
    assert await bridge.place.depth(TRANSMISSION_QUEUE) == 0


async def test_a_direct_message_outlives_the_session_it_was_sent_to(bridge: Bridge) -> None:
    """It belongs to no subscription, so the next session of the client gets it."""
    topic = bridge.topic("a")
    await bridge.subscribed("c1", topic)
    bridge.backend.unsubscribe("c1", [topic], ended=True)
    await bridge.place.put("alarms", b"direct", manager="c1")
    assert await bridge.payloads() == [b"direct"]


# Authorities ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if "[real" in request.node.name and "MQBRIDGE_TEST_ALTERNATE_USER" not in os.environ:
        pytest.skip("MQBRIDGE_TEST_ALTERNATE_USER names no user without authorities")
    monkeypatch.setattr(subscriber, "ANSWER_KEPT", 0.0)
    return USER


async def grant(bridge: Bridge, whose: str, authorities: str) -> None:
    await bridge.place.command(f"SET AUTHREC {whose} AUTHADD({authorities})")
    bridge.place.at_end.append(f"DELETE AUTHREC {whose}")


async def test_the_authority_of_the_client_is_checked(bridge: Bridge, user: str) -> None:
    bridge.place.enforce_authorities()
    topic = bridge.topic("a")
    name = await bridge.place.topic_object(bridge.place.root, "")
    rights = (
        (f"PROFILE('{TRANSMISSION_QUEUE}') OBJTYPE(QUEUE)", "PUT"),
        (f"PROFILE('{name}') OBJTYPE(TOPIC)", "SUB,RESUME"),
        (f"PROFILE('{name}') OBJTYPE(TOPIC)", "PUB"),
    )
    reasons = []
    for profile, authorities in (("", ""), *rights):
        if profile:
            await grant(bridge, f"{profile} PRINCIPAL('{user}')", authorities)
        admitted = await asyncio.wait_for(bridge.backend.admit("c1", user), PATIENCE)
        (subscribed,) = await bridge.subscribe("c1", (topic, 1), user=user)
        (completion,) = await bridge.run(unit(publication(topic, user=user)))
        assert completion.failure == cmqc.MQRC_NONE
        reasons.append((admitted, subscribed, completion.refusals.get(0, 0)))
    no = cmqc.MQRC_NOT_AUTHORIZED
    assert reasons == [(no, no, no), (0, no, no), (0, 0, no), (0, 0, 0)]


async def _join(bridge: Bridge, share: SharedSubscription, member: str, user: str = "") -> list[int]:
    bridge.place.at_end.append(f"DELETE SUB('{share.subscription_name}')")
    request = [SubscriptionRequest(share.written, SHARED, retained=False)]
    name = share.remote_queue_manager
    subscribing = bridge.backend.subscribe(name, request, durable=True, user=user, member=member)
    return await asyncio.wait_for(subscribing, PATIENCE)


async def test_the_subscription_of_a_share(bridge: Bridge) -> None:
    """It is found again after a restart, and ends by its name."""
    share = shared_subscription(f"$share/g/{bridge.topic('a')}")
    name = share.remote_queue_manager
    assert [await _join(bridge, share, "c1"), await _join(bridge, share, "c2")] == [[0], [0]]
    await bridge.run_accepted(unit(publication(share.topic_filter)))
    (message,) = await bridge.settled()
    assert (message.client_id, message.user_data) == (name, SHARED.user_data)
    recovered = await bridge.restart()
    assert ClientSubscription(name, share.written, SHARED.user_data, True) in recovered.subscriptions
    await bridge.unsubscribe(name, share.written, ended=True)
    assert name not in {subscription.client_id for subscription in (await bridge.restart()).subscriptions}


async def test_the_authority_of_each_member_of_a_share_is_checked(bridge: Bridge, user: str) -> None:
    """Even if the subscription already exists."""
    share = shared_subscription(f"$share/g/{bridge.topic('a')}")
    assert await _join(bridge, share, "c1") == [0]
    bridge.place.enforce_authorities()
    assert await _join(bridge, share, "c2", user) == [cmqc.MQRC_NOT_AUTHORIZED]


async def test_answers_for_one_client_have_the_order_of_its_requests(bridge: Bridge, user: str) -> None:
    bridge.place.enforce_authorities()
    answers: list[tuple[str, int]] = []
    for who in (user, "", user, ""):
        admission = bridge.backend.admit("c1", who)
        admission.add_done_callback(lambda answer, who=who: answers.append((who, answer.result())))  # type: ignore[misc]
    await asyncio.wait_for(bridge.backend.admit("c1", user), PATIENCE)
    assert [who for who, _ in answers] == [user, "", user, ""]
    assert [reason for who, reason in answers if who] == [cmqc.MQRC_NOT_AUTHORIZED] * 2


async def test_all_messages_of_a_subscription_are_handed_over_before_its_end_is_reported(bridge: Bridge) -> None:
    """Including messages whose units of work are in progress at the time of the request."""
    topic = bridge.topic("a")
    await bridge.subscribed("c1", topic)
    units = [unit(publication(topic, b"%d" % number)) for number in range(20)]
    bridge.submit(*units)
    await asyncio.wait_for(bridge.backend.unsubscribe("c1", [topic], handed_over=True), PATIENCE)
    before = len(bridge.transmissions)
    await bridge.ended(*units)
    assert len(await bridge.settled()) == before


async def test_durable_subscriptions_are_authorized_for_another_user_and_stay_as_they_are(
    bridge: Bridge, user: str
) -> None:
    topic = bridge.topic("a")
    name = await bridge.place.topic_object(bridge.place.root, "")
    await bridge.retain(publication(topic, b"retained"))
    await bridge.subscribed("c1", topic, qos=2)
    assert [payload(transmission) for transmission in await bridge.settled()] == [b"retained"]
    bridge.place.enforce_authorities()
    requests = [SubscriptionRequest(topic, subscription_data("2"), retained=False)]
    ask = partial(bridge.backend.authorize, "c1", requests, user=user, changed=True)
    assert await asyncio.wait_for(ask(), PATIENCE) == [cmqc.MQRC_NOT_AUTHORIZED]
    profiles = {
        f"PROFILE('{TRANSMISSION_QUEUE}') OBJTYPE(QUEUE)": "PUT",
        f"PROFILE('{name}') OBJTYPE(TOPIC)": "PUB,SUB,RESUME",
    }
    for profile, authorities in profiles.items():
        await grant(bridge, f"{profile} PRINCIPAL('{user}')", authorities)
    assert await asyncio.wait_for(ask(), PATIENCE) == [cmqc.MQRC_NONE]
    await bridge.run_accepted(unit(publication(topic, b"live", user=user)))
    assert [(payload(transmission), transmission.user_data) for transmission in await bridge.settled()] == [
        (b"retained", "2"),
        (b"live", "2"),
    ]
