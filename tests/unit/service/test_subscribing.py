"""SUBSCRIBE and UNSUBSCRIBE: several filters, rejections by the bridge and by MQ, DEFAULT.QoS, and the end of a session."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from bridge.mqtt.reason_codes import ReasonCode
from bridge.mqtt.topics import TOPIC_LEVELS
from bridge.wire import cmqc

REFUSED = 0x80


async def test_each_filter_of_a_subscribe_has_its_answer(bridge: Any) -> None:
    """SUBACK has 0x80 for filters that the bridge or MQ rejects. The others are subscribed to."""
    async with bridge() as running:
        running.backend.refused["denied"] = 2035
        client = await running.connect()
        topics = (("a", 0), ("/" * TOPIC_LEVELS, 1), ("denied", 2), ("+/b", 1), ("$queue/a", 0), ("#", 2))
        client.send(Subscribe(7, topics))
        assert await client.receive() == Suback(7, (0, REFUSED, REFUSED, 1, REFUSED, 2))
        assert running.backend.subscribed == [("c", "a", 0, False), ("c", "+/b", 1, False), ("c", "#", 2, False)]


async def test_suback_waits_for_the_commit(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.automatic = False
        client.send(Subscribe(1, (("a", 1),)))
        await running.backend.until(lambda: bool(running.backend.waiting))
        await client.silent()
        running.backend.complete_all()
        assert await client.receive() == Suback(1, (1,))
        assert running.backend.subscribed == [("c", "a", 1, True)]


async def test_a_subscription_that_cannot_be_committed(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.failure = 2102
        client.send(Subscribe(1, (("a", 1), ("b", 0))))
        assert await client.receive() == Suback(1, (REFUSED, REFUSED))


async def test_publications_before_a_subscribe_are_put_first(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.automatic = False
        client.send(
            Publish("t", b"1", 1, False, False, 1), Subscribe(2, (("t", 1),)), Publish("t", b"2", 1, False, False, 3)
        )
        await running.backend.until(lambda: len(running.backend.waiting) == 3)
        running.backend.complete()
        assert running.backend.payloads() == [b"1"] and not running.backend.subscribed
        assert await client.receive() == Puback(1)
        running.backend.complete()
        assert running.backend.payloads() == [b"1"] and running.backend.subscribed
        assert await client.receive() == Suback(2, (1,))
        running.backend.complete()
        assert await client.receive() == Puback(3)


async def test_unsubscribing_from_a_root_keeps_its_subtree(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        client.send(Subscribe(1, (("a", 1), ("a/#", 1))), Unsubscribe(2, ("a",)))
        assert [await client.receive(), await client.receive()] == [Suback(1, (1, 1)), Unsuback(2)]
        assert running.backend.unsubscribed == [("c", "a")]
        client.send(Unsubscribe(3, ("a/#", "never/subscribed", "b")))
        assert await client.receive() == Unsuback(3)
        assert running.backend.unsubscribed[1:] == [("c", "a/#"), ("c", "never/subscribed"), ("c", "b")]


async def test_unsuback_waits_for_the_commit(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.automatic = False
        client.send(Unsubscribe(1, ("a",)))
        await running.backend.until(lambda: bool(running.backend.waiting))
        await client.silent()
        running.backend.complete_all()
        assert await client.receive() == Unsuback(1)


@pytest.mark.parametrize("how", ["disconnect", "vanish"])
async def test_subscriptions_of_a_clean_session_end_with_it(bridge: Any, how: str) -> None:
    async with bridge() as running:
        client = await running.connect()
        client.send(Subscribe(1, (("a", 1), ("b", 1), ("c", 1))), Unsubscribe(2, ("c",)))
        await client.receive(), await client.receive()
        running.backend.unsubscribed.clear()
        if how == "vanish":
            client.vanish()
        else:
            client.send(Disconnect())
        await running.backend.until(lambda: len(running.backend.unsubscribed) == 2)
        assert sorted(running.backend.unsubscribed) == [("c", "a"), ("c", "b")]


async def test_a_subscription_in_progress_ends_with_its_clean_session(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.automatic = False
        client.send(Subscribe(1, (("a", 1),)))
        await running.backend.until(lambda: bool(running.backend.waiting))
        client.vanish()
        await running.backend.until(lambda: len(running.backend.waiting) > 1)
        running.backend.complete_all()
        assert running.backend.subscribed == [("c", "a", 1, False)]
        assert running.backend.unsubscribed == [("c", "a")]


async def test_subscriptions_of_a_durable_session_stay(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        client.send(Subscribe(1, (("a", 1),)), Disconnect())
        await client.rest()
        assert running.backend.subscribed == [("c", "a", 1, True)]
        assert not running.backend.unsubscribed
        await running.connect("c")  # a clean one
        assert running.backend.unsubscribed == [("c", "a")]
        assert not running.backend.states


async def test_default_qos(bridge: Any) -> None:
    """Integration table 4: a client changes the QoS of direct messages by subscribing to DEFAULT.QoS."""
    async with bridge() as running:
        client = await running.connect()

        async def qos_of_a_direct_message(number: int) -> int:
            running.backend.deliver(running.backend.direct(number))
            packet = await client.receive()
            assert isinstance(packet, Publish) and packet.topic == "command"
            return packet.qos

        assert await qos_of_a_direct_message(1) == 2
        for number, qos in enumerate((0, 1, 2, 0), 2):
            client.send(Subscribe(number, (("DEFAULT.QoS", qos),)))
            assert await client.receive() == Suback(number, (qos,))
            assert await qos_of_a_direct_message(number) == qos
        client.send(Unsubscribe(9, ("DEFAULT.QoS",)))
        assert await client.receive() == Unsuback(9)
        assert await qos_of_a_direct_message(9) == 2


async def test_default_qos_of_a_durable_session_survives_a_restart(
    bridge: Any, restart: Any, durable_subscription: Any
) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        client.send(Subscribe(1, (("DEFAULT.QoS", 1),)))
        await client.receive()
        backend = restart(running.backend, durable_subscription("c", "DEFAULT.QoS", "1", True))
    async with bridge(backend=backend) as running:
        client = await running.open()
        running.backend.deliver(running.backend.direct(5))
        client.send(Connect("c", clean_session=False))
        assert await client.receive() == Connack(0, True)
        packet = await client.receive()
        assert isinstance(packet, Publish) and packet.qos == 1


async def test_a_client_stays_subscribed_if_the_queue_manager_does_not_remove_the_subscription(bridge: Any) -> None:
    """Before MQTT 5, UNSUBACK has no reason code. The bridge closes the connection instead."""
    async with bridge() as running:
        running.backend.not_removable["a"] = cmqc.MQRC_NOT_AUTHORIZED
        client = await running.connect(clean_session=False)
        client.send(Subscribe(1, (("a", 1), ("b", 1))))
        assert await client.receive() == Suback(1, (1, 1))
        client.send(Unsubscribe(2, ("b", "a")))
        assert await client.rest() == []
        assert list(running.service.sessions["c"].filters) == ["a"]


async def test_unsuback_has_the_reason_why_a_subscription_is_not_removed(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.not_removable["a"] = cmqc.MQRC_NOT_AUTHORIZED
        client = await running.connect("c", protocol_level=5)
        await client.subscribe("a", "b")
        client.send(Unsubscribe(2, ("b", "a", "c")))
        codes = (ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED, ReasonCode.NO_SUBSCRIPTION_EXISTED)
        assert await client.receive() == Unsuback(2, codes)
        assert list(running.service.sessions["c"].filters) == ["a"]
