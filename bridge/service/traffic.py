"""Traffic: what clients and the bridge send one another, where there are metrics.

Publications are counted by sessions as they pass (`bridge.telemetry.outbox`): later, what each holds would have to be
fetched again from memory. What becomes of them is told by `bridge.service.units` a batch at a time; this is no observer, for
observers are not compiled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bridge.administration.histogram import Histogram
from bridge.archive.events import now_us
from bridge.mq.backend import Completion
from bridge.service.put_time import put_time_of
from bridge.telemetry.outbox import Outgoing, PublicationCounts
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.telemetry.transmission import Transmission

#: Batches of a channel and version whose latency is measured between two ticks, at most, each way: at full load the others
#: go by.
TIMED: Final = 50


class ClientTraffic:
    """What the clients of one channel and version of MQTT have sent and got; latencies in seconds, by QoS."""

    __slots__ = (
        "acknowledgement",
        "clients",
        "connects",
        "counts",
        "deliveries_timed",
        "delivery",
        "put",
        "puts_timed",
        "resent",
    )

    def __init__(self) -> None:
        #: that are connected
        self.clients = 0
        #: that were let in
        self.connects = 0
        #: what passes
        self.counts = PublicationCounts()
        #: PUBLISH with DUP set
        self.resent = 0
        self.put = [Histogram(), Histogram(), Histogram()]
        self.acknowledgement = [Histogram(), Histogram(), Histogram()]
        self.delivery = [Histogram(), Histogram(), Histogram()]
        #: batches whose latency was measured since the last tick
        self.puts_timed = 0
        self.deliveries_timed = 0


class Traffic:
    """Counts for one telemetry service. Everything is called on its event loop; `clock` is the service's."""

    __slots__ = ("_clock", "_offset", "clients", "discarded", "diverted", "failed", "refused")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: what the time of day is ahead of the clock
        self._offset = time.time() - clock()
        #: by channel and protocol level
        self.clients: dict[tuple[str, int], ClientTraffic] = {}
        #: publications that the queue manager refused, and units of work that failed, by channel and MQRC
        self.refused: Counter[tuple[str, int]] = Counter()
        self.failed: Counter[tuple[str, int]] = Counter()
        #: publications that went to the dead-letter queue instead, by MQRC
        self.diverted: Counter[int] = Counter()
        #: messages that were not sent, by the words of `bridge.telemetry.outbox` for it
        self.discarded: Counter[str] = Counter()

    def tick(self) -> None:
        """Measure latencies anew; called twice a second. The time of day may have been set meanwhile."""
        self._offset = time.time() - self._clock()
        for traffic in self.clients.values():
            traffic.puts_timed = traffic.deliveries_timed = 0

    def of(self, session: Session) -> ClientTraffic:
        """Return the counts that the client of a session belongs to."""
        key = session.channel, session.level
        found = self.clients.get(key)
        if found is None:
            found = self.clients[key] = ClientTraffic()
        return found

    def published(self, session: Session, effects: ReceiveEffects, completion: Completion) -> None:
        """Note publications of a client whose unit of work has ended."""
        if completion.failure:
            self.failed[session.channel, completion.failure] += 1
            return
        traffic = self.of(session)
        if traffic.puts_timed < TIMED:
            traffic.puts_timed += 1
            qos: int = effects.publications[0][0].qos
            traffic.put[qos].observe((now_us() - effects.received_at) / 1e6)
        if completion.refusals:
            for reason in completion.refusals.values():
                self.refused[session.channel, reason] += 1
        if completion.diverted:
            self.diverted.update(completion.diverted.values())

    def acknowledged(self, session: Session, effects: ReceiveEffects) -> None:
        """Note messages that a client has acknowledged; the session has not forgotten yet what they are."""
        if session.outbox.resent:
            self.resent(session)
        traffic = self.of(session)
        if traffic.deliveries_timed >= TIMED:
            return
        traffic.deliveries_timed += 1
        outgoing: Outgoing | None
        if effects.acknowledged:
            message_id, transmission = effects.acknowledged[0]
            outgoing = session.outbox.in_flight.deliveries.get(message_id)
        else:
            _, outgoing, transmission = effects.released[0]
        if outgoing is None:
            return
        received = effects.received_at / 1e6
        traffic.acknowledgement[outgoing.qos].observe(received - self._offset - outgoing.sent_at)
        put_time = put_time_of(transmission)
        if put_time:
            traffic.delivery[outgoing.qos].observe(received - put_time)

    def finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        """Note messages that wait for no acknowledgement; those that are `discarded`, by number, were not sent."""
        traffic = self.of(session)
        traffic.counts.sent_0 += len(done) - len(discarded)
        if discarded:
            self.discarded.update(discarded.values())
            return
        if traffic.deliveries_timed < TIMED:
            traffic.deliveries_timed += 1
            put_time = put_time_of(done[0])
            if put_time:
                traffic.delivery[0].observe(time.time() - put_time)

    def resent(self, session: Session) -> None:
        """Count what a client was sent again since the last time."""
        self.of(session).resent += session.outbox.resent
        session.outbox.resent = 0
