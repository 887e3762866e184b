"""Isolation of clients: iterations of the event loop, limits for requests, and finally rejected publications."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.mq.backend import UnitOfWork
from bridge.mqtt import connection as protocol_module
from bridge.mqtt.packets import (
    Connect,
    Disconnect,
    Messages,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
)
from bridge.mqtt.writer import encode
from bridge.service import client_handler
from bridge.service import delivery as delivery_module
from bridge.service import telemetry as telemetry_module
from bridge.service import turns as turns_module
from bridge.service.client_handler import DELIVERIES_AT_A_TURN
from bridge.service.client_journal import LockedOut
from bridge.service.events import EventBus, PublicationRejected
from bridge.wire import cmqc
from tests.helpers.fake_backend import FakeBackend


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the clients of the iterations, with the numbers of their message packets."""
    noted: list[tuple[str, int]] = []
    received = client_handler.ClientHandler.received

    def note(self: Any, events: Any) -> None:
        packets = sum(len(event.packets) for event in events if isinstance(event, Messages))
        noted.append((self._client.peer.client_id, packets))
        received(self, events)

    monkeypatch.setattr(client_handler.ClientHandler, "received", note)
    return noted


async def test_an_iteration_ends_and_other_clients_are_served(
    bridge: Any, monkeypatch: pytest.MonkeyPatch, turns: Any
) -> None:
    """However much one client has sent in a segment, packets of others are processed in between, in order."""
    monkeypatch.setattr(protocol_module, "PACKETS_AT_A_TURN", 10)
    async with bridge() as running:
        greedy, modest = await running.connect("greedy"), await running.connect("modest")
        published = [Publish("t", b"%d" % number, 1, False, False, number) for number in range(1, 101)]
        greedy.send(b"".join(map(encode, published)))
        modest.send(Pingreq())
        assert await modest.receive() == Pingresp()
        assert [await greedy.receive() for _ in range(100)] == [Puback(number) for number in range(1, 101)]
        assert running.backend.payloads() == [b"%d" % number for number in range(1, 101)]
        assert len([turn for turn in turns if turn[0] == "greedy"]) >= 10


async def test_a_subscribe_uses_much_of_an_iteration(bridge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_module, "PACKETS_AT_A_TURN", 40)
    async with bridge() as running:
        client, other = await running.connect("c"), await running.connect("o")
        many = [
            Subscribe(number, tuple((f"{number}/{number_in_packet}", 0) for number_in_packet in range(50)))
            for number in range(1, 20)
        ]
        client.send(b"".join(map(encode, many)))
        other.send(Pingreq())
        assert await other.receive() == Pingresp()
        assert [await client.receive() for _ in many] == [Suback(number, (0,) * 50) for number in range(1, 20)]


# Bounds ----------------------------------------------------------------------------------------------------------------


async def test_filters_of_one_subscribe_are_limited(bridge: Any) -> None:
    async with bridge({"subscribe_filters": 3}) as running:
        client = await running.connect()
        client.send(Subscribe(1, tuple((name, 1) for name in "abcde")))
        assert await client.receive() == Suback(1, (1, 1, 1, 0x80, 0x80))


async def test_subscriptions_of_a_client_are_limited(bridge: Any) -> None:
    """An existing subscription is renewed. An ended one does not count."""
    from bridge.mqtt.packets import Unsuback, Unsubscribe

    async with bridge({"subscriptions": 2}) as running:
        client = await running.connect()
        client.send(Subscribe(1, (("a", 1), ("b", 1), ("c", 1))), Subscribe(2, (("a", 0), ("d", 0))))
        assert await client.receive() == Suback(1, (1, 1, 0x80))
        assert await client.receive() == Suback(2, (0, 0x80))
        client.send(Unsubscribe(3, ("b",)), Subscribe(4, (("d", 0),)))
        assert await client.receive() == Unsuback(3)
        assert await client.receive() == Suback(4, (0,))


