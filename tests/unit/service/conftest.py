"""The telemetry service on a real event loop and real sockets, before a queue manager that does what a test tells it.

Tests are coroutines; each runs on an event loop of its own. Nothing sleeps: a test waits for packets, for the end of a
connection, or for the queue manager to be asked. "Nothing was sent" is proved by the answer to something sent later.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.mq.backend import ClientSubscription, RecoveredState
from bridge.telemetry.record import Side, StateKey
from bridge.transport import channel as channel_module
from tests.helpers.fake_backend import FakeBackend
from tests.helpers.service_bridge import Bridge


@pytest.fixture
def bridge() -> type[Bridge]:
    return Bridge


@pytest.fixture
def restart() -> Callable[[FakeBackend], FakeBackend]:
    """A queue manager with what is committed at another, after a crash: units of work that wait there are gone."""

    def make(before: FakeBackend, *subscriptions: ClientSubscription) -> FakeBackend:
        after = FakeBackend()
        after.states = dict(before.states)
        after.recovered = RecoveredState(list(before.states.values()), list(subscriptions))
        return after

    return make


@pytest.fixture
def durable_subscription() -> type[ClientSubscription]:
    return ClientSubscription


@pytest.fixture
def received_key() -> Callable[[str], StateKey]:
    return lambda client_id: StateKey(Side.RECEIVED, client_id)


@pytest.fixture
def quick_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time-outs are looked at a hundred times a second."""
    monkeypatch.setattr(channel_module, "SWEEP_INTERVAL", 0.01)
