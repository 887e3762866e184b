"""The will (MQTT 3.1.1 section 3.1.2.5): when it is published, and with which MQ message."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Will


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("payload", [b"gone", b""], ids=["payload", "empty"])
async def test_a_will_is_a_publication_of_the_client(bridge: Any, qos: int, retain: bool, payload: bytes) -> None:
    async with bridge() as running:
        client = await running.connect("sensor", will=Will("will/t", payload, qos, retain), user_name="meter")
        client.vanish()
        await running.backend.until(lambda: bool(running.backend.entered))
        ((message, retained),) = running.backend.entered
        assert (message.topic, message.payload, message.qos, message.client_id) == ("will/t", payload, qos, "sensor")
        assert retained is retain
        assert message.md.Persistence == (1 if qos else 0)
        assert message.md.UserIdentifier == b"meter"
        assert b"<msgid" not in message.data


@pytest.mark.parametrize("clean_session", [False, True])
async def test_no_will_after_disconnect(bridge: Any, clean_session: bool) -> None:
    """MQTT-3.14.4-3"""
    async with bridge() as running:
        client = await running.connect(will=Will("will", b""), clean_session=clean_session)
        client.send(Disconnect())
        assert await client.rest() == []
        second = await running.connect("second")
        second.send(Publish("t", b"later", 1, False, False, 1))
        assert await second.receive() == Puback(1)
        assert running.backend.payloads() == [b"later"]


async def test_a_will_is_published_once(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(will=Will("will", b"w"), clean_session=False)
        client.send(b"\x00\x00")
        await client.rest()
        second = await running.open()
        second.send(Connect("c", clean_session=False))
        assert await second.receive() == Connack(0, True)
        second.vanish()
        third = await running.connect("third")
        third.send(Publish("t", b"later", 1, False, False, 1))
        await third.receive()
        assert running.backend.payloads() == [b"w", b"later"]


async def test_earlier_publications_precede_the_will(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(will=Will("will", b"will"))
        client.send(*(Publish("t", b"%d" % number, 1, False, False, number) for number in range(1, 20)), b"\x00\x00")
        await client.rest()
        await running.backend.until(lambda: len(running.backend.entered) == 20)
        assert running.backend.payloads() == [b"%d" % number for number in range(1, 20)] + [b"will"]


async def test_a_will_rejected_by_mq_has_no_other_effect(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.refused["will"] = 2051
        client = await running.connect(will=Will("will", b"", 2))
        client.vanish()
        await running.backend.until(lambda: bool(running.backend.refusals))
        other = await running.connect()
        await other.silent()
