"""Clients that keep working while the bridge is killed, and a check that nothing was lost."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading

from tests.helpers.bridge_process import BridgeProcess
from tests.helpers.exactly_once import DurableSubscriber, Publisher, first_deliveries, repeated
from tests.helpers.patience import PATIENCE
from tests.helpers.raw_client import ConnectionClosed


def verify(received: list[tuple[str, int]], publisher: Publisher, qos: int) -> None:
    """Check that all acknowledged messages exist, each topic is in order, and with QoS 2 no message is duplicated."""
    missing = publisher.acknowledged - {number for _, number in received}
    assert not missing, f"{len(missing)} acknowledged messages are lost: {sorted(missing)[:20]}"
    if qos == 2:
        again = repeated(received)
        assert not again, f"{len(again)} messages came more than once: {again[:20]}"
    for topic, numbers in first_deliveries(received).items():
        wrong = [(number, other) for number, other in itertools.pairwise(numbers) if number > other]
        assert not wrong, f"{topic} is out of order at {wrong[:10]}"


class Restless(threading.Thread):
    """Run a client in a separate thread until `until` is set, across kills of the bridge and cuts of its own connection."""

    def __init__(
        self, client: Publisher | DurableSubscriber, bridge: BridgeProcess, seed: int, until: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        self._one = client
        self._bridge = bridge
        self._chance = random.Random(seed)
        self._until = until
        self.cuts = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._until.is_set():
                try:
                    self._one.connect(self._bridge.port)
                    self._work()
                except (ConnectionClosed, ConnectionError):
                    # The bridge is being killed or started. The client retries at once, like an impatient device.
                    self._until.wait(0.01)
                self._one.close()
        except BaseException as failure:
            self.failure = failure

    def _work(self) -> None:
        while not self._until.is_set():
            if isinstance(self._one, Publisher) and self._one.finished:
                self._until.wait(PATIENCE)
                return
            with contextlib.suppress(TimeoutError):
                self._one.step(0.2)
            if self._chance.random() < 0.01:
                self.cuts += 1
                return
