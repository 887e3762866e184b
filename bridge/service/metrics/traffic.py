"""Traffic: what clients and the bridge send one another, counted as observers hear of it, a batch at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bridge.administration.histogram import Histogram
from bridge.archive.events import now_us
from bridge.mapping.telemetry.transmission import Transmission
from bridge.mq.unit_of_work import Completion
from bridge.mqtt.outbox import EXPIRED, FULL, OWN, SLOW
from bridge.mqtt.session import Session, Work
from bridge.service.metrics.put_time import put_time_of
from bridge.service.metrics.reasons import connack_label, reason_label, version_label
from bridge.service.metrics.samples import Samples
from bridge.service.metrics.sizes import MIXED, acknowledged_size, received_size, sent_size
from bridge.service.observers import Observer, Publications
from bridge.wire.mqtt import ReasonCode

#: Why a message was not sent, as a label.
_DISCARDED: Final = {EXPIRED: "expired", SLOW: "slow_client", FULL: "waiting_full", OWN: "no_local"}
_SESSION_ENDED: Final = "session_ended"
_NO_SESSION: Final = "no_session"
_QOS: Final = (0, 1, 2)
#: Batches of a channel and version whose latency is measured between two ticks, at most, each way: at full load the others
#: are only counted.
TIMED: Final = 50


class Way:
    """Publications of one direction, by QoS."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages = [0, 0, 0]
        #: bytes of payloads
        self.size = [0, 0, 0]

    def add(self, qos: int, messages: int, size: int) -> None:
        """Count so many publications whose payloads have so many bytes."""
        self.messages[qos] += messages
        self.size[qos] += size


class ClientTraffic:
    """What the clients of one channel and version of MQTT have sent and got; latencies by QoS."""

    __slots__ = (
        "acknowledgement",
        "clients",
        "connects",
        "deliveries_timed",
        "delivery",
        "put",
        "puts_timed",
        "received",
        "sent",
    )

    def __init__(self) -> None:
        self.clients = 0
        self.connects = 0
        self.received = Way()
        self.sent = Way()
        self.put = (Histogram(), Histogram(), Histogram())
        self.acknowledgement = (Histogram(), Histogram(), Histogram())
        self.delivery = (Histogram(), Histogram(), Histogram())
        #: batches whose latency was measured since the last tick
        self.puts_timed = 0
        self.deliveries_timed = 0


