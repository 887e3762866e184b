"""Time from publish to receipt at a low, steady rate, so that no queue builds up."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterable

from tests.benchmarks import frames
from tests.benchmarks.channel import BrokerGone, Channel
from tests.benchmarks.load import SUBSCRIBER, Publisher, Subscriber
from tests.benchmarks.tally import Tally

PATIENCE = 3.0
"""Seconds to wait for the last messages."""


def percentile(ordered: list[float], share: float) -> float:
    """Return the smallest value that is at least as large as `share` of the sorted samples."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Pace(Tally):
    """A tally that also records the arrival time of each message."""

    def __init__(self, count: int) -> None:
        super().__init__(1)
        self.arrivals = [0.0] * count
        self.now = 0.0

    def add(self, stamps: Iterable[tuple[int, ...]]) -> None:
        """Count messages, and record the time of this read for each new one."""
        batch = list(stamps)
        for _, sequence in batch:
            self.arrivals[sequence] = self.arrivals[sequence] or self.now
        super().add(batch)


class Trickle:
    """One publisher at a steady rate and one subscriber."""

    def __init__(self, *, port: int, qos: int, durable: bool, rate: float, seconds: float, payload: int) -> None:
        self.port, self.qos, self.durable, self.rate = port, qos, durable, rate
        self.count = max(1, int(rate * seconds))
        self.shape = frames.Shape(qos, payload)

    def run(self) -> dict[str, object]:
        """Publish on schedule. Return percentiles in milliseconds."""
        receiving = Channel(self.port, SUBSCRIBER, clean=not self.durable)
        sending = None
        try:
            receiving.subscribe("bench/#", self.qos)
            sending = Channel(self.port, "bench-publisher-0")
            return self._measure(receiving, sending)
        finally:
            for channel in (receiving, sending):
                if channel is not None:
                    channel.close()
            if self.durable:
                with contextlib.suppress(OSError, BrokerGone):
                    Channel(self.port, SUBSCRIBER, clean=True).close()

    def _measure(self, receiving: Channel, sending: Channel) -> dict[str, object]:
        pace = Pace(self.count)
        subscriber = Subscriber(receiving, self.shape, pace)
        publisher = Publisher(sending, self.shape.stream(0, self.count), self.shape.size, self.qos)
        clients: dict[int, Publisher | Subscriber] = {c.channel.socket.fileno(): c for c in (publisher, subscriber)}
        for client in clients.values():
            client.channel.socket.setblocking(False)
        departures: list[float] = []
        started = time.perf_counter()
        end = started + self.count / self.rate + PATIENCE
        while pace.distinct < self.count and (now := time.perf_counter()) < end:
            due = started + publisher.sent / self.rate if publisher.sent < self.count else end
            # select instead of epoll, because its timeout has a resolution of microseconds
            readable, _, _ = select.select(list(clients), (), (), max(0.0, due - now))
            pace.now = time.perf_counter()
            for number in readable:
                client = clients[number]
                client.take(client.channel.receive())
                client.channel.flush()
            if publisher.sent < self.count and time.perf_counter() >= due:
                departures.append(time.perf_counter())
                publisher.publish(1)
                sending.flush()
        latencies = sorted(1000 * (b - a) for a, b in zip(departures, pace.arrivals, strict=False) if b)
        return {
            "messages": self.count,
            "lost": self.count - len(latencies),
            "p50_ms": percentile(latencies, 0.50),
            "p90_ms": percentile(latencies, 0.90),
            "p99_ms": percentile(latencies, 0.99),
            "max_ms": latencies[-1] if latencies else float("nan"),
        }
