"""Events that are counted as observers hear of them: connects, refusals, dead letters, and messages of no session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from bridge.mqtt.reason_codes import ReasonCode
from bridge.service.metrics.reasons import OTHER, REASONS, connack_label, reason_label
from bridge.service.metrics.samples import Samples
from bridge.service.observers import Observer
from bridge.service.traffic import Traffic
from bridge.telemetry.outbox import EXPIRED, FULL, NOT_ALLOWED, OWN, SLOW
from bridge.telemetry.session import Session
from bridge.telemetry.transmission import Transmission

#: Why a message was not sent, as a label.
_SESSION_ENDED: Final = "its session has ended"
_NO_SESSION: Final = "there is no session"
_DISCARDED: Final = {
    EXPIRED: "expired",
    SLOW: "slow_client",
    FULL: "waiting_full",
    OWN: "no_local",
    NOT_ALLOWED: "not_authorized",
    _SESSION_ENDED: "session_ended",
    _NO_SESSION: "no_session",
}


class Events(Observer):
    """Counts of one telemetry service. Everything is called on its event loop."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        #: by channel and reason
        self._connects_refused: Counter[tuple[str, str]] = Counter()
        #: by channel
        self._unauthenticated: Counter[str] = Counter()
        #: by channel
        self._sessions_refused: Counter[str] = Counter()
        #: messages for clients, by MQRC
        self._dead_letters: Counter[int] = Counter()

    def connect_refused(self, channel: str, reason: ReasonCode) -> None:
        self._connects_refused[channel, connack_label(reason)] += 1

    def authentication_failed(self, channel: str) -> None:
        self._unauthenticated[channel] += 1

    def session_refused(self, channel: str) -> None:
        self._sessions_refused[channel] += 1

    def connected(self, session: Session) -> None:
        traffic = self._traffic.of(session)
        session.counts = session.outbox.counts = traffic.counts
        traffic.clients += 1
        traffic.connects += 1

    def disconnected(self, session: Session) -> None:
        traffic = self._traffic.of(session)
        traffic.clients -= 1
        self._traffic.resent(session)

    def abandoned(self, session: Session, waiting: Sequence[Transmission]) -> None:
        self._traffic.discarded[_SESSION_ENDED] += len(waiting)

    def unclaimed(self, transmission: Transmission) -> None:
        self._traffic.discarded[_NO_SESSION] += 1

    def dead_lettered(self, transmission: Transmission, reason: int) -> None:
        self._dead_letters[reason] += 1

    def gather(self, samples: Samples) -> None:
        """Add what was counted."""
        for (channel, reason), count in self._connects_refused.items():
            samples.add("mqbridge_connects_refused_total", count, channel, reason)
        for channel, count in self._unauthenticated.items():
            samples.add("mqbridge_authentications_failed_total", count, channel)
        for channel, count in self._sessions_refused.items():
            samples.add("mqbridge_sessions_refused_total", count, channel)
        # From the start: the first dead letter is to be an increase.
        for direction, counts in (("in", self._traffic.diverted), ("out", self._dead_letters)):
            found = Counter(dict.fromkeys((*sorted(REASONS), OTHER), 0))
            for code, count in counts.items():
                found[reason_label(code)] += count
            for reason, count in found.items():
                samples.add("mqbridge_dead_letters_total", count, direction, reason)
        for why, label in _DISCARDED.items():
            samples.add("mqbridge_messages_discarded_total", self._traffic.discarded[why], label)
