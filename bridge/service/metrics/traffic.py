"""Counters of publications, rejections and dead-lettered messages, derived from the service's events.

Sessions count publications as they pass (`bridge.telemetry.outbox`), because fetching them from memory again costs more.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final, get_args

from bridge.administration.histogram import Histogram
from bridge.archive.events import now_us
from bridge.config.channel import Reason
from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.events import (
    Acknowledged,
    ClientConnected,
    ClientDisconnected,
    ConnectRejected,
    CredentialsRejected,
    DeadLettered,
    EventBus,
    Finished,
    MessagesAbandoned,
    Published,
    SessionRejected,
    Unclaimed,
)
from bridge.service.metrics.catalogue import Samples
from bridge.telemetry.outbox import EXPIRED, FULL, NOT_ALLOWED, OWN, SLOW, Outgoing, PublicationCounts
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import put_time_of
from bridge.wire import cmqc

#: The label for reasons that are not listed below.
OTHER: Final = "other"
#: Reasons for rejected publications, failed units of work and dead-lettered messages.
REASONS: Final = frozenset(
    (
        *get_args(Reason),
        "MQRC_CALL_INTERRUPTED",
        "MQRC_CONNECTION_BROKEN",
        "MQRC_FORMAT_ERROR",
        "MQRC_Q_MGR_NOT_AVAILABLE",
        "MQRC_Q_MGR_STOPPING",
        "MQRC_RESOURCE_PROBLEM",
        "MQRC_STORAGE_NOT_AVAILABLE",
        "MQRC_UNKNOWN_OBJECT_NAME",
        "MQRC_UNKNOWN_REMOTE_Q_MGR",
    )
)
#: Versions of MQTT by protocol level.
_VERSIONS: Final = {3: "3.1", 4: "3.1.1", 5: "5"}


@cache
def reason_label(reason: int) -> str:
    """Return the name of an MQRC, or `other`."""
    name = cmqc.reason_name(reason)
    return name if name in REASONS else OTHER


def connack_label(reason: ReasonCode) -> str:
    """Return the MQTT 5 name of a CONNACK reason code in lower case."""
    return reason.name.lower()


def version_label(level: int) -> str:
    """Return the MQTT version of a protocol level; `unknown` for a session whose client has not connected yet."""
    return _VERSIONS.get(level, "unknown")


#: Maximum number of batches per channel, version and direction whose latency is measured between two ticks.
TIMED: Final = 50
_SESSION_ENDED: Final = "its session has ended"
_NO_SESSION: Final = "there is no session"
#: Reasons for not sending a message, and their labels.
_DISCARDED: Final = {
    EXPIRED: "expired",
    SLOW: "slow_client",
    FULL: "waiting_full",
    OWN: "no_local",
    NOT_ALLOWED: "not_authorized",
    _SESSION_ENDED: "session_ended",
    _NO_SESSION: "no_session",
}


class ClientTraffic:
    """Counters of the clients of one channel and MQTT version; latencies in seconds, by QoS."""

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
        #: currently connected clients
        self.clients = 0
        #: accepted clients
        self.connects = 0
        #: publications received and sent
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
    """The counters of one telemetry service. Methods are called on its event loop; `clock` is the service's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: seconds by which the time of day is ahead of the clock
        self._offset = time.time() - clock()
        #: by channel and protocol level
        self.clients: dict[tuple[str, int], ClientTraffic] = {}
        #: rejected publications, and failed units of work, by channel and MQRC
        self.refused: Counter[tuple[str, int]] = Counter()
        self.failed: Counter[tuple[str, int]] = Counter()
        #: dead-lettered publications of clients ("in") and messages for clients ("out"), by MQRC
        self._dead_letters: dict[str, Counter[int]] = {"in": Counter(), "out": Counter()}
        #: messages that were not sent, by reason
        self._discarded: Counter[str] = Counter()
        #: closed connections by channel and reason
        self._disconnects: Counter[tuple[str, str]] = Counter()
        #: rejected CONNECTs by channel and reason
        self._connects_refused: Counter[tuple[str, str]] = Counter()
        #: rejected credentials, and rejected sessions, by channel
        self._unauthenticated: Counter[str] = Counter()
        self._sessions_refused: Counter[str] = Counter()

    def totals(self) -> tuple[int, int]:
        """Return the number of messages published by clients, and delivered to clients."""
        published = delivered = 0
        for traffic in self.clients.values():
            published += sum(messages for messages, _ in traffic.counts.received())
            delivered += sum(messages for messages, _ in traffic.counts.sent())
        return published, delivered

    def listen(self, events: EventBus) -> None:
        """Subscribe to the events of a service."""
        events.subscribe(ConnectRejected, self._connect_rejected)
        events.subscribe(CredentialsRejected, self._authentication_failed)
        events.subscribe(SessionRejected, self._session_rejected)
        events.subscribe(ClientConnected, self._connected)
        events.subscribe(ClientDisconnected, self._disconnected)
        events.subscribe(Published, self.published)
        events.subscribe(Acknowledged, self.acknowledged)
        events.subscribe(Finished, self.finished)
        events.subscribe(MessagesAbandoned, self._abandoned)
        events.subscribe(Unclaimed, self._unclaimed)
        events.subscribe(DeadLettered, self._dead_lettered)

    def tick(self) -> None:
        """Allow more latency measurements, and correct the offset of the time of day. Called twice a second."""
        self._offset = time.time() - self._clock()
        for traffic in self.clients.values():
            traffic.puts_timed = traffic.deliveries_timed = 0

    def of(self, session: Session) -> ClientTraffic:
        """Return the counters for a session's channel and MQTT version."""
        key = session.channel, session.level
        traffic = self.clients.get(key)
        if traffic is None:
            traffic = self.clients[key] = ClientTraffic()
        return traffic

    # Messages --------------------------------------------------------------------------------------------------------

    def published(self, event: Published) -> None:
        """Count a client's publications after the end of their unit of work."""
        channel, completion = event.session.channel, event.completion
        if completion.failure:
            self.failed[channel, completion.failure] += 1
            return
        traffic = self.of(event.session)
        if traffic.puts_timed < TIMED:
            traffic.puts_timed += 1
            qos: int = event.publications[0][0].qos
            traffic.put[qos].observe((now_us() - event.received_at) / 1e6)
        if completion.refusals:
            for reason in completion.refusals.values():
                self.refused[channel, reason] += 1
        if completion.diverted:
            self._dead_letters["in"].update(completion.diverted.values())

    def acknowledged(self, event: Acknowledged) -> None:
        """Measure the latency of messages that a client acknowledged."""
        session, effects = event.session, event.effects
        if session.outbox.resent:
            self._resent(session)
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

    def finished(self, event: Finished) -> None:
        """Count messages that need no acknowledgement. Discarded ones were not sent."""
        transmissions, discarded = event.transmissions, event.discarded
        traffic = self.of(event.session)
        traffic.counts.sent_0 += len(transmissions) - len(discarded)
        if discarded:
            self._discarded.update(discarded.values())
            return
        if traffic.deliveries_timed < TIMED:
            traffic.deliveries_timed += 1
            put_time = put_time_of(transmissions[0])
            if put_time:
                traffic.delivery[0].observe(time.time() - put_time)

    def _abandoned(self, event: MessagesAbandoned) -> None:
        self._discarded[_SESSION_ENDED] += len(event.transmissions)

    def _unclaimed(self, event: Unclaimed) -> None:
        self._discarded[_NO_SESSION] += 1

    def _dead_lettered(self, event: DeadLettered) -> None:
        self._dead_letters["out"][event.reason] += 1

    def _resent(self, session: Session) -> None:
        self.of(session).resent += session.outbox.resent
        session.outbox.resent = 0

    # Clients ---------------------------------------------------------------------------------------------------------

    def _connect_rejected(self, event: ConnectRejected) -> None:
        self._connects_refused[event.channel, connack_label(event.reason)] += 1

    def _authentication_failed(self, event: CredentialsRejected) -> None:
        self._unauthenticated[event.channel] += 1

    def _session_rejected(self, event: SessionRejected) -> None:
        self._sessions_refused[event.channel] += 1

    def _connected(self, event: ClientConnected) -> None:
        session = event.session
        traffic = self.of(session)
        session.counts = session.outbox.counts = traffic.counts
        traffic.clients += 1
        traffic.connects += 1

    def _disconnected(self, event: ClientDisconnected) -> None:
        self.of(event.session).clients -= 1
        self._disconnects[event.session.channel, event.reason] += 1
        self._resent(event.session)

    # Samples ---------------------------------------------------------------------------------------------------------

    def gather(self, samples: Samples) -> None:
        """Add the counts to the samples of a scrape."""
        for (channel, level), traffic in self.clients.items():
            _gather_clients(samples, traffic, (channel, version_label(level)))
        for name, reasons in (
            ("mqbridge_publications_refused_total", self.refused),
            ("mqbridge_units_of_work_failed_total", self.failed),
        ):
            by_label: Counter[tuple[str, str]] = Counter()
            for (channel, reason), count in reasons.items():
                by_label[channel, reason_label(reason)] += count
            for (channel, label), count in by_label.items():
                samples.add(name, count, channel, label)
        for (channel, why), count in self._disconnects.items():
            samples.add("mqbridge_disconnects_total", count, channel, why)
        for (channel, label), count in self._connects_refused.items():
            samples.add("mqbridge_connects_refused_total", count, channel, label)
        for channel, count in self._unauthenticated.items():
            samples.add("mqbridge_authentications_failed_total", count, channel)
        for channel, count in self._sessions_refused.items():
            samples.add("mqbridge_sessions_refused_total", count, channel)
        # Zero from the start, so that the first dead-lettered message is an increase.
        for direction, counts in self._dead_letters.items():
            labels = Counter(dict.fromkeys((*sorted(REASONS), OTHER), 0))
            for code, count in counts.items():
                labels[reason_label(code)] += count
            for label, count in labels.items():
                samples.add("mqbridge_dead_letters_total", count, direction, label)
        for why, label in _DISCARDED.items():
            samples.add("mqbridge_messages_discarded_total", self._discarded[why], label)


def _gather_clients(samples: Samples, traffic: ClientTraffic, labels: tuple[str, str]) -> None:
    samples.add("mqbridge_clients", traffic.clients, *labels)
    samples.add("mqbridge_connects_total", traffic.connects, *labels)
    samples.add("mqbridge_messages_resent_total", traffic.resent, *labels)
    for qos in (0, 1, 2):
        for direction, counts in (("in", traffic.counts.received()), ("out", traffic.counts.sent())):
            messages, size = counts[qos]
            samples.add("mqbridge_publications_total", messages, *labels, str(qos), direction)
            samples.add("mqbridge_publication_bytes_total", size, *labels, str(qos), direction)
        for step, histogram in (
            ("put", traffic.put[qos]),
            ("acknowledgement", traffic.acknowledgement[qos]),
            ("delivery", traffic.delivery[qos]),
        ):
            if histogram.count:
                samples.add(f"mqbridge_{step}_seconds", histogram, *labels, str(qos))
