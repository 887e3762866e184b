"""Acknowledged messages on a queue manager over a slow network: how many are repeated after kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config.models import LimitsConfig
from tests.helpers.exactly_once import DurableSubscriber, Publisher, repeated
from tests.helpers.remote_bridge import RemoteBridgeProcess

#: limits.removal_backlog (None: the default), messages, and those received before the kill.
LIMITS = {"100": (100, 800, 500), "default": (None, 1_500, 1_000)}
DELAY_US = 5_000


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("library", ["ibmmq", "pymqi"])
def test_a_kill_repeats_at_most_the_removal_backlog(tmp_path: Path, qos: int, limit: str, library: str) -> None:
    """Each removal takes a round trip, so deliveries would be far ahead of removals without the limit."""
    backlog, count, killed_after = LIMITS[limit]
    limits = (
        "limits: {in_flight: 20}\n" if backlog is None else f"limits: {{removal_backlog: {backlog}, in_flight: 20}}\n"
    )
    env = {"MQI_STANDIN_DELAY_US": str(DELAY_US)}
    bridge = RemoteBridgeProcess(tmp_path, library=library, config=limits, env=env).start()
    try:
        subscriber = DurableSubscriber("keeper", "crash/#", qos)
        subscriber.connect(bridge.port)
        subscriber.close()
        publisher = Publisher("sender", ["crash/1"], count, qos)
        publisher.connect(bridge.port)
        while not publisher.finished:
            publisher.step()
        publisher.disconnect()
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < killed_after:
            subscriber.step()
        bridge.kill()
        subscriber.close()
        bridge.start()
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < count:
            subscriber.step()
        again = repeated(subscriber.received)
        assert len(again) <= ((backlog or LimitsConfig().removal_backlog) if qos == 1 else 0)
        print(f"QoS {qos}: {len(again)} of {killed_after} messages were delivered again")
    finally:
        bridge.discard()