async def test_silent_connections_are_closed_for_new_ones(bridge: Any) -> None:
    """Connections that send nothing do not keep others out, and connected clients stay."""
    async with bridge(max_clients=3) as running:
        first = await running.connect("first")
        silent = [await running.open(), await running.open()]
        await running.until(lambda: len(running.channel.connections) == 3)
        second = await running.connect("second")
        assert await silent[0].rest() == []
        third = await running.connect("third")
        assert await silent[1].rest() == []
        fourth = await running.open()
        from bridge.mqtt.packets import Connack

        assert await fourth.rest() == [Connack(3)]
        for client in (first, second, third):
            await client.silent()


# Publications that are refused each time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_client_that_reconnects_repeatedly_is_logged_once(
    bridge: Any, caplog: pytest.LogCaptureFixture, qos: int
) -> None:
    async with bridge() as running:
        running.backend.refused = {"bad": cmqc.MQRC_PUT_INHIBITED}
        for _ in range(6):
            client = await running.connect(clean_session=False)
            client.send(Publish("bad", b"", qos, False, False, 1))
            assert await client.rest() == []
        records = [record for record in caplog.records if "is locked out" in record.getMessage()]
        assert len(records) == 1
        assert "'c'" in records[0].getMessage() and "MQRC_PUT_INHIBITED" in records[0].getMessage()


def test_an_mqtt_5_client_is_never_reported_as_locked_out(caplog: pytest.LogCaptureFixture) -> None:
    """It gets the reason in PUBACK, and stays connected."""
    events = EventBus()
    events.attach(LockedOut())
    session, message = SimpleNamespace(client_id="c", level=5), SimpleNamespace(topic="bad")
    for _ in range(6):
        events.publish(PublicationRejected(session, message, cmqc.MQRC_PUT_INHIBITED))
    assert "is locked out" not in caplog.text


async def test_rejected_publications_of_qos_0_do_not_disconnect(bridge: Any, caplog: pytest.LogCaptureFixture) -> None:
    """They are dropped, and the client stays connected."""
    async with bridge() as running:
        running.backend.refused = {"bad": cmqc.MQRC_PUT_INHIBITED}
        client = await running.connect()
        for _ in range(6):
            client.send(Publish("bad", b"", 0, False, False, 0))
            await client.silent()
        assert "lost, because it had QoS 0" in caplog.text
        assert "is locked out" not in caplog.text


async def test_dead_letter_reasons_of_a_channel_reach_the_queue_manager(bridge: Any) -> None:
    async with bridge(refused_to_dead_letters=["MQRC_PUT_INHIBITED", "MQRC_Q_FULL"]) as running:
        client = await running.connect()
        client.send(Publish("t", b"", 1, False, False, 1))
        assert await client.receive() == Puback(1)
        (unit,) = [unit for unit in running.backend.units if unit.publications]
        assert isinstance(unit, UnitOfWork)
        assert unit.dead_letters == {cmqc.MQRC_PUT_INHIBITED, cmqc.MQRC_Q_FULL}


def wide_backend() -> FakeBackend:
    """A queue manager with many subscriptions."""
    backend = FakeBackend()
    backend.subscriptions = range(DELIVERIES_AT_A_TURN)
    return backend


async def test_an_iteration_is_limited_by_the_deliveries_that_it_causes(bridge: Any, turns: Any) -> None:
    """Each publication has thousands of subscribers. An iteration contains one of them, and others are served in between."""
    async with bridge(backend=wide_backend()) as running:
        greedy, modest = await running.connect("greedy"), await running.connect("modest")
        running.backend.weight_of_all = DELIVERIES_AT_A_TURN
        greedy.send(*(Publish("t", b"%d" % number, 1, False, False, number) for number in range(1, 21)))
        modest.send(Pingreq())
        assert await modest.receive() == Pingresp()
        assert [await greedy.receive() for _ in range(20)] == [Puback(number) for number in range(1, 21)]
    assert max(count for client_id, count in turns if client_id == "greedy") == 1


