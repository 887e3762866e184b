"""Observers are told of what happens, and one that fails costs messages nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from bridge.mqtt.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from bridge.service.observers import Observer, Observers
from bridge.wire import cmqc

EVENTS = [name for name in vars(Observer) if not name.startswith("_")]


class Notes(Observer):
    """Notes the names of events in their order."""

    def __init__(self) -> None:
        self.names: list[str] = []


def _noting(name: str) -> Callable[..., None]:
    def note(self: Notes, *event: Any) -> None:
        self.names.append(name)

    return note


for _name in EVENTS:
    setattr(Notes, _name, _noting(_name))


class Failing(Observer):
    """Fails at every event."""


def _failing(self: Failing, *event: Any) -> None:
    raise RuntimeError("out of order")


for _name in EVENTS:
    setattr(Failing, _name, _failing)


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


async def test_what_is_told(bridge: Any) -> None:
    notes = Notes()
    async with bridge(observers=[notes]) as running:
        await life_of_a_client(running)
        refused = await running.connect("r")
        running.backend.refused["bad"] = cmqc.MQRC_Q_FULL
        running.backend.deliver(running.backend.publication(8, 1, client_id="r"))
        await refused.receive()
        refused.send(Publish("bad", b"x", 1, False, False, 1))
        assert await refused.rest() == []
        unnamed = await running.open()
        unnamed.send(Connect("", clean_session=False))
        assert [type(one) for one in await unnamed.rest()] == [Connack]
        running.backend.deliver(running.backend.publication(9, 1, client_id="gone"))
        running.backend.deliver(running.backend.direct(10, client_id="nobody"))
        await running.until(lambda: "c" not in running.service.sessions and not running.service.sessions)
    assert notes.names[:1] == ["begin"]
    assert [name for name in notes.names if name in ("connected", "disconnected", "ended")] == [
        "connected", "disconnected", "ended", "connected", "disconnected", "ended",
    ]  # fmt: skip
    # Clients do not authenticate here: tests/acceptance/test_authentication.py and test_ownership.py cover that.
    assert set(notes.names) == set(EVENTS) - {"authentication_failed", "session_refused"}


async def test_an_observer_that_fails_costs_nothing_and_is_logged_once(
    bridge: Any, caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    with caplog.at_level(logging.ERROR):
        async with bridge(observers=[Failing(), notes]) as running:
            await life_of_a_client(running)
            await life_of_a_client(running)
    assert {"connected", "published", "acknowledged", "finished", "subscribed", "unsubscribed"} <= set(notes.names)
    told = [record for record in caplog.records if "an observer fails" in record.message]
    assert len(told) == len({record.message for record in told}) > 0


def test_only_what_an_observer_overrides_is_asked_of_it() -> None:
    class One(Observer):
        def __init__(self) -> None:
            self.ends = 0

        def disconnected(self, session: Any) -> None:
            self.ends += 1

    one = One()
    observers = Observers([one])
    observers.connected(None)  # type: ignore[arg-type]
    observers.disconnected(None)  # type: ignore[arg-type]
    assert one.ends == 1
