"""A publisher and a subscriber who must not notice what goes on beside them."""

from __future__ import annotations

import threading
import time

from bridge.mqtt.packets import Puback, Publish
from tests.helpers.raw_client import RawClient


class Pair:
    """Sends one QoS 1 publication after the other, each when the one before it has arrived."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pair")
        #: seconds that each took from PUBLISH to delivery
        self.latencies: list[float] = []
        #: what they noticed
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Have them end, and wait for that."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with (
                RawClient(self._port, "pair-publisher") as publisher,
                RawClient(self._port, "pair-subscriber") as subscriber,
            ):
                for client in (publisher, subscriber):
                    assert client.connect().return_code == 0
                subscriber.subscribe(("pair/topic", 1))
                number = 0
                while not self._ends.wait(0.005):
                    number += 1
                    before = time.monotonic()
                    publisher.send(Publish("pair/topic", b"%d" % number, 1, False, False, number % 65535 + 1))
                    arrived = subscriber.expect(Publish)
                    self.latencies.append(time.monotonic() - before)
                    assert (arrived.topic, bytes(arrived.payload)) == ("pair/topic", b"%d" % number), arrived
                    subscriber.send(Puback(arrived.packet_id))
                    publisher.expect(Puback)
        except Exception as error:
            self.error = error
