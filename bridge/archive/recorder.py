"""What the telemetry service tells the archive: each call hands over one batch as it is, and returns at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from bridge.archive.rows import Settled
from bridge.archive.schema import SESSION_ENDED
from bridge.archive.writer import ArchiveWriter, now_us
from bridge.mapping.message import PublicationMessage
from bridge.mq.agent import ClientSubscription, Transmission, UnitOfWork
from bridge.wire import cmqc

if TYPE_CHECKING:
    from bridge.config.archive import ArchiveConfig
    from bridge.mqtt.session import Session, Work

__all__ = ["Recorder", "now_us"]

log = logging.getLogger(__name__)


class Recorder:
    """The archive of one telemetry service. Everything is called on its event loop; `clock` is the service's."""

    def __init__(self, config: ArchiveConfig, clock: Callable[[], float]) -> None:
        self._writer = ArchiveWriter(config)
        self._clock = clock
        # Strings of identities, which come as bytes; few, and asked for with each batch.
        self._users: dict[bytes, str] = {}

    def begin(self, subscriptions: Sequence[ClientSubscription]) -> None:
        """The service has the transmission queue to itself, and found these subscriptions."""
        self._writer.start()
        now = now_us()
        for one in subscriptions:
            if one.durable:
                qos = int(one.user_data) if one.user_data in ("0", "1", "2") else 2
                self._writer.add(
                    1, 0, self._writer.standing.subscribed, one.client_id, "", True, [(one.topic_filter, qos)], now
                )

    def close(self, timeout: float) -> None:
        """Write what is left; for at most so many seconds. It blocks: call it in a thread of its own."""
        if not self._writer.close(timeout):
            log.warning("archive: not all of it is written after %g s; what is missing is lost", timeout)

    def _user(self, session: Session) -> str:
        user = session.identity.user
        text = self._users.get(user)
        if text is None:
            if len(self._users) > 10_000:
                self._users.clear()
            text = self._users[user] = user.decode("utf-8", "replace")
        return text

    # Publications ----------------------------------------------------------------------------------------------------

    def committed(self, session: Session, work: Work, unit: UnitOfWork) -> None:
        """A unit of work of one session has ended; call it before the session forgets what it acknowledged."""
        if work.publications:
            self.published(session, work.publications, unit, work.received_at)
        if not unit.failure and (work.acknowledged or work.released):
            self._acknowledged(session, work)

    def published(
        self,
        session: Session,
        publications: Sequence[tuple[PublicationMessage, bool]],
        unit: UnitOfWork,
        received: int,
    ) -> None:
        """Publications of a client whose unit of work has ended; `received` in microseconds since the epoch."""
        refusals: Mapping[int, str] = {}
        if unit.failure:
            refusals = dict.fromkeys(range(len(publications)), _reason(unit.failure))
        elif unit.refusals:
            refusals = {index: _reason(reason) for index, reason in unit.refusals.items()}
        size = sum([len(message.payload) for message, _ in publications])
        self._writer.add(
            len(publications), size, self._writer.rows.published,
            session.client_id, self._user(session), publications, refusals, received,
        )  # fmt: skip

    # Deliveries ------------------------------------------------------------------------------------------------------

    def _acknowledged(self, session: Session, work: Work) -> None:
        in_flight = session.outbox.in_flight
        offset = time.time() - self._clock()
        taken = [(message_id, in_flight[message_id], one) for message_id, one in work.acknowledged] + work.released
        settled = [
            Settled(
                cast(Transmission, one), message_id, outgoing.qos, outgoing.retain, outgoing.field, outgoing.payload,
                int((outgoing.sent_at + offset) * 1_000_000), outgoing.times_sent,
            )
            for message_id, outgoing, one in taken
        ]  # fmt: skip
        size = sum([len(one.payload) for one in settled])
        self._writer.add(
            len(settled), size, self._writer.rows.acknowledged, session.client_id, self._user(session), settled
        )

    def finished(self, session: Session, done: Sequence[Transmission]) -> None:
        """Messages that wait for no acknowledgement: written with QoS 0, or discarded as the outbox noted."""
        discarded = session.outbox.discarded or {}
        if discarded:
            session.outbox.discarded = {}
        self._finished(session, done, discarded)

    def _finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        size = sum([one.message.length for one in done])
        self._writer.add(
            len(done), size, self._writer.rows.finished, session.client_id, self._user(session), list(done), discarded
        )

    def unclaimed(self, transmission: Transmission) -> None:
        """A message for a subscription of a session that has ended."""
        self._writer.add(
            1, transmission.message.length, self._writer.rows.finished,
            transmission.client_id, "", [transmission], {transmission.msg_number: SESSION_ENDED},
        )  # fmt: skip

    def dead_lettered(self, transmission: Transmission, reason: int) -> None:
        """A message that went to the dead-letter queue instead of its client."""
        self._writer.add(1, transmission.message.length, self._writer.rows.dead_lettered, transmission, reason)

    # Sessions --------------------------------------------------------------------------------------------------------

    def connected(self, session: Session) -> None:
        """CONNACK 0 is sent."""
        session.outbox.discarded = {}
        self._writer.add(
            1, 0, self._writer.standing.connected, session.client_id, self._user(session), session.durable
        )

    def disconnected(self, session: Session) -> None:
        """The connection of a client is gone."""
        self._writer.add(1, 0, self._writer.standing.disconnected, session.client_id)

    def subscribed(self, session: Session, granted: Sequence[tuple[str, int]], received: int) -> None:
        """SUBACK is sent for these filters, each with the QoS granted; SUBSCRIBE came at `received`."""
        self._writer.add(
            len(granted), 0, self._writer.standing.subscribed,
            session.client_id, self._user(session), session.durable, granted, received,
        )  # fmt: skip

    def unsubscribed(self, session: Session, filters: Sequence[str], received: int) -> None:
        """UNSUBACK is sent; UNSUBSCRIBE came at `received`."""
        self._writer.add(
            len(filters), 0, self._writer.standing.unsubscribed, session.client_id, list(filters), received
        )

    def ended(self, session: Session, waiting: Sequence[Transmission]) -> None:
        """A session has ended, and with it what waited for its client."""
        if waiting:
            self._finished(session, waiting, {one.msg_number: SESSION_ENDED for one in waiting})
        self._writer.add(1, 0, self._writer.standing.ended, session.client_id)


def _reason(reason: int) -> str:
    return f"{cmqc.reason_name(reason)} ({reason})"
