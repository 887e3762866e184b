"""The sessions and subscriptions that stand, so that each day of an archive says again what it builds on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from bridge.archive.schema import Direction, Outcome, Row, row


class StandingSession(msgspec.Struct):
    """A session, as the rows said."""

    durable: bool
    user: str
    #: since when its client is connected: (received, settled); None while it is away
    connected: tuple[int, int] | None = None
    #: topic filter -> (QoS granted, received, settled)
    subscriptions: dict[str, tuple[int, int, int]] = msgspec.field(default_factory=dict)


class Standing:
    """What stands, and the rows of its changes. Times are microseconds since the epoch."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self.sessions: dict[str, StandingSession] = {}

    def _session(self, client_id: str, user: str, durable: bool) -> StandingSession:
        session = self.sessions.get(client_id)
        if session is None:
            session = self.sessions[client_id] = StandingSession(durable, user)
        return session

    def _row(self, outcome: Outcome, client_id: str, received: int, settled: int, **values: Any) -> Row:
        return row(
            sequence=next(self._numbers), direction=Direction.SUBSCRIPTION, outcome=outcome, client_id=client_id,
            received=received, settled=settled, **values,
        )  # fmt: skip

    def connected(self, now: int, client_id: str, user: str, durable: bool) -> list[Row]:
        """CONNACK 0 was sent."""
        session = self._session(client_id, user, durable)
        session.durable, session.user, session.connected = durable, user, (now, now)
        return [self._row(Outcome.CONNECTED, client_id, now, now, user=user, durable=durable)]

    def disconnected(self, now: int, client_id: str) -> list[Row]:
        """The connection of a client is gone."""
        session = self.sessions.get(client_id)
        if session is not None:
            session.connected = None
        return [self._row(Outcome.DISCONNECTED, client_id, now, now)]

    def subscribed(
        self, now: int, client_id: str, user: str, durable: bool, granted: Sequence[tuple[str, int]], received: int
    ) -> list[Row]:
        """SUBACK says that these filters are granted, with this QoS each."""
        session = self._session(client_id, user, durable)
        rows = []
        for topic_filter, qos in granted:
            session.subscriptions[topic_filter] = (qos, received, now)
            rows.append(self._subscription(client_id, session, topic_filter))
        return rows

    def _subscription(self, client_id: str, session: StandingSession, topic_filter: str) -> Row:
        qos, received, settled = session.subscriptions[topic_filter]
        return self._row(
            Outcome.SUBSCRIBED, client_id, received, settled,
            user=session.user, durable=session.durable, topic=topic_filter, qos=qos,
        )  # fmt: skip

    def unsubscribed(self, now: int, client_id: str, filters: Sequence[str], received: int) -> list[Row]:
        """UNSUBACK was sent."""
        session = self.sessions.get(client_id)
        if session is not None:
            for topic_filter in filters:
                session.subscriptions.pop(topic_filter, None)
        return [self._row(Outcome.UNSUBSCRIBED, client_id, received, now, topic=one) for one in filters]

    def ended(self, now: int, client_id: str) -> list[Row]:
        """A session has ended with all that belongs to it."""
        self.sessions.pop(client_id, None)
        return [self._row(Outcome.ENDED, client_id, now, now)]

    def again(self) -> list[Row]:
        """All that stands, said once more, with the times at which it came about."""
        rows = []
        for client_id, session in self.sessions.items():
            rows += [self._subscription(client_id, session, topic_filter) for topic_filter in session.subscriptions]
            if session.connected is not None:
                rows.append(
                    self._row(
                        Outcome.CONNECTED, client_id, *session.connected, user=session.user, durable=session.durable
                    )
                )
        return rows


#: Makes the rows of one event, in the archive's thread.
Expansion = Callable[..., list[Row]]
