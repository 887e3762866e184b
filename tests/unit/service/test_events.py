"""Events that the service publishes during the life of a client, and failing handlers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from bridge.service.events import (
    ClientConnected,
    ClientDisconnected,
    CredentialsRejected,
    Event,
    EventBus,
    MessagesDropped,
    SessionEnded,
)
from bridge.wire import cmqc


def note_all(bus: EventBus, published: list[str]) -> None:
    for event in Event.__subclasses__():
        bus.subscribe(event, lambda event: published.append(type(event).__name__))


def fail_all(bus: EventBus) -> None:
    def fail(event: Event) -> None:
        raise RuntimeError("out of order")

    for event in Event.__subclasses__():
        bus.subscribe(event, fail)


async def life_of_a_client(running: Any) -> None:
    before = len(running.backend.removed)
    client = await running.connect("c")
    client.send(Subscribe(1, (("t", 1),)))
    assert await client.receive() == Suback(1, (1,))
    client.send(Publish("t", b"x", 1, False, False, 2))
    assert await client.receive() == Puback(2)
    running.backend.deliver(running.backend.publication(7, 1), running.backend.publication(8, 0))
    assert [(await client.receive()).payload for _ in range(2)] == [b"7", b"8"]
    client.send(Puback(7))
    await running.backend.until(lambda: len(running.backend.removed) == before + 2)
    client.send(Unsubscribe(3, ("t",)))
    assert await client.receive() == Unsuback(3)
    client.send(Disconnect())
    assert await client.rest() == []
    await running.until(lambda: not running.service.sessions)


async def test_each_event_is_published(bridge: Any) -> None:
    published: list[str] = []
    async with bridge(listeners=[lambda bus: note_all(bus, published)]) as running:
        await life_of_a_client(running)
        rejected = await running.connect("r")
        running.backend.refused["bad"] = cmqc.MQRC_Q_FULL
        running.backend.deliver(running.backend.publication(8, 1, client_id="r"))
        await rejected.receive()
        rejected.send(Publish("bad", b"x", 1, False, False, 1))
        assert await rejected.rest() == []
        unnamed = await running.open()
        unnamed.send(Connect("", clean_session=False))
        assert [type(packet) for packet in await unnamed.rest()] == [Connack]
        running.backend.deliver(running.backend.publication(9, 1, client_id="gone"))
        running.backend.deliver(running.backend.direct(10, client_id="nobody"))
        await running.until(lambda: "c" not in running.service.sessions and not running.service.sessions)
    assert published[:1] == ["Recovered"]
    life = [event.__name__ for event in (ClientConnected, ClientDisconnected, SessionEnded)]
    assert [name for name in published if name in life] == life * 2
    # Clients do not authenticate here: tests/acceptance/test_authentication.py and test_ownership.py cover that.
    # test_client_history.py covers messages that are dropped.
    missing = {CredentialsRejected.__name__, MessagesDropped.__name__}
    assert set(published) == {event.__name__ for event in Event.__subclasses__()} - missing


async def test_a_failing_handler_affects_nothing_and_is_logged_each_time(
    bridge: Any, caplog: pytest.LogCaptureFixture
) -> None:
    published: list[str] = []
    with caplog.at_level(logging.ERROR):
        async with bridge(listeners=[fail_all, lambda bus: note_all(bus, published)]) as running:
            await life_of_a_client(running)
            await life_of_a_client(running)
    logged = [record for record in caplog.records if "MQB0007E" in record.getMessage()]
    assert len(logged) == len(published) > 0
    assert all(record.exc_info for record in logged)


def test_an_unsubscribed_handler_gets_no_events() -> None:
    class Subscriber:
        channels: list[str]

        def __init__(self) -> None:
            self.channels = []

        def note(self, event: CredentialsRejected) -> None:
            self.channels.append(event.channel)

    bus, first, second = EventBus(), Subscriber(), Subscriber()
    for subscriber in (first, second):
        bus.subscribe(CredentialsRejected, subscriber.note)
    bus.publish(CredentialsRejected("A"))
    bus.unsubscribe(second)
    bus.publish(CredentialsRejected("B"))
    assert (first.channels, second.channels) == (["A", "B"], ["A"])
