"""PUBLISH from a client: acknowledged after MQ has committed it, and accepted once with QoS 2."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel


def publish(qos: int, packet_id: int = 1, payload: bytes = b"p", *, topic: str = "t", dup: bool = False) -> Publish:
    return Publish(topic, payload, qos, False, dup, packet_id if qos else 0)


ACKNOWLEDGEMENT = {1: Puback, 2: Pubrec}


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("clean_session", [False, True])
async def test_acknowledged_after_the_commit(bridge: Any, qos: int, clean_session: bool) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=clean_session)
        running.backend.automatic = False
        client.send(publish(qos, 5))
        await running.backend.until(lambda: bool(running.backend.waiting))
        await client.silent()
        running.backend.complete()
        assert running.backend.payloads() == [b"p"]
        assert await client.receive() == ACKNOWLEDGEMENT[qos](5)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_retain_is_passed_to_mq(bridge: Any, qos: int) -> None:
    async with bridge() as running:
        client = await running.connect()
        client.send(Publish("t", b"", qos, True, False, 1 if qos else 0), publish(qos, 2))
        await running.backend.until(lambda: len(running.backend.entered) == 2)
        assert [retain for _, retain in running.backend.entered] == [True, False]


async def test_order_of_publications_and_answers_is_kept(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.automatic = False
        for number in range(1, 31):
            client.send(publish(1 + number % 2, number, b"%d" % number))
            await running.backend.until(lambda number=number: len(running.backend.waiting) == number)
        running.backend.complete_all()
        assert running.backend.payloads() == [b"%d" % number for number in range(1, 31)]
        assert [(await client.receive()).packet_id for _ in range(30)] == list(range(1, 31))


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_rejected_publication_closes_the_connection_without_an_answer(bridge: Any, qos: int) -> None:
    """MQTT 3.1.1 has no negative PUBACK. Others in the same segment are answered."""
    async with bridge() as running:
        running.backend.refused["denied"] = 2035
        client = await running.connect(clean_session=False)
        client.send(publish(1, 1, b"1"), publish(qos, 2, b"2", topic="denied"), publish(1, 3, b"3"))
        assert await client.rest() == [Puback(1), Puback(3)]
        assert running.backend.payloads() == [b"1", b"3"]


async def test_a_rejected_publication_with_qos_0_has_no_other_effect(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.refused["denied"] = 2051
        client = await running.connect()
        client.send(publish(0, topic="denied"), publish(1, 2))
        assert await client.receive() == Puback(2)
        await client.silent()
        assert len(running.backend.entered) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_rejected_publication_with_qos_2_is_new_when_it_is_repeated(
    bridge: Any, moment: str, received_key: Any
) -> None:
    """Whether its client is connected when the result is known, or not."""
    async with bridge() as running:
        running.backend.refused["t"] = 2053
        client = await running.connect(clean_session=False)
        running.backend.automatic = False
        client.send(publish(2, 7))
        await running.backend.until(lambda: bool(running.backend.waiting))
        if moment == "before":
            client.vanish()
            await running.until(lambda: not running.channel.connections)
        running.backend.automatic = True
        running.backend.complete_all()
        if moment == "after":
            assert await client.rest() == []
        assert received_key("c") not in running.backend.states
        running.backend.refused.clear()
        again = await running.open()
        again.send(Connect("c", clean_session=False), publish(2, 7, dup=True))
        assert [await again.receive(), await again.receive()] == [Connack(0, True), Pubrec(7)]
        assert running.backend.payloads() == [b"p"]


async def test_a_rejected_publication_is_never_recorded_as_received(bridge: Any, received_key: Any) -> None:
    """The record is committed together with the rejection. A crash after it must not lose the publication."""
    async with bridge() as running:
        running.backend.refused["denied"] = 2053
        client = await running.connect(clean_session=False)
        running.backend.automatic = False
        client.send(publish(2, 6), publish(2, 7, topic="denied"))
        await running.backend.until(lambda: bool(running.backend.waiting))
        running.backend.complete()
        assert running.backend.states[received_key("c")].received == [6]


async def test_a_publication_that_cannot_be_committed(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.failure = 2102
        client.send(publish(1, 1), publish(2, 2))
        assert await client.rest() == []
        running.backend.failure = 0
        again = await running.open()
        again.send(Connect("c", clean_session=False), publish(1, 1, dup=True), publish(2, 2, dup=True))
        assert [await again.receive() for _ in range(3)] == [Connack(0, True), Puback(1), Pubrec(2)]
        assert len(running.backend.entered) == 2


# QoS 2: once ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reconnected", [False, True])
@pytest.mark.parametrize("clean_session", [False, True])
async def test_a_repeated_publication_is_not_acknowledged_before_the_first_is_committed(
    bridge: Any, reconnected: bool, clean_session: bool
) -> None:
    if reconnected and clean_session:
        pytest.skip("a clean session has no second connection")
    async with bridge() as running:
        client = await running.connect(clean_session=clean_session)
        running.backend.automatic = False
        client.send(publish(2, 3))
        await running.backend.until(lambda: bool(running.backend.waiting))
        if reconnected:
            client.vanish()
            client = await running.open()
            client.send(Connect("c", clean_session=False))
            await running.backend.until(lambda: running.service.clients["c"].session is None)
            running.backend.complete_all()
            assert await client.receive() == Connack(0, True)
        client.send(publish(2, 3, dup=True))
        await running.backend.until(lambda: len(running.backend.waiting) == (1 if reconnected else 2))
        await client.silent()
        running.backend.complete_all()
        assert await client.receive() == Pubrec(3)
        assert running.backend.payloads() == [b"p"]


async def test_a_repeated_pubrel_is_not_answered_before_the_first_is_committed(bridge: Any) -> None:
    """PUBCOMP allows the client to reuse the message id, so the record must be deleted before."""
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        client.send(publish(2, 3))
        await client.receive()
        running.backend.automatic = False
        client.send(Pubrel(3))
        await running.backend.until(lambda: bool(running.backend.waiting))
        client.send(Pubrel(3))
        await running.backend.until(lambda: len(running.backend.waiting) == 2)
        await client.silent()
        running.backend.complete_all()
        assert [await client.receive(), await client.receive()] == [Pubcomp(3), Pubcomp(3)]


@pytest.mark.parametrize("released", [False, True])
async def test_qos_2_across_a_crash(bridge: Any, restart: Any, released: bool) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        client.send(publish(2, 3))
        assert await client.receive() == Pubrec(3)
        if released:
            client.send(Pubrel(3))
            assert await client.receive() == Pubcomp(3)
        backend = restart(running.backend)
    async with bridge(backend=backend) as running:
        client = await running.open()
        client.send(Connect("c", clean_session=False), publish(2, 3, dup=not released))
        assert [await client.receive(), await client.receive()] == [Connack(0, True), Pubrec(3)]
        assert len(running.backend.entered) == (1 if released else 0)
        client.send(Pubrel(3))
        assert await client.receive() == Pubcomp(3)


async def test_answers_go_to_the_connection_of_the_request(bridge: Any) -> None:
    """A PUBACK for the old connection would count as the answer to a new publication with the same message id."""
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.automatic = False
        client.send(publish(1, 3, b"old"))
        await running.backend.until(lambda: bool(running.backend.waiting))
        client.vanish()
        again = await running.open()
        again.send(Connect("c", clean_session=False))
        await running.backend.until(lambda: running.service.clients["c"].session is None)
        running.backend.complete_all()
        assert await again.receive() == Connack(0, True)
        again.send(publish(1, 3, b"new"))
        await running.backend.until(lambda: bool(running.backend.waiting))
        await again.silent()
        running.backend.complete_all()
        assert await again.receive() == Puback(3)
        assert running.backend.payloads() == [b"old", b"new"]


# Flow control ---------------------------------------------------------------------------------------------------------


async def test_the_bridge_stops_reading_from_a_client_with_too_much_uncommitted_work(bridge: Any) -> None:
    async with bridge({"pending_publication_bytes": 10_500}) as running:
        client = await running.connect()
        other = await running.connect("other")
        running.backend.automatic = False
        connection = running.service.clients["c"].transport
        for number in range(1, 12):
            assert not connection._held
            client.send(publish(1, number))
            await running.backend.until(lambda number=number: len(running.backend.units) >= number + 2)
        assert connection._held
        client.send(publish(1, 12))
        await other.silent()
        assert len(running.backend.units) == 13
        for _ in range(5):
            running.backend.complete()
            assert connection._held
        running.backend.complete()
        assert not connection._held
        await running.backend.until(lambda: len(running.backend.units) == 14)
        running.backend.complete_all()
        assert [(await client.receive()).packet_id for _ in range(12)] == list(range(1, 13))


async def test_the_bridge_stops_reading_from_a_client_with_too_many_bytes_before_connack(bridge: Any) -> None:
    async with bridge() as running:
        running.backend.automatic = False
        client = await running.open()
        client.send(Connect("c"))
        await running.backend.until(lambda: bool(running.backend.waiting))
        client.send(*(publish(1, number, bytes(10_000)) for number in range(1, 21)))
        await running.until(lambda: running.connection._held)
        running.backend.automatic = True
        running.backend.complete_all()
        assert await client.receive() == Connack(0)
        assert [(await client.receive()).packet_id for _ in range(20)] == list(range(1, 21))


async def test_a_stopping_channel_finishes_its_work_and_accepts_no_more(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.automatic = False
        client.send(publish(1, 1))
        await running.backend.until(lambda: bool(running.backend.waiting))
        running.channel.stop_listening()
        client.send(publish(1, 2))
        running.backend.complete_all()
        assert await client.receive() == Puback(1)
        assert running.connection._held
        running.backend.automatic = True
        await running.channel.close()
        assert await client.rest() == []
        assert len(running.backend.entered) == 1
        with pytest.raises(OSError, match=r"."):
            await running.open()


async def test_publications_of_a_disconnected_client_are_committed(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect()
        running.backend.automatic = False
        client.send(publish(1, 1), publish(0, 0, b"last"), Disconnect())
        assert await client.rest() == []
        running.backend.complete_all()
        assert running.backend.payloads() == [b"p", b"last"]