class Traffic(Observer):
    """Counts for one telemetry service. Everything is called on its event loop; `clock` is the service's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: what the time of day is ahead of the clock
        self._offset = time.time() - clock()
        #: by channel and protocol level
        self._clients: dict[tuple[str, int], ClientTraffic] = {}
        #: by channel and reason
        self._refused: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        self._connects_refused: Counter[tuple[str, str]] = Counter()
        #: by channel
        self._unauthenticated: Counter[str] = Counter()
        self._resent: Counter[str] = Counter()
        #: by direction and reason
        self._dead_letters: Counter[tuple[str, str]] = Counter()
        #: by reason
        self._discarded: Counter[str] = Counter()

    def tick(self) -> None:
        """Measure latencies anew; called twice a second. The time of day may have been set meanwhile."""
        self._offset = time.time() - self._clock()
        for traffic in self._clients.values():
            traffic.puts_timed = traffic.deliveries_timed = 0

    def _of(self, session: Session) -> ClientTraffic:
        key = session.channel, session.level
        found = self._clients.get(key)
        if found is None:
            found = self._clients[key] = ClientTraffic()
        return found

    # Sessions --------------------------------------------------------------------------------------------------------

    def connect_refused(self, channel: str, reason: ReasonCode) -> None:
        self._connects_refused[channel, connack_label(reason)] += 1

    def authentication_failed(self, channel: str) -> None:
        self._unauthenticated[channel] += 1

    def connected(self, session: Session) -> None:
        traffic = self._of(session)
        traffic.clients += 1
        traffic.connects += 1

    def disconnected(self, session: Session) -> None:
        self._of(session).clients -= 1
        self._take_resent(session)

    def ended(self, session: Session, waiting: Sequence[Transmission]) -> None:
        self._discarded[_SESSION_ENDED] += len(waiting)

    def _take_resent(self, session: Session) -> None:
        in_flight = session.outbox.in_flight
        if in_flight.resent:
            self._resent[session.channel] += in_flight.resent
            in_flight.resent = 0

    # Publications ----------------------------------------------------------------------------------------------------

    def published(self, session: Session, publications: Publications, completion: Completion, received: int) -> None:
        traffic = self._of(session)
        qos = publications[0][0].qos
        size = received_size(publications, qos)
        if size != MIXED:
            traffic.received.add(qos, len(publications), size)
        else:
            for message, _ in publications:
                traffic.received.add(message.qos, 1, len(message.payload))
        if completion.failure:
            self._failed[session.channel, reason_label(completion.failure)] += 1
            return
        if traffic.puts_timed < TIMED:
            traffic.puts_timed += 1
            traffic.put[qos].observe((now_us() - received) / 1e6)
        if completion.refusals:
            for reason in completion.refusals.values():
                self._refused[session.channel, reason_label(reason)] += 1
        if completion.diverted:
            for reason in completion.diverted.values():
                self._dead_letters["in", reason_label(reason)] += 1

    # Deliveries ------------------------------------------------------------------------------------------------------

    def acknowledged(self, session: Session, work: Work) -> None:
        traffic = self._of(session)
        in_flight = session.outbox.in_flight
        acknowledged, released = work.acknowledged, work.released
        if acknowledged and not work.rejected:
            traffic.sent.add(1, len(acknowledged), acknowledged_size(acknowledged))
        else:
            for message_id, transmission in acknowledged:
                traffic.sent.add(in_flight[message_id].qos, 1, sent_size((transmission,)))
        if released:
            traffic.sent.add(2, len(released), sent_size([transmission for _, _, transmission in released]))
        if traffic.deliveries_timed < TIMED:
            traffic.deliveries_timed += 1
            if acknowledged:
                message_id, transmission = acknowledged[0]
                outgoing = in_flight[message_id]
            else:
                _, outgoing, transmission = released[0]
            received = work.received_at / 1e6
            traffic.acknowledgement[outgoing.qos].observe(received - self._offset - outgoing.sent_at)
            put = put_time_of(transmission)
            if put:
                traffic.delivery[outgoing.qos].observe(received - put)
        if in_flight.resent:
            self._take_resent(session)

    def finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        if discarded:
            for why in discarded.values():
                self._discarded[_DISCARDED[why]] += 1
            done = [one for one in done if one.msg_number not in discarded]
            if not done:
                return
        traffic = self._of(session)
        traffic.sent.add(0, len(done), sent_size(done))
        if traffic.deliveries_timed < TIMED:
            traffic.deliveries_timed += 1
            put = put_time_of(done[0])
            if put:
                traffic.delivery[0].observe(time.time() - put)

    def unclaimed(self, transmission: Transmission) -> None:
        self._discarded[_NO_SESSION] += 1

    def dead_lettered(self, transmission: Transmission, reason: int) -> None:
        self._dead_letters["out", reason_label(reason)] += 1

    # What was counted ------------------------------------------------------------------------------------------------

    def gather(self, samples: Samples) -> None:
        """Add what was counted."""
        for (channel, level), traffic in self._clients.items():
            clients = channel, version_label(level)
            samples.add("mqbridge_clients", traffic.clients, *clients)
            samples.add("mqbridge_connects_total", traffic.connects, *clients)
            for direction, way in (("in", traffic.received), ("out", traffic.sent)):
                for qos in _QOS:
                    samples.add("mqbridge_publications_total", way.messages[qos], *clients, str(qos), direction)
                    samples.add("mqbridge_publication_bytes_total", way.size[qos], *clients, str(qos), direction)
            for name, histograms in (
                ("mqbridge_put_seconds", traffic.put),
                ("mqbridge_acknowledgement_seconds", traffic.acknowledgement),
                ("mqbridge_delivery_seconds", traffic.delivery),
            ):
                for qos in _QOS:
                    if histograms[qos].count:
                        samples.add(name, histograms[qos], *clients, str(qos))
        for name, counts in (
            ("mqbridge_connects_refused_total", self._connects_refused),
            ("mqbridge_publications_refused_total", self._refused),
            ("mqbridge_units_of_work_failed_total", self._failed),
            ("mqbridge_dead_letters_total", self._dead_letters),
        ):
            for labels, count in counts.items():
                samples.add(name, count, *labels)
        for channel, count in self._unauthenticated.items():
            samples.add("mqbridge_authentications_failed_total", count, channel)
        for channel, count in self._resent.items():
            samples.add("mqbridge_messages_resent_total", count, channel)
        for reason in (*_DISCARDED.values(), _SESSION_ENDED, _NO_SESSION):
            samples.add("mqbridge_messages_discarded_total", self._discarded[reason], reason)