async def test_packets_wait_while_the_deliveries_of_earlier_ones_are_not_committed(bridge: Any) -> None:
    """An iteration with more deliveries than limits.pending_publication_bytes is the last one until it is committed."""
    async with bridge(backend=wide_backend()) as running:
        client, other = await running.connect(), await running.connect("other")
        running.backend.weight_of_all = DELIVERIES_AT_A_TURN
        running.backend.automatic = False
        before = len(running.backend.units)
        client.send(*(Publish("t", b"%d" % number, 1, False, False, number) for number in range(1, 4)))
        await running.backend.until(lambda: len(running.backend.units) > before)
        await other.silent()
        await other.silent()
        assert len(running.backend.units) == before + 1
        running.backend.automatic = True
        running.backend.complete_all()
        assert [await client.receive() for _ in range(3)] == [Puback(1), Puback(2), Puback(3)]


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each iteration of the event loop have time for one job."""
    monkeypatch.setattr(turns_module, "SECONDS_PER_TURN", 1e-12)


@pytest.mark.usefixtures("short_turns")
async def test_messages_for_many_sessions_are_sent_in_several_iterations(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, also for a session whose earlier messages still wait."""
    monkeypatch.setattr(delivery_module, "SENT_AT_ONCE", 1)
    async with bridge() as running:
        clients = {name: await running.connect(name) for name in "abc"}
        first = [running.backend.publication(number, 1, client_id=name) for number, name in enumerate("abc", 1)]
        second = [running.backend.publication(number, 1, client_id=name) for number, name in enumerate("abc", 11)]
        running.backend.deliver(*first)
        running.backend.deliver(*second)
        for number, client in enumerate(clients.values(), 1):
            assert [(await client.receive()).payload for _ in range(2)] == [b"%d" % number, b"%d" % (number + 10)]


@pytest.mark.usefixtures("short_turns")
async def test_waiting_messages_are_removed_with_their_session(bridge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "SENT_AT_ONCE", 1)
    async with bridge() as running:
        await running.connect("a")
        await running.connect("b")
        messages = [running.backend.publication(number, 1, client_id="ab"[number % 2]) for number in range(1, 5)]
        running.backend.deliver(*messages)
        running.service.purge(running.service.sessions["b"])
        await running.until(lambda: len(running.backend.removed) == 2)
        assert {transmission.msg_number for transmission in running.backend.removed} == {1, 3}


@pytest.mark.usefixtures("short_turns")
async def test_a_session_with_many_messages_ends_in_slices_before_its_successor_starts(
    bridge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONNACK of the new session is sent after all messages of the old one are removed, so that they are not confused."""
    monkeypatch.setattr(telemetry_module, "REMOVED_AT_ONCE", 10)
    async with bridge() as running:
        (await running.connect("c", clean_session=False)).send(Disconnect())
        await running.until(lambda: not running.service.clients)
        running.backend.deliver(*(running.backend.publication(number, 1) for number in range(1, 96)))
        other = await running.connect("other")
        before = len(running.backend.units)
        again = await running.open()
        again.send(Connect("c", clean_session=True))
        other.send(Pingreq())
        assert await other.receive() == Pingresp()
        assert (await again.receive()).return_code == 0
        assert {transmission.msg_number for transmission in running.backend.removed} == set(range(1, 96))
        slices = [len(unit.removals) for unit in running.backend.units[before:] if unit.removals]
        assert slices == [10] * 9 + [5]


@pytest.mark.usefixtures("short_turns")
async def test_clients_that_disconnect_at_once_are_handled_in_several_iterations(bridge: Any) -> None:
    async with bridge() as running:
        other = await running.connect("other")
        leaving = [await running.connect(f"leaving{number}") for number in range(20)]
        for client in leaving:
            client.vanish()
        other.send(Pingreq())
        assert await other.receive() == Pingresp()
        await running.until(lambda: list(running.service.sessions) == ["other"])
        assert list(running.service.clients) == ["other"]


@pytest.mark.usefixtures("short_turns")
async def test_a_failing_job_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    turns = turns_module.Turns()
    ran: list[int] = []
    turns.run(lambda: 1 // 0)
    for number in range(3):
        turns.run(functools.partial(ran.append, number))
    await turns.finish()
    assert ran == [0, 1, 2]
    assert "MQB0010E" in caplog.text and "ZeroDivisionError" in caplog.text
