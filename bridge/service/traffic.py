"""Traffic: what clients and the bridge send one another, counted a batch at a time where there are metrics.

It is told by `bridge.service.units` itself and is no observer: this is done for each message, and is compiled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bridge.administration.histogram import Histogram
from bridge.archive.events import now_us
from bridge.mapping.telemetry.message import PublicationMessage
from bridge.mapping.telemetry.transmission import Transmission
from bridge.mq.unit_of_work import Completion
from bridge.mqtt.in_flight import Outgoing
from bridge.mqtt.session import Session, Work
from bridge.service.put_time import put_time_of

#: Batches of a channel and version whose latency is measured between two ticks, at most, each way: at full load the others
#: are only counted.
TIMED: Final = 50


class Way:
    """Publications of one direction, and the bytes of their payloads, by QoS."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = [0, 0, 0]
        self.size = [0, 0, 0]


class ClientTraffic:
    """What the clients of one channel and version of MQTT have sent and got; latencies in seconds, by QoS."""

    __slots__ = (
        "acknowledgement",
        "clients",
        "connects",
        "deliveries_timed",
        "delivery",
        "put",
        "puts_timed",
        "received",
        "resent",
        "sent",
    )

    def __init__(self) -> None:
        #: that are connected
        self.clients = 0
        #: that were let in
        self.connects = 0
        self.received = Way()
        self.sent = Way()
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
        #: messages that were not sent, by the words of `bridge.mqtt.outbox` for it
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

    def published(self, session: Session, work: Work, completion: Completion) -> None:
        """Count publications of a client whose unit of work has ended."""
        traffic = self.of(session)
        publications, way = work.publications, traffic.received
        qos: int = publications[0][0].qos
        size = 0
        for message, _ in publications:
            if message.qos != qos:
                # Seldom: a batch has one QoS nearly always.
                size = 0
                for one, _ in publications:
                    way.messages[one.qos] += 1
                    way.size[one.qos] += len(one.payload)
                break
            size += len(message.payload)
        else:
            way.messages[qos] += len(publications)
            way.size[qos] += size
        if completion.failure:
            self.failed[session.channel, completion.failure] += 1
            return
        if traffic.puts_timed < TIMED:
            traffic.puts_timed += 1
            traffic.put[qos].observe((now_us() - work.received_at) / 1e6)
        if completion.refusals:
            for reason in completion.refusals.values():
                self.refused[session.channel, reason] += 1
        if completion.diverted:
            self.diverted.update(completion.diverted.values())

    def acknowledged(self, session: Session, work: Work) -> None:
        """Count messages that a client has acknowledged; the session has not forgotten yet what they are."""
        traffic = self.of(session)
        way = traffic.sent
        in_flight = session.outbox.in_flight
        size = 0
        if work.acknowledged and not work.rejected:
            for _, transmission in work.acknowledged:
                message = transmission.message
                # As `_size` does, without the call.
                size += len(message.payload) if type(message) is PublicationMessage else message.length
            way.messages[1] += len(work.acknowledged)
            way.size[1] += size
        else:
            for message_id, transmission in work.acknowledged:
                rejected = in_flight.get(message_id)
                level = 1 if rejected is None else rejected.qos
                way.messages[level] += 1
                way.size[level] += _size(transmission)
        if work.released:
            size = 0
            for _, _, transmission in work.released:
                message = transmission.message
                size += len(message.payload) if type(message) is PublicationMessage else message.length
            way.messages[2] += len(work.released)
            way.size[2] += size
        if in_flight.resent:
            self.resent(session)
        if traffic.deliveries_timed >= TIMED:
            return
        traffic.deliveries_timed += 1
        outgoing: Outgoing | None
        if work.acknowledged:
            message_id, transmission = work.acknowledged[0]
            outgoing = in_flight.get(message_id)
        else:
            _, outgoing, transmission = work.released[0]
        if outgoing is None:
            return
        received = work.received_at / 1e6
        traffic.acknowledgement[outgoing.qos].observe(received - self._offset - outgoing.sent_at)
        put_time = put_time_of(transmission)
        if put_time:
            traffic.delivery[outgoing.qos].observe(received - put_time)

    def finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        """Count messages that wait for no acknowledgement; those that are `discarded`, by number, were not sent."""
        if discarded:
            self.discarded.update(discarded.values())
            done = [one for one in done if one.msg_number not in discarded]
            if not done:
                return
        traffic = self.of(session)
        size = 0
        for transmission in done:
            message = transmission.message
            size += len(message.payload) if type(message) is PublicationMessage else message.length
        traffic.sent.messages[0] += len(done)
        traffic.sent.size[0] += size
        if traffic.deliveries_timed < TIMED:
            traffic.deliveries_timed += 1
            put_time = put_time_of(done[0])
            if put_time:
                traffic.delivery[0].observe(time.time() - put_time)


    def resent(self, session: Session) -> None:
        """Count what a client was sent again since the last time."""
        in_flight = session.outbox.in_flight
        self.of(session).resent += in_flight.resent
        in_flight.resent = 0


def _size(transmission: Transmission) -> int:
    """Return the bytes of a message for a client; of one that no client has published, all behind its MQMD."""
    message = transmission.message
    return len(message.payload) if type(message) is PublicationMessage else message.length
