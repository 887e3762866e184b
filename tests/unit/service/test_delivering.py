"""Delivery of messages from the transmission queue: they are removed after the client has received them, and not before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.mqtt.packets import Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from bridge.service.events import DeadLettered
from bridge.telemetry.removal_limit import LONG_LAG
from bridge.wire import cmqc
from tests.helpers.fake_backend import FakeBackend


def sent(number: int, qos: int, *, dup: bool = False, payload: bytes | None = None, retain: bool = False) -> Publish:
    content = b"%d" % number if payload is None else payload
    return Publish("t", content, qos, retain, dup, number & 0xFFFF if qos else 0)


async def test_qos_2_is_removed_after_pubrec_and_released_after_that(bridge: Any) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        message = running.backend.publication(1, 2)
        running.backend.deliver(message)
        assert await client.receive() == sent(1, 2)
        running.backend.complete_all()
        running.backend.automatic = False
        client.send(Pubrec(1))
        await running.backend.until(lambda: bool(running.backend.waiting))
        await client.silent()
        running.backend.complete_all()
        assert running.backend.removed == [message]
        assert await client.receive() == Pubrel(1)
        client.send(Pubcomp(1))
        await running.backend.until(lambda: bool(running.backend.waiting))
        assert 1 in running.service.sessions["c"].outbox.in_flight.deliveries
        running.backend.complete_all()
        assert not running.service.sessions["c"].outbox.in_flight.deliveries


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_client_gets_no_messages_while_too_many_are_not_removed(
    bridge: Any, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    monkeypatch.setattr(FakeBackend, "removes_at_once", False)
    async with bridge({"removal_backlog": 2}) as running:
        client = await running.connect(clean_session=False)
        running.backend.complete_all()
        running.backend.automatic = False
        running.backend.deliver(*(running.backend.publication(number, qos) for number in (1, 2, 3)))
        for number in (1, 2):
            assert await client.receive() == sent(number, qos)
            if qos:
                client.send(Puback(number) if qos == 1 else Pubrec(number))
        outbox = running.service.sessions["c"].outbox
        await running.backend.until(lambda: outbox.unremoved == 2)
        await client.silent()
        running.backend.complete_all()
        if qos == 2:
            assert [await client.receive(), await client.receive()] == [Pubrel(1), Pubrel(2)]
        assert await client.receive() == sent(3, qos)
        assert [transmission.msg_number for transmission in running.backend.removed][:2] == [1, 2]


async def test_the_limit_of_unremoved_messages_is_lowered_while_removals_lag(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBackend, "removes_at_once", False)
    async with bridge({"removal_backlog": 100}) as running:
        delivery = running.service.delivery
        assert delivery.applied_removal_limit == 100
        delivery.note_removal_lag(LONG_LAG + 1)
        assert delivery.applied_removal_limit == 50


async def test_a_queue_manager_that_removes_messages_at_once_has_no_limit_of_unremoved_messages(bridge: Any) -> None:
    async with bridge({"removal_backlog": 100}) as running:
        assert running.service.delivery.applied_removal_limit is None


@pytest.mark.parametrize("acknowledgement", [Puback(1), Pubrec(1)], ids=["QoS 1", "QoS 2"])
async def test_the_record_of_a_packet_identifier_does_not_wait_for_the_removal_of_acknowledged_messages(
    bridge: Any, acknowledgement: Any
) -> None:
    async with bridge({"in_flight": 1}) as running:
        client = await running.connect(clean_session=False)
        qos = 1 if isinstance(acknowledgement, Puback) else 2
        running.backend.deliver(*(running.backend.publication(number, qos) for number in (0x10001, 0x20001)))
        assert (await client.receive()).packet_id == 1
        running.backend.complete_all()
        running.backend.automatic = False
        client.send(acknowledgement)
        await running.backend.until(lambda: bool(running.backend.waiting))
        running.backend.complete()
        assert (await client.receive()).packet_id == 2
        assert running.backend.removed == []


async def test_the_record_of_a_packet_identifier_does_not_wait_for_the_removal_of_messages_with_qos_0(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBackend, "removes_at_once", False)
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.complete_all()
        running.backend.automatic = False
        batch = [(0x10001, 1), (0x10005, 0), (0x20001, 1)]
        running.backend.deliver(*(running.backend.publication(number, qos) for number, qos in batch))
        assert [(await client.receive()).packet_id for _ in (1, 2)] == [1, 0]
        await running.backend.until(lambda: bool(running.backend.waiting))
        running.backend.complete()
        assert (await client.receive()).packet_id == 2
        assert running.backend.removed == []


async def test_a_client_whose_packet_identifiers_cannot_be_recorded_is_disconnected_and_gets_the_messages_later(
    bridge: Any,
) -> None:
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.complete_all()
        running.backend.failure = cmqc.MQRC_Q_FULL
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (0x10001, 0x20001)))
        assert [packet.packet_id for packet in await client.rest()] == [1]
        running.backend.failure = 0
        again = await running.connect(clean_session=False)
        assert [(await again.receive()).packet_id for _ in (1, 2)] == [1, 2]


async def test_the_limit_of_unremoved_messages_changes_by_a_reload(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBackend, "removes_at_once", False)
    async with bridge({"removal_backlog": 1}) as running:
        client = await running.connect()
        running.backend.automatic = False
        running.service.use_limits(running.service.limits.model_copy(update={"removal_backlog": 2}))
        running.backend.deliver(*(running.backend.publication(number, 1) for number in (1, 2)))
        assert [await client.receive(), await client.receive()] == [sent(1, 1), sent(2, 1)]


async def test_while_removals_lag_clients_with_many_messages_wait(bridge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeBackend, "removes_at_once", False)
    async with bridge({"removal_backlog": 20}) as running:
        busy, other = await running.connect("busy"), await running.connect("other")
        running.backend.automatic = False
        running.backend.on_removed(LONG_LAG + 1)
        running.backend.deliver(*(running.backend.publication(number, 1, client_id="busy") for number in range(1, 21)))
        running.backend.deliver(running.backend.publication(21, 1, client_id="other"))
        assert await other.receive() == sent(21, 1)
        assert [await busy.receive() for _ in range(10)] == [sent(number, 1) for number in range(1, 11)]
        await busy.silent()
        running.backend.automatic = True
        busy.send(*(Puback(number) for number in range(1, 11)))
        assert [await busy.receive() for _ in range(10)] == [sent(number, 1) for number in range(11, 21)]


@pytest.mark.parametrize(("qos", "wrong"), [(1, Pubrec(4)), (1, Pubcomp(4)), (2, Puback(4)), (2, Pubcomp(4))], ids=str)
async def test_an_invalid_acknowledgement_closes_the_connection(bridge: Any, qos: int, wrong: Any) -> None:
    """MQTT 3.1.1 section 4.8. Earlier packets count, and the message stays."""
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.deliver(running.backend.publication(3, 1), running.backend.publication(4, qos))
        await client.receive(), await client.receive()
        client.send(Puback(3), wrong, Publish("t", b"", 1, False, False, 9))
        assert await client.rest() == []
        assert [transmission.msg_number for transmission in running.backend.removed] == [3]
        assert not running.backend.entered


async def test_a_message_that_cannot_be_dead_lettered_is_not_reported_as_dead_lettered(
    bridge: Any, monkeypatch: Any
) -> None:
    async with bridge() as running:
        reported: list[Any] = []
        running.service.events.subscribe(DeadLettered, reported.append)
        monkeypatch.setattr(running.backend, "dead_letter", lambda *_arguments: False)
        client = await running.connect()
        bad = running.backend.publication(1, 1)
        bad.message = None
        running.backend.deliver(bad, running.backend.publication(2, 1))
        assert await client.receive() == sent(2, 1)
        assert not reported


async def test_an_iteration_sends_a_limited_number_of_bytes_to_a_client(bridge: Any) -> None:
    """Memory is not filled for a client that does not read. A client that reads gets everything, in order."""
    async with bridge({"pending_bytes": 50_000}) as running:
        client = await running.connect()
        running.backend.deliver(
            *(running.backend.publication(number, 0, payload=bytes(40_000)) for number in range(1, 21))
        )
        assert running.service.sessions["c"].outbox.backlog
        for _ in range(20):
            assert isinstance(await client.receive(), Publish)
        assert running.service.sessions["c"].outbox.dropped == 0


@pytest.mark.usefixtures("quick_sweep")
@pytest.mark.parametrize("level", [3, 4])
async def test_messages_are_sent_again_to_mqtt_3_1_clients_only(bridge: Any, level: int) -> None:
    async with bridge({"retry_interval": 0.02}) as running:
        client = await running.open()
        client.send(Connect("c", {3: "MQIsdp", 4: "MQTT"}[level], level))
        await client.receive()
        running.backend.deliver(running.backend.publication(1, 1))
        assert await client.receive() == sent(1, 1)
        if level == 3:
            assert await client.receive() == sent(1, 1, dup=True)
            assert await client.receive() == sent(1, 1, dup=True)
            client.send(Puback(1))
            await running.backend.until(lambda: bool(running.backend.removed))
        else:
            old = await running.open()
            old.send(Connect("old", "MQIsdp", 3))
            await old.receive()
            running.backend.deliver(running.backend.publication(2, 1, client_id="old"))
            assert [(await old.receive()).dup for _ in range(3)] == [False, True, True]
            await client.silent()


async def test_messages_of_a_clean_session_end_with_it(bridge: Any) -> None:
    async with bridge({"in_flight": 2}) as running:
        client = await running.connect()
        queue = [running.backend.publication(number, 1 + number % 2) for number in range(1, 6)]
        running.backend.deliver(*queue)
        await client.receive(), await client.receive()
        client.vanish()
        await running.backend.until(lambda: len(running.backend.removed) == 5)
        again = await running.connect()
        await again.silent()


# Messages that no client can take -------------------------------------------------------------------------------------


async def test_a_direct_message_for_an_unknown_client_is_dead_lettered(bridge: Any) -> None:
    """MQRC_UNKNOWN_REMOTE_Q_MGR: each client identifier is a remote queue manager name."""
    async with bridge() as running:
        client = await running.connect()
        message = running.backend.direct(1, client_id="nobody")
        running.backend.deliver(message, running.backend.direct(2))
        assert await client.receive() == Publish("command", b"", 2, False, False, 2)
        assert running.backend.dead == [(message, 2087)]
        assert not running.backend.removed


async def test_a_publication_for_an_ended_session_is_deleted(bridge: Any) -> None:
    async with bridge() as running:
        message = running.backend.publication(1, 2, client_id="nobody")
        running.backend.deliver(message)
        await running.backend.until(lambda: running.backend.removed == [message])
        assert not running.backend.dead


@pytest.mark.parametrize("away", [False, True])
async def test_a_message_that_cannot_be_a_publication_is_dead_lettered(bridge: Any, away: bool) -> None:
    """MQRC_RFH_ERROR. Later messages are delivered."""
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        if away:
            client.send(Disconnect())
            await client.rest()
        bad = running.backend.direct(1, body=b"rubbish", format_=b"MQHRF2")
        running.backend.deliver(bad, running.backend.direct(2, body=b"good"))
        if away:
            client = await running.open()
            client.send(Connect("c", clean_session=False))
            await client.receive()
        assert await client.receive() == Publish("command", b"good", 2, False, False, 2)
        assert running.backend.dead == [(bad, 2334)]


# Window and slow clients ----------------------------------------------------------------------------------------------


async def test_a_client_that_does_not_read_loses_qos_0_and_costs_no_memory(bridge: Any) -> None:
    big = bytes(100_000)
    async with bridge({"pending_bytes": 200_000}) as running:
        slow = await running.connect("slow")
        quick = await running.connect("quick")
        slow.writer.transport.pause_reading()
        session = running.service.sessions["slow"]
        number = 0
        while not session.outbox.dropped:
            number += 1
            running.backend.deliver(running.backend.publication(number, 0, client_id="slow", payload=big))
            running.backend.deliver(running.backend.publication(number, 0, client_id="quick"))
            assert await quick.receive() == sent(number, 0)
            assert number < 1000
        transport = running.service.clients["slow"].transport._transport
        held = transport.get_write_buffer_size()
        assert 200_000 <= held < 200_000 + 110_000
        for _ in range(100):
            number += 1
            running.backend.deliver(running.backend.publication(number, 0, client_id="slow", payload=big))
        running.backend.deliver(running.backend.publication(60_001, 1, client_id="slow", payload=b"reliable"))
        assert transport.get_write_buffer_size() == held
        assert len(session.outbox.backlog) == 1 and session.outbox.dropped == 101
        await quick.silent()
        slow.writer.transport.resume_reading()
        while (packet := await slow.receive()) != sent(60_001, 1, payload=b"reliable"):
            assert isinstance(packet, Publish) and packet.qos == 0
        slow.send(Puback(60_001))
        await running.backend.until(
            lambda: any(transmission.msg_number == 60_001 for transmission in running.backend.removed)
        )
        await slow.silent()


async def test_requests_of_a_client_that_does_not_read_its_answers_are_not_read(bridge: Any) -> None:
    async with bridge({"pending_bytes": 50_000}) as running:
        client = await running.connect()
        client.writer.transport.pause_reading()
        publication = running.backend.publication
        running.backend.deliver(*(publication(number, 0, payload=bytes(1_000_000)) for number in range(1, 19)))
        await running.until(lambda: running.connection._held)
        client.writer.transport.resume_reading()
        client.send(Publish("t", b"", 1, False, False, 9))
        packets = [await client.receive() for _ in range(19)]
        assert sum(isinstance(packet, Puback) for packet in packets) == 1
        await running.until(lambda: not running.connection._held)


# Unusual message ids --------------------------------------------------------------------------------------------------


async def test_an_unusual_message_id_is_used_after_its_own_record_is_committed(bridge: Any) -> None:
    """Earlier units of work do not count."""
    async with bridge() as running:
        client = await running.connect(clean_session=False)
        running.backend.deliver(running.backend.publication(5, 2))
        assert await client.receive() == sent(5, 2)
        await client.silent()
        running.backend.complete_all()
        running.backend.automatic = False
        client.send(Publish("t", b"", 1, False, False, 1))
        await running.backend.until(lambda: len(running.backend.waiting) == 1)
        running.backend.deliver(running.backend.publication(0x1_0005, 2))
        assert len(running.backend.waiting) == 2
        running.backend.complete()
        assert await client.receive() == Puback(1)
        await client.silent()
        running.backend.complete()
        assert await client.receive() == Publish("t", b"65541", 2, False, False, 6)


async def test_publishers_wait_while_the_bridge_is_behind_on_a_nearly_full_transmission_queue(bridge: Any) -> None:
    """They do not wait for a queue full of messages that the bridge has read, because clients must receive these."""
    async with bridge({"pending_publication_bytes": 1}) as running:
        backend, limits = running.backend, running.service.delivery.backlog_limits
        limits.max_depth = 100
        client, other = await running.connect("c"), await running.connect("other")
        for depth, unread, waits in ((95, 0, False), (40, 40, False), (50, 40, True)):
            backend.depth, backend.unread = depth, unread
            before = len(backend.entered)
            await client.publish("first")
            client.send(Publish("second", b"", 1, False, False, 2))
            await other.silent()
            if waits:
                assert len(backend.entered) == before + 1
                backend.unread = 0
            assert await client.receive() == Puback(2)
            assert len(backend.entered) == before + 2


async def test_publishers_wait_while_messages_are_moved_from_a_nearly_full_transmission_queue(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is unread: the bridge browses messages as fast as they arrive, but dead-letters them more slowly."""
    async with bridge({"pending_publication_bytes": 1}) as running:
        backend, delivery = running.backend, running.service.delivery
        delivery.backlog_limits.max_depth = 100
        moves: list[Callable[[bool], None]] = []
        monkeypatch.setattr(backend, "dead_letter", lambda _transmission, _reason, on_done: moves.append(on_done))
        client, other = await running.connect("c"), await running.connect("other")
        backend.depth = 95
        for number in range(3):
            delivery.dead_letter(backend.publication(number, 2, client_id="slow"), cmqc.MQRC_Q_SPACE_NOT_AVAILABLE)
        await client.publish("first")
        client.send(Publish("second", b"", 1, False, False, 2))
        await other.silent()
        assert len(backend.entered) == 1
        for moved in moves:
            moved(True)
        assert await client.receive() == Puback(2)
        assert len(backend.entered) == 2
