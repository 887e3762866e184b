"""Acknowledged messages on a queue manager behind a slow network: how many are delivered again after kill -9."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.exactly_once import DurableSubscriber, Publisher, repeated
from tests.helpers.remote_bridge import RemoteBridgeProcess

#: Messages, those received before the kill, and limits.removal_backlog.
COUNT, KILLED_AFTER, LIMIT = 800, 500, 100
DELAY_US = 5_000


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_a_kill_repeats_at_most_the_removal_backlog(tmp_path: Path, qos: int) -> None:
    """Each removal takes a round trip, so deliveries would be far ahead of them without the limit."""
    limits = f"limits: {{removal_backlog: {LIMIT}, in_flight: 20}}\n"
    bridge = RemoteBridgeProcess(tmp_path, config=limits, env={"MQI_STANDIN_DELAY_US": str(DELAY_US)}).start()
    try:
        subscriber = DurableSubscriber("keeper", "crash/#", qos)
        subscriber.connect(bridge.port)
        subscriber.close()
        publisher = Publisher("sender", ["crash/1"], COUNT, qos)
        publisher.connect(bridge.port)
        while not publisher.finished:
            publisher.step()
        publisher.disconnect()
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < KILLED_AFTER:
            subscriber.step()
        bridge.kill()
        subscriber.close()
        bridge.start()
        subscriber.connect(bridge.port)
        while len(subscriber.numbers) < COUNT:
            subscriber.step()
        again = repeated(subscriber.received)
        assert len(again) <= (LIMIT if qos == 1 else 0)
        print(f"QoS {qos}: {len(again)} of {KILLED_AFTER} messages were delivered again")
    finally:
        bridge.discard()
