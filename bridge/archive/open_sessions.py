"""The open sessions and their subscriptions, whose rows are repeated at the start of each day of an archive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.archive.events import (
    Connected,
    Disconnected,
    Ended,
    OpenSession,
    SessionEvent,
    Subscribed,
    Unsubscribed,
)
from bridge.archive.schema import Direction, Outcome, Row, row


class OpenSessions:
    """The open sessions, and the rows of their changes. Times are microseconds since the epoch."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self.sessions: dict[str, OpenSession] = {}

    def _session(self, client_id: str, user: str, durable: bool) -> OpenSession:
        session = self.sessions.get(client_id)
        if session is None:
            session = self.sessions[client_id] = OpenSession(durable, user)
        return session

    def _row(self, outcome: Outcome, client_id: str, received: int, settled: int, **values: Any) -> Row:
        return row(
            sequence=next(self._numbers), direction=Direction.SUBSCRIPTION, outcome=outcome, client_id=client_id,
            received=received, settled=settled, **values,
        )  # fmt: skip

    def follow(self, event: SessionEvent) -> list[Row]:
        """Apply a change. Returns its rows."""
        match event:
            case Connected():
                return self._connected(event)
            case Disconnected():
                return self._disconnected(event)
            case Subscribed():
                return self._subscribed(event)
            case Unsubscribed():
                return self._unsubscribed(event)
            case Ended():
                return self._ended(event)

    def _connected(self, event: Connected) -> list[Row]:
        now, user, durable = event.now, event.user, event.durable
        session = self._session(event.client_id, user, durable)
        session.durable, session.user, session.connected = durable, user, (now, now)
        return [self._row(Outcome.CONNECTED, event.client_id, now, now, user=user, durable=durable)]

    def _disconnected(self, event: Disconnected) -> list[Row]:
        session = self.sessions.get(event.client_id)
        if session is not None:
            session.connected = None
        return [self._row(Outcome.DISCONNECTED, event.client_id, event.now, event.now)]

    def _subscribed(self, event: Subscribed) -> list[Row]:
        session = self._session(event.client_id, event.user, event.durable)
        rows = []
        for topic_filter, qos in event.granted:
            session.subscriptions[topic_filter] = (qos, event.received, event.now)
            rows.append(self._subscription(event.client_id, session, topic_filter))
        return rows

    def _subscription(self, client_id: str, session: OpenSession, topic_filter: str) -> Row:
        qos, received, settled = session.subscriptions[topic_filter]
        return self._row(
            Outcome.SUBSCRIBED, client_id, received, settled,
            user=session.user, durable=session.durable, topic=topic_filter, qos=qos,
        )  # fmt: skip

    def _unsubscribed(self, event: Unsubscribed) -> list[Row]:
        session = self.sessions.get(event.client_id)
        if session is not None:
            for topic_filter in event.filters:
                session.subscriptions.pop(topic_filter, None)
        return [
            self._row(Outcome.UNSUBSCRIBED, event.client_id, event.received, event.now, topic=one)
            for one in event.filters
        ]

    def _ended(self, event: Ended) -> list[Row]:
        self.sessions.pop(event.client_id, None)
        return [self._row(Outcome.ENDED, event.client_id, event.now, event.now)]

    def again(self) -> list[Row]:
        """Return the rows of all open sessions again, with their original times."""
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
