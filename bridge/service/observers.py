"""Observers: archive, log and metrics are told of what happens to sessions and messages, and cannot hold it up.

An observer overrides the events that it wants. One that fails costs messages nothing: its error is logged, once for each
event.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridge.mq.backend import ClientSubscription, Completion
from bridge.mqtt.reason_codes import ReasonCode
from bridge.telemetry.session import ReceiveEffects, Session
from bridge.telemetry.transmission import PublicationMessage, Transmission

log = logging.getLogger(__name__)

Publications = Sequence[tuple[PublicationMessage, bool]]


class Observer:
    """What can be told; called on the event loop, after the fact. Times are microseconds since the epoch."""

    def begin(self, subscriptions: Sequence[ClientSubscription]) -> None:
        """Note that the service has the transmission queue to itself, and has found these subscriptions."""

    # Sessions

    def connect_refused(self, channel: str, reason: ReasonCode) -> None:
        """Note that a client of a channel is refused by CONNACK; the reason is as MQTT 5 names it."""

    def authentication_failed(self, channel: str) -> None:
        """Note that a client of a channel did not show who it is."""

    def session_refused(self, channel: str) -> None:
        """Note that a client was rejected because its client identifier belongs to a session of another user."""

    def connected(self, session: Session) -> None:
        """Note that CONNACK 0 is sent."""

    def disconnected(self, session: Session) -> None:
        """Note that the connection of a client is gone."""

    def subscribed(self, session: Session, granted: Sequence[tuple[str, int]], received: int) -> None:
        """Note that SUBACK is sent for these filters, each with the QoS granted; SUBSCRIBE came at `received`."""

    def unsubscribed(self, session: Session, filters: Sequence[str], received: int) -> None:
        """Note that UNSUBACK is sent; UNSUBSCRIBE came at `received`."""

    def abandoned(self, session: Session, waiting: Sequence[Transmission]) -> None:
        """Note messages that are removed because their session has ended."""

    def ended(self, session: Session) -> None:
        """Note that a session has ended; its messages are removed."""

    # Publications

    def published(self, session: Session, publications: Publications, completion: Completion, received: int) -> None:
        """Note that publications of a client, which came at `received`, have ended: put, refused, or failed."""

    def refused(self, session: Session, message: PublicationMessage, reason: int) -> None:
        """Note that the queue manager has refused a publication with QoS 1 or 2, for which the client is disconnected."""

    # Deliveries

    def acknowledged(self, session: Session, effects: ReceiveEffects) -> None:
        """Note that acknowledgements of a client are committed; the session has not forgotten yet what they are for."""

    def finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        """Note messages that wait for no acknowledgement: written with QoS 0, or `discarded`, by number, with the reason."""

    def unclaimed(self, transmission: Transmission) -> None:
        """Note a message for a subscription of a session that has ended."""

    def dead_lettered(self, transmission: Transmission, reason: int) -> None:
        """Note a message that went to the dead-letter queue instead of its client."""


class Observers(Observer):
    """All observers as one."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._failed: set[str] = set()
        self._observers = list(observers)
        self._arrange()

    def add(self, observer: Observer) -> None:
        """Tell one more from now on."""
        self._observers.append(observer)
        self._arrange()

    def remove(self, observer: Observer) -> None:
        """Tell one of them no more."""
        self._observers.remove(observer)
        self._arrange()

    def _arrange(self) -> None:
        """Find out who wants which event: to tell nobody costs nothing."""

        def wanting(event: Callable[..., None]) -> tuple[Callable[..., None], ...]:
            name = event.__name__
            return tuple(getattr(one, name) for one in self._observers if getattr(type(one), name) is not event)

        self._begin = wanting(Observer.begin)
        self._connect_refused = wanting(Observer.connect_refused)
        self._authentication_failed = wanting(Observer.authentication_failed)
        self._session_refused = wanting(Observer.session_refused)
        self._connected = wanting(Observer.connected)
        self._disconnected = wanting(Observer.disconnected)
        self._subscribed = wanting(Observer.subscribed)
        self._unsubscribed = wanting(Observer.unsubscribed)
        self._abandoned = wanting(Observer.abandoned)
        self._ended = wanting(Observer.ended)
        self._published = wanting(Observer.published)
        self._refused = wanting(Observer.refused)
        self._acknowledged = wanting(Observer.acknowledged)
        self._finished = wanting(Observer.finished)
        self._unclaimed = wanting(Observer.unclaimed)
        self._dead_lettered = wanting(Observer.dead_lettered)

    def _tell(self, listener: Callable[..., None], *event: Any) -> None:
        try:
            listener(*event)
        except Exception:
            name = listener.__qualname__
            if name not in self._failed:
                self._failed.add(name)
                log.exception("MQB0007E an observer fails (%s); messages go on, and it is not said again", name)

    def begin(self, subscriptions: Sequence[ClientSubscription]) -> None:
        for tell in self._begin:
            self._tell(tell, subscriptions)

    def connect_refused(self, channel: str, reason: ReasonCode) -> None:
        for tell in self._connect_refused:
            self._tell(tell, channel, reason)

    def authentication_failed(self, channel: str) -> None:
        for tell in self._authentication_failed:
            self._tell(tell, channel)

    def session_refused(self, channel: str) -> None:
        for tell in self._session_refused:
            self._tell(tell, channel)

    def connected(self, session: Session) -> None:
        for tell in self._connected:
            self._tell(tell, session)

    def disconnected(self, session: Session) -> None:
        for tell in self._disconnected:
            self._tell(tell, session)

    def subscribed(self, session: Session, granted: Sequence[tuple[str, int]], received: int) -> None:
        for tell in self._subscribed:
            self._tell(tell, session, granted, received)

    def unsubscribed(self, session: Session, filters: Sequence[str], received: int) -> None:
        for tell in self._unsubscribed:
            self._tell(tell, session, filters, received)

    def abandoned(self, session: Session, waiting: Sequence[Transmission]) -> None:
        for tell in self._abandoned:
            self._tell(tell, session, waiting)

    def ended(self, session: Session) -> None:
        for tell in self._ended:
            self._tell(tell, session)

    def published(self, session: Session, publications: Publications, completion: Completion, received: int) -> None:
        for tell in self._published:
            self._tell(tell, session, publications, completion, received)

    def refused(self, session: Session, message: PublicationMessage, reason: int) -> None:
        for tell in self._refused:
            self._tell(tell, session, message, reason)

    def acknowledged(self, session: Session, effects: ReceiveEffects) -> None:
        for tell in self._acknowledged:
            self._tell(tell, session, effects)

    def finished(self, session: Session, done: Sequence[Transmission], discarded: Mapping[int, str]) -> None:
        for tell in self._finished:
            self._tell(tell, session, done, discarded)

    def unclaimed(self, transmission: Transmission) -> None:
        for tell in self._unclaimed:
            self._tell(tell, transmission)

    def dead_lettered(self, transmission: Transmission, reason: int) -> None:
        for tell in self._dead_lettered:
            self._tell(tell, transmission, reason)
