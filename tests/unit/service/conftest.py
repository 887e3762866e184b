"""The telemetry service on a real event loop and real sockets, with a queue manager that a test controls.

Tests are coroutines. Each runs on a separate event loop. Nothing sleeps: a test waits for packets, for the end of a
connection, or for a request to the queue manager. The answer to a later packet proves that nothing was sent before it.
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
    """Return a queue manager with the committed state of another one after a crash. Waiting units of work are lost."""

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
    """Check time-outs a hundred times a second."""
    monkeypatch.setattr(channel_module, "SWEEP_INTERVAL", 0.01)
