"""A publisher and a subscriber that must not be affected."""

from __future__ import annotations

import threading
import time

from bridge.mqtt.packets import Puback, Publish
from tests.helpers.raw_client import RawClient


class Pair:
    """Send QoS 1 publications one after the other, each after the arrival of the previous one."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pair")
        #: seconds of each from PUBLISH to delivery
        self.latencies: list[float] = []
        #: errors that they noticed
        self.error: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop both, and wait for their end."""
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
